"""The watchdog timer as part of the clocked machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nospoon.bmc.aggregate import Bmc
from nospoon.bmc.log import Kind
from nospoon.bmc.messages import (
    Answer,
    Append,
    Drive,
    Effect,
    MachineReported,
    Verdict,
    WatchdogRequested,
    WatchdogReset,
)
from nospoon.bmc.sensors import BY_NUMBER, Discrete, states
from nospoon.bmc.watchdog import WatchdogSettings
from nospoon.model.boot import BootDevice
from nospoon.model.machine import MachineChange, MachineEvent, PowerCommand, PowerState
from nospoon.testing.bench import CLUSTER

TEN_SECONDS = WatchdogSettings(use=4, action=1, countdown=100)


def armed(settings: WatchdogSettings = TEN_SECONDS) -> Bmc:
    subject = Bmc(order=(BootDevice.DISK,), script=False)
    seen(subject, MachineChange.OBSERVED, PowerState.ON)
    list(subject.receive(WatchdogRequested(settings, 1), 0.0))
    list(subject.receive(WatchdogReset(2), 0.0))
    return subject


def seen(subject: Bmc, change: MachineChange, power: PowerState) -> None:
    list(subject.receive(MachineReported(MachineEvent(CLUSTER, change, power)), 0.0))


def acts(effects: list[Effect]) -> list[Kind | PowerCommand]:
    """What was logged and driven."""
    found: list[Kind | PowerCommand] = []
    for each in effects:
        match each:
            case Append(record=record):
                found.append(record.kind)
            case Drive(command=command):
                found.append(command)
            case _:
                pass
    return found


@pytest.mark.parametrize(
    ("action", "done"),
    [
        (0, [Kind.WATCHDOG_EXPIRED]),
        (1, [Kind.WATCHDOG_RESET, PowerCommand.RESET]),
        (2, [Kind.WATCHDOG_OFF, PowerCommand.OFF]),
        (3, [Kind.WATCHDOG_CYCLE, PowerCommand.CYCLE]),
    ],
)
def test_it_acts_at_its_timeout_and_once(action: int, done: list[Kind | PowerCommand]) -> None:
    subject = armed(replace(TEN_SECONDS, action=action))
    assert subject.deadline == 10.0
    assert acts(list(subject.expire(9.9))) == []
    assert acts(list(subject.expire(10.0))) == done
    assert subject.watchdog is not None
    assert (subject.watchdog.running, subject.watchdog.expired) == (False, 1 << 4)
    assert subject.deadline is None


def test_it_warns_by_nmi_before_its_timeout() -> None:
    subject = armed(replace(TEN_SECONDS, interrupt=2, pretimeout=3))
    assert subject.deadline == 7.0
    assert acts(list(subject.expire(7.0))) == [Kind.WATCHDOG_INTERRUPT, PowerCommand.DIAG]
    assert subject.deadline == 10.0


def test_starting_it_anew_puts_the_action_off() -> None:
    subject = armed()
    list(subject.receive(WatchdogReset(3), 8.0))
    assert subject.deadline == 18.0
    assert subject.watchdog is not None
    assert subject.watchdog.left(10.0) == 80


def test_setting_it_stops_it_unless_told_not_to() -> None:
    subject = armed()
    list(subject.receive(WatchdogRequested(replace(TEN_SECONDS, keep_running=True), 3), 5.0))
    assert subject.deadline == 15.0
    list(subject.receive(WatchdogRequested(TEN_SECONDS, 3), 5.0))
    assert subject.deadline is None


def left(subject: Bmc, now: float) -> int:
    assert subject.watchdog is not None
    return subject.watchdog.left(now)


def test_its_countdown_reads_zero_after_expiry_and_anew_after_it_was_set() -> None:
    subject = armed()
    assert left(subject, 4.0) == 60
    list(subject.expire(10.0))
    assert left(subject, 11.0) == 0
    list(subject.receive(WatchdogRequested(replace(TEN_SECONDS, countdown=70), 3), 12.0))
    assert left(subject, 13.0) == 70
    list(subject.receive(WatchdogReset(4), 14.0))
    assert left(subject, 15.0) == 60


def test_its_countdown_stands_where_the_machine_stopped_it() -> None:
    subject = armed()
    event = MachineEvent(CLUSTER, MachineChange.RESET, PowerState.ON)
    list(subject.receive(MachineReported(event), 4.0))
    assert left(subject, 9.0) == 60


def test_a_warning_of_zero_seconds_comes_with_the_timeout() -> None:
    subject = armed(replace(TEN_SECONDS, interrupt=2, pretimeout=0))
    assert acts(list(subject.expire(10.0))) == [Kind.WATCHDOG_INTERRUPT, PowerCommand.DIAG]
    assert subject.deadline == 10.0


def test_a_warning_as_long_as_the_countdown_comes_at_once() -> None:
    subject = armed(replace(TEN_SECONDS, interrupt=2, pretimeout=10))
    assert acts(list(subject.expire(0.0))) == [Kind.WATCHDOG_INTERRUPT, PowerCommand.DIAG]
    assert subject.deadline == 10.0


def test_its_sensor_tells_what_was_done_whatever_was_set_since() -> None:
    subject = armed()
    list(subject.expire(10.0))
    list(subject.receive(WatchdogRequested(replace(TEN_SECONDS, action=2), 3), 12.0))
    sensor = BY_NUMBER[10]
    assert isinstance(sensor, Discrete)
    assert states(sensor, subject, 13.0) == 1 << 1


def test_a_machine_that_boots_or_goes_off_stops_it() -> None:
    for change, power in [
        (MachineChange.RESET, PowerState.ON),
        (MachineChange.SHUTDOWN, PowerState.OFF),
    ]:
        subject = armed()
        seen(subject, change, power)
        assert subject.deadline is None


def test_one_that_was_never_set_cannot_be_started() -> None:
    subject = Bmc(order=(), script=False)
    [answer] = subject.receive(WatchdogReset(1), 0.0)
    assert isinstance(answer, Answer)
    assert answer.verdict is Verdict.WRONG_STATE


def test_expiry_without_logging_acts_without_a_record_and_shows_in_its_sensor() -> None:
    subject = armed(replace(TEN_SECONDS, log=False))
    assert acts(list(subject.expire(10.0))) == [PowerCommand.RESET]
    sensor = BY_NUMBER[10]
    assert isinstance(sensor, Discrete)
    assert states(sensor, subject, 11.0) == 1 << 1
    list(subject.receive(WatchdogRequested(replace(TEN_SECONDS, clear=1 << 4), 3), 12.0))
    assert states(sensor, subject, 13.0) == 0
