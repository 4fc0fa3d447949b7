"""Power commands of the pure aggregate, as conversations."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from nospoon.bmc.aggregate import Bmc
from nospoon.bmc.faults import Fault, Faults
from nospoon.bmc.faults import Kind as FaultKind
from nospoon.bmc.messages import (
    AcLost,
    AcReturned,
    Answer,
    Append,
    CommandEnded,
    Drive,
    Effect,
    Event,
    FaultsChanged,
    IdentifyRequested,
    MachineReported,
    OverrideRequested,
    Persist,
    PowerRequested,
    Verdict,
    WatchdogRequested,
    WatchdogReset,
)
from nospoon.bmc.power import ANSWER_WITHIN, SHUTDOWN_PATIENCE
from nospoon.bmc.restart_cause import CAUSE_CHASSIS_CONTROL
from nospoon.bmc.runtime import Runtime
from nospoon.bmc.watchdog import WatchdogSettings
from nospoon.model.boot import BootDevice, BootOverride, BootPlan, OverrideEnabled
from nospoon.model.machine import MachineChange, MachineEvent, Outcome, PowerCommand, PowerState

ORDER = (BootDevice.DISK, BootDevice.NETWORK)
PLAN = BootPlan(ORDER, ORDER)
NODE = UUID(int=7)
ONCE = BootOverride(BootDevice.NETWORK, OverrideEnabled.ONCE)
ON, OFF, CYCLE = PowerCommand.ON, PowerCommand.OFF, PowerCommand.CYCLE


def machine(change: MachineChange, power: PowerState, reason: str = "") -> MachineReported:
    return MachineReported(MachineEvent(NODE, change, power, reason))


def bmc(power: PowerState = PowerState.OFF, runtime: Runtime | None = None) -> Bmc:
    made = Bmc(order=ORDER, script=False, runtime=runtime)
    hear(made, machine(MachineChange.OBSERVED, power))
    return made


def hear(subject: Bmc, event: Event, now: float = 0.0) -> list[Effect]:
    """Its effects but the log's, which has tests of its own."""
    return [each for each in subject.receive(event, now) if not isinstance(each, Append)]


def test_power_on_is_driven_and_answered_with_its_outcome() -> None:
    subject = bmc()
    assert hear(subject, PowerRequested(ON, 1)) == [Drive(ON, PLAN)]
    effects = hear(subject, CommandEnded(Verdict.DONE), 0.1)
    assert [type(each) for each in effects] == [Persist, Answer]
    assert effects[-1] == Answer(1, Verdict.DONE)
    assert subject.is_on


def test_a_slow_command_is_accepted_after_a_quarter_of_a_second() -> None:
    subject = bmc()
    hear(subject, PowerRequested(ON, 1), 10.0)
    assert subject.deadline == 10.0 + ANSWER_WITHIN == 10.25
    assert list(subject.expire(10.2)) == []
    assert list(subject.expire(10.25)) == [Answer(1, Verdict.ACCEPTED)]
    assert subject.deadline is None


def test_a_late_failure_is_a_power_fault_until_a_command_succeeds() -> None:
    subject = bmc()
    hear(subject, PowerRequested(ON, 1))
    list(subject.expire(1.0))
    effects = hear(subject, CommandEnded(Verdict.FAILED, "no memory left"), 2.0)
    assert effects == [Persist(subject.runtime)]
    assert (subject.fault, subject.is_on) == ("no memory left", False)
    hear(subject, PowerRequested(ON, 2))
    hear(subject, CommandEnded(Verdict.DONE))
    assert subject.fault == ""


def test_an_early_failure_is_told_with_its_reason() -> None:
    subject = bmc()
    hear(subject, PowerRequested(ON, 1))
    effects = hear(subject, CommandEnded(Verdict.FAILED, "no memory left"))
    assert effects[-1] == Answer(1, Verdict.FAILED, "no memory left")


@pytest.mark.parametrize(
    ("power", "command"),
    [(PowerState.ON, ON), (PowerState.OFF, OFF), (PowerState.OFF, PowerCommand.SOFT)],
)
def test_what_is_so_already_is_asked_of_the_machine_and_changes_nothing(
    power: PowerState, command: PowerCommand
) -> None:
    subject = bmc(power)
    hear(subject, OverrideRequested(ONCE, 9))
    assert hear(subject, PowerRequested(command, 1)) == [
        Drive(command, BootPlan(ORDER[::-1], ORDER), believed=True)
    ]
    before = subject.runtime
    ended = hear(subject, CommandEnded(Verdict.DONE, outcome=Outcome.UNCHANGED))
    assert ended == [Answer(1, Verdict.DONE, outcome=Outcome.UNCHANGED)]
    assert subject.runtime == before, "no boot followed, so the override is still there"


