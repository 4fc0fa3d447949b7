"""What a BMC makes of a reboot of its machine's host: the power restore policy, once."""

from __future__ import annotations

from uuid import UUID

import pytest

from nospoon.bmc.aggregate import Bmc
from nospoon.bmc.log import Kind
from nospoon.bmc.messages import (
    AcLost,
    CommandEnded,
    Drive,
    Effect,
    Event,
    HostSeen,
    MachineReported,
    PowerRequested,
    Reshaped,
    RestartRequested,
    SettingsRequested,
    Verdict,
)
from nospoon.bmc.messages import Defaults as Forgets
from nospoon.bmc.restart_cause import CAUSE_ALWAYS_RESTORE, CAUSE_PREVIOUS
from nospoon.bmc.runtime import Runtime, Settings
from nospoon.model.boot import BootDevice
from nospoon.model.machine import MachineChange, MachineEvent, PowerCommand, PowerPolicy, PowerState

ORDER = (BootDevice.DISK, BootDevice.NETWORK)
BEFORE, AFTER = HostSeen("boot-1"), HostSeen("boot-2")
ON, OFF, PREVIOUS = PowerPolicy.ALWAYS_ON, PowerPolicy.ALWAYS_OFF, PowerPolicy.PREVIOUS
DONE = CommandEnded(Verdict.DONE)


def seen(power: PowerState, change: MachineChange = MachineChange.OBSERVED) -> MachineReported:
    return MachineReported(MachineEvent(UUID(int=7), change, power))


def started(runtime: Runtime, *, power: PowerState) -> Bmc:
    """A daemon starts: it serves the BMC, and then looks at the machine."""
    made = Bmc(order=ORDER, script=False, runtime=runtime)
    hear(made, seen(power))
    return made


def hear(subject: Bmc, *events: Event) -> list[Effect]:
    return [effect for event in events for effect in subject.receive(event, 0.0)]


def commands(effects: list[Effect]) -> list[PowerCommand]:
    return [each.command for each in effects if isinstance(each, Drive)]


def before_reboot(policy: PowerPolicy, power: PowerState) -> Bmc:
    """A machine that was seen on its host, in this state."""
    made = started(Runtime(settings=Settings(policy=policy)), power=power)
    hear(made, BEFORE)
    return made


@pytest.mark.parametrize(
    ("policy", "was", "does"),
    [
        (OFF, PowerState.ON, []),
        (OFF, PowerState.OFF, []),
        (PREVIOUS, PowerState.ON, [PowerCommand.ON]),
        (PREVIOUS, PowerState.OFF, []),
        (ON, PowerState.ON, [PowerCommand.ON]),
        (ON, PowerState.OFF, [PowerCommand.ON]),
    ],
)
def test_the_policy_decides_after_a_reboot_of_the_host(
    policy: PowerPolicy, was: PowerState, does: list[PowerCommand]
) -> None:
    runtime = before_reboot(policy, was).runtime
    again = started(runtime, power=PowerState.OFF)
    assert commands(hear(again, AFTER)) == does
    assert [each.kind for each in again.log.records] == [Kind.AC_LOST, Kind.AC_RETURNED]
    if does:
        hear(again, DONE)
        assert again.runtime.restart_cause == {
            ON: CAUSE_ALWAYS_RESTORE, PREVIOUS: CAUSE_PREVIOUS,
        }[policy]  # fmt: skip
    assert again.runtime.on is bool(does)
    assert again.runtime.host_boot == AFTER.boot
    assert commands(hear(again, seen(PowerState.OFF), AFTER)) == []


def test_a_stop_by_a_host_that_shuts_down_does_not_count() -> None:
    subject = before_reboot(PREVIOUS, PowerState.ON)
    hear(subject, seen(PowerState.OFF, MachineChange.SHUTDOWN))  # as libvirt-guests does it
    assert subject.runtime.on
    assert commands(hear(subject, seen(PowerState.OFF), AFTER)) == [PowerCommand.ON]


def test_a_guest_that_switches_itself_off_stays_off() -> None:
    subject = before_reboot(PREVIOUS, PowerState.ON)
    hear(subject, seen(PowerState.OFF, MachineChange.SHUTDOWN), BEFORE)
    assert not subject.runtime.on
    again = started(subject.runtime, power=PowerState.OFF)
    assert commands(hear(again, AFTER)) == []


