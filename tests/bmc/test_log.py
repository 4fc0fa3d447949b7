"""The event log: what the aggregate records by itself, the ring, and the SEL's bytes."""

from __future__ import annotations

import struct
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from nospoon.bmc.aggregate import Bmc
from nospoon.bmc.log import CAPACITY, LAST_RECORD_ID, MEANINGS, Kind, Log, Severity, encode
from nospoon.bmc.messages import (
    AcLost,
    AcReturned,
    Answer,
    Append,
    CommandEnded,
    Drive,
    Effect,
    Erase,
    Event,
    LogAddRequested,
    LogEraseRequested,
    MachineReported,
    PowerRequested,
    SettingsRequested,
    Verdict,
)
from nospoon.bmc.runtime import Runtime, Settings
from nospoon.bmc.sensors import BY_NUMBER
from nospoon.model.boot import BootDevice
from nospoon.model.machine import MachineChange, MachineEvent, PowerCommand, PowerPolicy, PowerState

ORDER = (BootDevice.DISK, BootDevice.NETWORK)
ON, OFF = PowerCommand.ON, PowerCommand.OFF


def machine(change: MachineChange, power: PowerState, reason: str = "") -> MachineReported:
    return MachineReported(MachineEvent(UUID(int=7), change, power, reason))


def bmc(power: PowerState = PowerState.OFF, runtime: Runtime | None = None) -> Bmc:
    made = Bmc(order=ORDER, script=False, runtime=runtime)
    made.state.epoch = 1_000_000.0
    hear(made, machine(MachineChange.OBSERVED, power))
    return made


def hear(subject: Bmc, event: Event, now: float = 0.0) -> list[Effect]:
    return list(subject.receive(event, now))


def kinds(subject: Bmc) -> list[Kind]:
    return [each.kind for each in subject.log.records]


def test_a_power_on_and_its_boot_are_recorded_once() -> None:
    subject = bmc()
    hear(subject, PowerRequested(ON, 1), 5.0)
    hear(subject, machine(MachineChange.STARTED, PowerState.ON), 5.1)
    hear(subject, CommandEnded(Verdict.DONE), 5.2)
    assert kinds(subject) == [Kind.POWER_ON, Kind.BOOTED]
    assert subject.log.records[0].at == 1_000_005.1


def test_an_event_that_comes_after_the_outcome_records_nothing_twice() -> None:
    subject = bmc()
    hear(subject, PowerRequested(ON, 1))
    effects = hear(subject, CommandEnded(Verdict.DONE), 0.2)
    assert [each.record.kind for each in effects if isinstance(each, Append)] == [
        Kind.POWER_ON,
        Kind.BOOTED,
    ]
    hear(subject, machine(MachineChange.STARTED, PowerState.ON), 0.3)
    assert kinds(subject) == [Kind.POWER_ON, Kind.BOOTED]


def test_cycle_reset_reboot_off_and_failures_are_recorded() -> None:
    subject = bmc(PowerState.ON)
    for command, change in [
        (PowerCommand.CYCLE, MachineChange.STARTED),
        (PowerCommand.RESET, MachineChange.RESET),
    ]:
        hear(subject, PowerRequested(command, 1))
        hear(subject, machine(change, PowerState.ON))
        hear(subject, CommandEnded(Verdict.DONE))
    hear(subject, machine(MachineChange.RESET, PowerState.ON))
    hear(subject, machine(MachineChange.SHUTDOWN, PowerState.OFF))
    hear(subject, PowerRequested(ON, 1))
    hear(subject, CommandEnded(Verdict.FAILED, "no memory"))
    hear(subject, machine(MachineChange.STARTED, PowerState.ON))
    hear(subject, machine(MachineChange.FAILED, PowerState.FAILED, "internal error"))
    assert kinds(subject) == [
        Kind.BOOTED, Kind.POWER_CYCLE, Kind.RESET, Kind.REBOOTED, Kind.POWER_OFF,
        Kind.POWER_FAULT, Kind.POWER_ON, Kind.BOOTED, Kind.GUEST_STOPPED,
    ]  # fmt: skip
    last = subject.log.records[-1]
    assert (last.message, last.severity) == (
        "The machine failed: internal error",
        Severity.CRITICAL,
    )


def test_a_guest_that_panics_is_recorded_once() -> None:
    for power in (PowerState.FAILED, PowerState.OFF):
        subject = bmc(PowerState.ON)
        hear(subject, machine(MachineChange.CRASHED, power, "the guest panicked"))
        assert kinds(subject).count(Kind.GUEST_STOPPED) == 1


def test_what_is_found_at_start_up_is_no_event() -> None:
    assert bmc(PowerState.ON).log.records == ()
    away = bmc(PowerState.ON)
    hear(away, machine(MachineChange.UNREACHABLE, PowerState.UNKNOWN))
    hear(away, machine(MachineChange.OBSERVED, PowerState.ON))
    assert away.log.records == ()


def test_the_ring_keeps_the_newest_and_numbers_go_on() -> None:
    log = Log()
    for number in range(CAPACITY + 3):
        log.add(Kind.POWER_ON, float(number))
    assert len(log.records) == CAPACITY
    assert (log.records[0].number, log.records[-1].number) == (4, CAPACITY + 3)
    assert log.overflowed
    again = Log(log.records)
    assert again.next_id == CAPACITY + 4