def test_a_machine_that_continues_boots_nothing_and_its_client_learns_it() -> None:
    subject = bmc(PowerState.OFF)
    hear(subject, OverrideRequested(ONCE, 9))
    hear(subject, PowerRequested(ON, 1))
    ended = hear(subject, CommandEnded(Verdict.DONE, outcome=Outcome.CONTINUED))
    assert ended[-1] == Answer(1, Verdict.DONE, outcome=Outcome.CONTINUED)
    assert subject.is_on
    assert subject.runtime.override == ONCE


def test_what_others_did_is_found_out_by_a_command() -> None:
    """It was switched on by others; that is no boot which the BMC caused."""
    subject = bmc(PowerState.OFF)
    hear(subject, OverrideRequested(ONCE, 9))
    hear(subject, PowerRequested(ON, 1))
    hear(subject, CommandEnded(Verdict.DONE, outcome=Outcome.UNCHANGED))
    assert subject.is_on
    assert subject.runtime.override == ONCE
    assert subject.runtime.restart_cause != CAUSE_CHASSIS_CONTROL
    hear(subject, PowerRequested(OFF, 2))
    hear(subject, machine(MachineChange.STOPPED, PowerState.OFF))
    hear(subject, CommandEnded(Verdict.DONE, outcome=Outcome.UNCHANGED))
    assert not subject.is_on


@pytest.mark.parametrize("command", [OFF, PowerCommand.SOFT])
def test_a_machine_that_others_switched_off_is_seen_to_be_off_by_a_command(
    command: PowerCommand,
) -> None:
    subject = bmc(PowerState.ON)
    hear(subject, PowerRequested(command, 1))
    ended = hear(subject, CommandEnded(Verdict.DONE, outcome=Outcome.UNCHANGED))
    assert ended[-1] == Answer(1, Verdict.DONE, outcome=Outcome.UNCHANGED)
    assert not subject.is_on
    assert not subject.runtime.on


def test_reset_cycle_and_diag_need_a_running_machine() -> None:
    for command in (PowerCommand.RESET, CYCLE, PowerCommand.DIAG):
        [answer] = hear(bmc(), PowerRequested(command, 1))
        assert isinstance(answer, Answer)
        assert answer.verdict is Verdict.WRONG_STATE


def test_the_same_command_joins_and_one_for_the_guest_finds_the_bmc_busy() -> None:
    subject = bmc()
    hear(subject, PowerRequested(ON, 1), 0.0)
    for command in (PowerCommand.RESET, PowerCommand.SOFT, PowerCommand.DIAG):
        assert hear(subject, PowerRequested(command, 2), 0.1) == [
            Answer(2, Verdict.BUSY, "on is under way")
        ]
    assert hear(subject, PowerRequested(ON, 3), 0.2) == []
    assert list(subject.expire(0.25)) == [Answer(1, Verdict.ACCEPTED)]
    assert hear(subject, CommandEnded(Verdict.DONE), 0.3)[-1] == Answer(3, Verdict.DONE)


@pytest.mark.parametrize("command", [ON, CYCLE])
def test_a_machine_that_is_being_switched_off_goes_on_afterwards_when_told_to(
    command: PowerCommand,
) -> None:
    subject = bmc(PowerState.ON)
    hear(subject, PowerRequested(OFF, 1))
    assert hear(subject, PowerRequested(command, 2)) == [Answer(2, Verdict.ACCEPTED)]
    assert list(subject.power_commands) == [OFF, command]
    effects = hear(subject, CommandEnded(Verdict.DONE))
    assert Answer(1, Verdict.DONE) in effects
    assert effects[-1] == Drive(ON, PLAN)
    assert list(subject.power_commands) == [ON]
    hear(subject, CommandEnded(Verdict.DONE))
    assert subject.is_on
    assert not subject.power_commands