def test_a_machine_that_was_switched_off_stays_off() -> None:
    subject = before_reboot(PREVIOUS, PowerState.ON)
    hear(subject, PowerRequested(PowerCommand.OFF, 1), DONE)
    assert commands(hear(subject, AFTER)) == []


def test_a_command_counts_that_comes_before_the_host_is_known_again() -> None:
    """It is off already, and shall be so."""
    runtime = before_reboot(PREVIOUS, PowerState.ON).runtime
    again = started(runtime, power=PowerState.OFF)
    hear(again, PowerRequested(PowerCommand.OFF, 1))
    assert commands(hear(again, AFTER)) == []


def test_a_machine_is_started_once() -> None:
    """By a client before, by the policy, or by something else on the host."""
    runtime = before_reboot(PREVIOUS, PowerState.ON).runtime
    again = started(runtime, power=PowerState.OFF)
    asked = hear(again, PowerRequested(PowerCommand.ON, 1), AFTER, DONE, AFTER)
    assert commands(asked) == [PowerCommand.ON]
    restored = started(runtime, power=PowerState.OFF)
    assert commands(hear(restored, AFTER, AFTER, DONE, AFTER)) == [PowerCommand.ON]
    other = started(runtime, power=PowerState.ON)
    assert commands(hear(other, AFTER)) == []
    assert other.runtime.host_boot == AFTER.boot


def test_a_daemon_that_died_while_it_restored_goes_on_with_it() -> None:
    runtime = before_reboot(PREVIOUS, PowerState.ON).runtime
    first = started(runtime, power=PowerState.OFF)
    assert commands(hear(first, AFTER)) == [PowerCommand.ON]
    second = started(first.runtime, power=PowerState.OFF)
    assert commands(hear(second, AFTER)) == [PowerCommand.ON]


def test_a_host_that_does_not_answer_is_waited_for() -> None:
    again = started(before_reboot(PREVIOUS, PowerState.ON).runtime, power=PowerState.OFF)
    hear(again, AFTER, CommandEnded(Verdict.UNREACHABLE, "it is not up yet"))
    assert commands(hear(again, seen(PowerState.OFF), AFTER)) == [PowerCommand.ON]
    hear(again, CommandEnded(Verdict.FAILED, "out of memory"))
    assert commands(hear(again, seen(PowerState.OFF), AFTER)) == []
    assert again.fault == "out of memory"


def test_what_has_no_ac_power_stays_off() -> None:
    subject = before_reboot(ON, PowerState.ON)
    hear(subject, AcLost(), DONE)
    assert commands(hear(subject, seen(PowerState.OFF), AFTER)) == []


def test_an_unknown_machine_waits_until_it_is_seen() -> None:
    again = Bmc(order=ORDER, script=False, runtime=before_reboot(ON, PowerState.ON).runtime)
    assert commands(hear(again, AFTER)) == []
    assert commands(hear(again, seen(PowerState.OFF), AFTER)) == [PowerCommand.ON]


def test_the_file_s_policy_counts_until_a_client_sets_another_and_again_when_it_changes() -> None:
    subject = Bmc(order=ORDER, script=False)
    hear(subject, Reshaped(ORDER, script=False, policy=ON))
    assert subject.runtime.settings.policy is ON
    hear(subject, SettingsRequested(Settings(policy=OFF)))
    hear(subject, Reshaped(ORDER, script=False, policy=ON))
    assert subject.runtime.settings.policy is OFF
    again = Bmc(order=ORDER, script=False, runtime=subject.runtime)
    hear(again, Reshaped(ORDER, script=False, policy=ON))
    assert again.runtime.settings.policy is OFF
    hear(again, Reshaped(ORDER, script=False, policy=PREVIOUS))
    assert again.runtime.settings.policy is PREVIOUS


def test_a_reset_to_defaults_sets_the_file_s_policy() -> None:
    subject = Bmc(order=ORDER, script=False)
    hear(subject, Reshaped(ORDER, script=False, policy=ON))
    hear(subject, SettingsRequested(Settings(policy=OFF)))
    hear(subject, RestartRequested(defaults=Forgets.ALL))
    assert subject.runtime.settings.policy is ON