def test_record_ids_stay_within_the_standards_range() -> None:
    log = Log()
    log.add(Kind.POWER_ON, 0.0)
    near = Log([log.records[0].__class__(LAST_RECORD_ID, 0.0, Kind.POWER_ON)])
    assert near.records[0].id == LAST_RECORD_ID
    assert near.next_id == 1


def test_a_record_is_found_by_id_and_at_both_ends() -> None:
    log = Log()
    for number in range(3):
        log.add(Kind.POWER_ON, float(number))
    assert [log.find(each) for each in (0, 1, 3, 0xFFFF, 9)] == [0, 0, 2, 2, None]
    assert Log().find(0) is None


def test_a_client_adds_a_record_and_the_bmc_stamps_it() -> None:
    subject = bmc()
    raw = bytes.fromhex("0000 02 00000000 4100 04 01 30 01 55 66 77")
    hear(subject, LogAddRequested(raw, 1), 9.0)
    kept = encode(subject.log.records[0])
    assert kept == bytes.fromhex("0100 02") + struct.pack("<I", 1_000_009) + raw[7:]
    untimed = b"\0\0\xe1" + bytes(range(13))
    hear(subject, LogAddRequested(untimed, 2))
    assert encode(subject.log.records[1])[2:] == untimed[2:]


def test_erasing_takes_one_record_or_all() -> None:
    subject = bmc()
    for _ in range(3):
        subject.log.add(Kind.POWER_ON, 0.0)
    assert Erase(2) in hear(subject, LogEraseRequested(2, 1))
    assert [each.number for each in subject.log.records] == [1, 3]
    assert Erase(None) in hear(subject, LogEraseRequested(None, 2), 3.0)
    assert subject.log.records == ()
    assert subject.log.erased_at == 1_000_003.0
    assert subject.log.next_id == 4


def test_the_logs_clock_is_ones_own() -> None:
    subject = bmc()
    hear(subject, SettingsRequested(Settings(clock_offset=-500.0), 1))
    hear(subject, machine(MachineChange.STARTED, PowerState.ON), 2.0)
    assert subject.log.records[0].at == 1_000_002.0 - 500.0


def test_every_kind_has_a_meaning_that_names_its_sensor() -> None:
    assert set(MEANINGS) == set(Kind) - {Kind.ADDED}
    for meaning in MEANINGS.values():
        assert BY_NUMBER[meaning.sensor].type == meaning.type


@given(st.sampled_from(sorted(MEANINGS)), st.floats(0, 2**32 - 1), st.text(max_size=20))
def test_every_record_is_sixteen_bytes(kind: Kind, at: float, text: str) -> None:
    log = Log()
    raw = encode(log.add(kind, at, text=text))
    assert len(raw) == 16
    assert struct.unpack_from("<HBI", raw) == (1, 0x02, int(at))
    assert raw[10:12] == bytes([MEANINGS[kind].type, MEANINGS[kind].sensor])


def drives(effects: list[Effect]) -> list[PowerCommand]:
    return [each.command for each in effects if isinstance(each, Drive)]


def after_ac(policy: PowerPolicy, power: PowerState) -> list[PowerCommand]:
    subject = bmc(power, Runtime(settings=Settings(policy=policy)))
    if power is PowerState.ON:
        assert drives(hear(subject, AcLost())) == [OFF]
        hear(subject, machine(MachineChange.STOPPED, PowerState.OFF))
        hear(subject, CommandEnded(Verdict.DONE))
    else:
        assert drives(hear(subject, AcLost())) == []
    assert not subject.has_power
    return drives(hear(subject, AcReturned()))


def test_the_restore_policy_decides_when_ac_returns() -> None:
    assert after_ac(PowerPolicy.ALWAYS_ON, PowerState.OFF) == [ON]
    assert after_ac(PowerPolicy.ALWAYS_ON, PowerState.ON) == [ON]
    assert after_ac(PowerPolicy.PREVIOUS, PowerState.ON) == [ON]
    assert after_ac(PowerPolicy.PREVIOUS, PowerState.OFF) == []
    assert after_ac(PowerPolicy.ALWAYS_OFF, PowerState.ON) == []


def test_ac_lost_during_a_command_switches_off_once_that_ended() -> None:
    subject = bmc()
    hear(subject, PowerRequested(ON, 1))
    assert drives(hear(subject, AcLost())) == []
    hear(subject, machine(MachineChange.STARTED, PowerState.ON))
    assert drives(hear(subject, CommandEnded(Verdict.DONE))) == [OFF]
    assert subject.runtime.was_on


def test_ac_that_returns_while_the_machine_goes_off_starts_it_afterwards() -> None:
    subject = bmc(PowerState.ON)
    hear(subject, AcLost())
    assert drives(hear(subject, AcReturned())) == []
    hear(subject, machine(MachineChange.STOPPED, PowerState.OFF))
    assert drives(hear(subject, CommandEnded(Verdict.DONE))) == [ON]
    hear(subject, CommandEnded(Verdict.DONE))
    assert subject.runtime.restart_cause == 0x07
    assert kinds(subject)[:2] == [Kind.AC_LOST, Kind.AC_RETURNED]


def test_without_ac_no_command_is_taken() -> None:
    subject = bmc()
    hear(subject, AcLost())
    [answer] = hear(subject, PowerRequested(ON, 1))
    assert getattr(answer, "verdict", None) is Verdict.WRONG_STATE
    assert hear(subject, AcLost(7)) == [Answer(7, Verdict.DONE)]