def test_of_commands_that_follow_one_under_way_the_last_is_carried_out() -> None:
    subject = bmc()
    hear(subject, PowerRequested(ON, 1))
    for ticket, command in enumerate((OFF, CYCLE, OFF), 2):
        assert hear(subject, PowerRequested(command, ticket)) == [Answer(ticket, Verdict.ACCEPTED)]
    assert hear(subject, CommandEnded(Verdict.DONE))[-1] == Drive(OFF, PLAN)
    hear(subject, PowerRequested(ON, 5))
    hear(subject, PowerRequested(OFF, 6))  # joins the one under way: nothing follows it
    effects = hear(subject, CommandEnded(Verdict.DONE))
    assert not [each for each in effects if isinstance(each, Drive)]
    assert not subject.is_on


def test_a_command_that_follows_a_failed_one_is_carried_out_and_fails_as_a_power_fault() -> None:
    subject = bmc(PowerState.ON)
    hear(subject, PowerRequested(OFF, 1))
    hear(subject, PowerRequested(CYCLE, 2))
    assert hear(subject, CommandEnded(Verdict.FAILED, "stuck"))[-1] == Drive(CYCLE, PLAN)
    hear(subject, CommandEnded(Verdict.FAILED, "still stuck"))
    assert subject.fault == "still stuck"


@pytest.mark.parametrize("under_way", [PowerCommand.RESET, PowerCommand.CYCLE])
def test_a_machine_that_is_off_in_the_middle_of_a_restart_is_cycled_after_it(
    under_way: PowerCommand,
) -> None:
    """Volumes of a client come with the second start: the first one began without them."""
    subject = bmc(PowerState.ON)
    hear(subject, PowerRequested(under_way, 1))
    hear(subject, machine(MachineChange.STOPPED, PowerState.OFF))
    hear(subject, PowerRequested(CYCLE, 2, turns_on=True))
    hear(subject, machine(MachineChange.STARTED, PowerState.ON))
    effects = hear(subject, CommandEnded(Verdict.DONE))
    driven = [each.command for each in effects if isinstance(each, Drive)]
    assert driven == ([CYCLE] if under_way is PowerCommand.RESET else [])


def test_a_machine_that_is_being_switched_off_is_switched_on_by_a_restart() -> None:
    subject = bmc(PowerState.ON)
    hear(subject, PowerRequested(OFF, 1))
    hear(subject, PowerRequested(PowerCommand.RESET, 2, turns_on=True))
    assert hear(subject, CommandEnded(Verdict.DONE))[-1] == Drive(ON, PLAN)


def test_off_during_a_graceful_restart_leaves_the_machine_off() -> None:
    subject = bmc(PowerState.ON)
    hear(subject, PowerRequested(PowerCommand.SOFT, 1, restart=True))
    hear(subject, PowerRequested(OFF, 2))
    assert hear(subject, CommandEnded(Verdict.DONE))[-1] == Drive(OFF, PLAN)
    effects = hear(subject, CommandEnded(Verdict.DONE))
    assert not [each for each in effects if isinstance(each, Drive)]


def test_a_machine_that_is_gone_or_out_of_reach_is_refused_at_once() -> None:
    gone = bmc()
    hear(gone, machine(MachineChange.UNDEFINED, PowerState.ABSENT))
    away = bmc()
    hear(away, machine(MachineChange.UNREACHABLE, PowerState.UNKNOWN))
    verdicts = [hear(each, PowerRequested(ON, 1)) for each in (gone, away)]
    assert [each.verdict for [each] in verdicts if isinstance(each, Answer)] == [
        Verdict.GONE,
        Verdict.UNREACHABLE,
    ]


def test_a_host_that_came_back_is_used_again() -> None:
    subject = bmc()
    hear(subject, machine(MachineChange.UNREACHABLE, PowerState.UNKNOWN))
    hear(subject, machine(MachineChange.OBSERVED, PowerState.OFF))
    assert hear(subject, PowerRequested(ON, 1)) == [Drive(ON, PLAN)]


def test_a_failed_machine_has_a_fault_and_is_started_anew() -> None:
    subject = bmc()
    hear(subject, machine(MachineChange.FAILED, PowerState.FAILED, "internal error"))
    assert (subject.fault, subject.is_on) == ("internal error", True)
    assert hear(subject, PowerRequested(ON, 1)) == [Drive(CYCLE, PLAN)]


def test_a_failure_seen_before_the_outcome_is_not_forgotten() -> None:
    subject = bmc()
    hear(subject, PowerRequested(ON, 1))
    hear(subject, machine(MachineChange.STARTED, PowerState.ON))
    hear(subject, machine(MachineChange.FAILED, PowerState.FAILED, "internal error"))
    hear(subject, CommandEnded(Verdict.DONE))
    assert subject.fault == "internal error"


def test_who_caused_the_last_boot_is_remembered() -> None:
    subject = bmc()
    hear(subject, PowerRequested(ON, 1))
    hear(subject, CommandEnded(Verdict.DONE), 1.0)
    hear(subject, machine(MachineChange.STARTED, PowerState.ON), 1.1)
    assert (subject.runtime.restart_cause, subject.runtime.last_power_event) == (0x01, 0x10)
    hear(subject, machine(MachineChange.RESET, PowerState.ON), 1.2)
    assert subject.runtime.restart_cause == 0x0A


def test_a_graceful_restart_waits_for_the_guest() -> None:
    subject = bmc(PowerState.ON)
    soft = PowerRequested(PowerCommand.SOFT, 1, restart=True)
    assert hear(subject, soft) == [Drive(PowerCommand.SOFT, PLAN)]
    assert hear(subject, CommandEnded(Verdict.DONE))[-1] == Answer(1, Verdict.DONE)
    assert hear(subject, machine(MachineChange.SHUTDOWN, PowerState.OFF), 9.0) == [Drive(ON, PLAN)]
    hear(subject, CommandEnded(Verdict.DONE))
    assert subject.is_on
    assert subject.deadline is None


def test_a_guest_that_does_not_shut_down_is_a_fault() -> None:
    subject = bmc(PowerState.ON)
    hear(subject, PowerRequested(PowerCommand.SOFT, 1, restart=True))
    hear(subject, CommandEnded(Verdict.DONE))
    assert subject.deadline == SHUTDOWN_PATIENCE
    list(subject.expire(SHUTDOWN_PATIENCE))
    assert "did not shut down" in subject.fault


def test_off_after_a_graceful_restart_stays_off() -> None:
    subject = bmc(PowerState.ON)
    hear(subject, PowerRequested(PowerCommand.SOFT, 1, restart=True))
    hear(subject, CommandEnded(Verdict.DONE))
    hear(subject, PowerRequested(OFF, 2))
    hear(subject, machine(MachineChange.STOPPED, PowerState.OFF))
    assert hear(subject, CommandEnded(Verdict.DONE))[-1] == Answer(2, Verdict.DONE)
    assert not subject.is_on


def test_the_identify_light_goes_out_by_itself_or_stays() -> None:
    subject = bmc()
    hear(subject, IdentifyRequested(lit=True, ticket=1, seconds=15), 0.0)
    assert subject.identify
    list(subject.expire(15.0))
    assert subject.deadline is None
    assert bool(subject.identify) is False
    hear(subject, IdentifyRequested(lit=True, ticket=2), 20.0)
    assert subject.deadline is None
    assert subject.runtime.identify


LIES = Fault(FaultKind.POWER_LIES)


def lying(power: PowerState = PowerState.OFF, fault: Fault = LIES) -> Bmc:
    """A BMC that has just lied."""
    subject = bmc(power)
    subject.state.faults = Faults()
    subject.state.faults.put(fault)
    hear(subject, PowerRequested(ON if power is PowerState.OFF else OFF, 1))
    hear(subject, CommandEnded(Verdict.DONE, lied=True))
    return subject


def is_on(subject: Bmc) -> bool:
    return subject.is_on


def deadline(subject: Bmc) -> float | None:
    return subject.deadline


def test_a_lie_is_believed_until_the_fault_is_cleared() -> None:
    subject = lying()
    assert is_on(subject)
    assert hear(subject, PowerRequested(ON, 2)) == [
        Answer(2, Verdict.DONE, outcome=Outcome.UNCHANGED)
    ]
    subject.state.faults = None
    assert hear(subject, FaultsChanged()) == []
    assert not is_on(subject)
    assert hear(subject, PowerRequested(ON, 3)) == [Drive(ON, PLAN)]


def test_a_lie_is_found_out_when_its_fault_runs_out() -> None:
    subject = lying(fault=replace(LIES, until=9.0))
    assert deadline(subject) == 9.0
    list(subject.expire(9.0))
    assert (is_on(subject), deadline(subject)) == (False, None)


def test_the_last_lie_of_a_count_is_found_out_when_it_was_told() -> None:
    subject = bmc()
    subject.state.faults = Faults()
    hear(subject, PowerRequested(ON, 1))
    assert hear(subject, CommandEnded(Verdict.DONE, lied=True)) == [Answer(1, Verdict.DONE)]
    assert not is_on(subject)


def test_what_the_machine_reports_goes_before_a_lie() -> None:
    subject = lying(PowerState.ON)
    assert not is_on(subject)
    hear(subject, machine(MachineChange.RESET, PowerState.ON))
    assert is_on(subject)
    subject.state.faults = None
    hear(subject, FaultsChanged())
    assert is_on(subject)


def test_no_boot_follows_from_a_lie() -> None:
    once = BootOverride(BootDevice.NETWORK, OverrideEnabled.ONCE)
    subject = bmc(runtime=Runtime(override=once, power_fault="before"))
    hear(subject, PowerRequested(ON, 1))
    hear(subject, CommandEnded(Verdict.DONE, lied=True))
    assert subject.runtime == Runtime(override=once)


def test_an_outlet_that_is_off_takes_the_power_from_a_machine_that_was_said_to_be_off() -> None:
    subject = lying(PowerState.ON)
    effects = hear(subject, AcLost())
    assert [each.command for each in effects if isinstance(each, Drive)] == [OFF]
    assert subject.runtime.was_on


def last_event(subject: Bmc) -> int:
    """Byte 3 of Get Chassis Status: 10h on by command, 01h AC failed (IPMI 2.0, table 28-3)."""
    return subject.runtime.last_power_event


def carried_out(subject: Bmc, command: PowerCommand) -> Bmc:
    hear(subject, PowerRequested(command, 1))
    hear(subject, CommandEnded(Verdict.DONE))
    return subject


def test_a_loss_of_ac_power_stays_the_last_event_when_the_machine_is_seen_off() -> None:
    subject = carried_out(bmc(), ON)
    hear(subject, AcLost())
    hear(subject, CommandEnded(Verdict.DONE))
    assert last_event(subject) == 0x11
    hear(subject, machine(MachineChange.STOPPED, PowerState.OFF))
    hear(subject, machine(MachineChange.OBSERVED, PowerState.OFF))
    assert last_event(subject) == 0x11


def test_a_machine_that_comes_up_with_ac_power_was_not_switched_on_by_a_command() -> None:
    subject = carried_out(bmc(), ON)
    hear(subject, AcLost())
    hear(subject, AcReturned())
    hear(subject, CommandEnded(Verdict.DONE))
    assert last_event(subject) == 0x11, "it is off for want of AC power, which is back already"
    hear(subject, CommandEnded(Verdict.DONE))
    assert (is_on(subject), last_event(subject)) == (True, 0x01)
    assert last_event(carried_out(subject, OFF)) == 0x00


def test_a_watchdogs_cycle_is_no_command_and_its_power_off_no_failure() -> None:
    for action, wanted in ((3, 0x00), (2, 0x10), (1, 0x10)):
        subject = carried_out(bmc(), ON)
        hear(subject, WatchdogRequested(WatchdogSettings(use=4, action=action, countdown=10)))
        hear(subject, WatchdogReset())
        assert any(isinstance(each, Drive) for each in subject.expire(1.0))
        hear(subject, CommandEnded(Verdict.DONE))
        assert last_event(subject) == wanted


def test_a_command_that_fails_and_a_reset_are_no_power_events() -> None:
    subject = carried_out(bmc(), ON)
    hear(subject, PowerRequested(OFF, 1))
    hear(subject, CommandEnded(Verdict.FAILED, "no"))
    assert last_event(subject) == 0x10
    assert last_event(carried_out(bmc(PowerState.ON), PowerCommand.RESET)) == 0x00


def test_a_machine_that_others_start_or_stop_has_neither_bit() -> None:
    subject = carried_out(bmc(), ON)
    hear(subject, machine(MachineChange.SHUTDOWN, PowerState.OFF), 60.0)
    assert last_event(subject) == 0x10
    hear(subject, machine(MachineChange.STARTED, PowerState.ON), 61.0)
    assert (last_event(subject), subject.runtime.restart_cause) == (0x00, 0x00)


def test_a_machine_that_runs_without_ac_power_is_driven_off_when_it_is_seen() -> None:
    subject = bmc(PowerState.ON)
    hear(subject, AcLost())
    hear(subject, CommandEnded(Verdict.UNREACHABLE, "no route"))
    effects = hear(subject, machine(MachineChange.OBSERVED, PowerState.ON))
    assert effects == [Drive(OFF, PLAN, unplugs=True)]
