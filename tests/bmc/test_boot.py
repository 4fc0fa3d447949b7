"""The boot override of the pure aggregate: who is told what, and when Once is used up."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from nospoon.bmc.aggregate import Bmc
from nospoon.bmc.boot import FLAGS_TIMEOUT
from nospoon.bmc.messages import (
    Answer,
    Append,
    BootObserved,
    BootOrderRequested,
    BootTold,
    ClearingRequested,
    CommandEnded,
    Drive,
    Effect,
    Event,
    HttpBootUriRequested,
    MachineReported,
    OverrideRequested,
    Persist,
    PowerRequested,
    Reshaped,
    SetBoot,
    Verdict,
)
from nospoon.bmc.runtime import Runtime
from nospoon.model.boot import (
    NO_OVERRIDE,
    BootDevice,
    BootOverride,
    BootPlan,
    OverrideEnabled,
    next_boot,
)
from nospoon.model.machine import MachineChange, MachineEvent, Outcome, PowerCommand, PowerState

NETWORK, DISK = BootDevice.NETWORK, BootDevice.DISK
ORDER = (DISK, NETWORK)
PERSISTENT = BootPlan(ORDER, ORDER)
ONCE = BootOverride(NETWORK, OverrideEnabled.ONCE)
ALWAYS = BootOverride(NETWORK, OverrideEnabled.CONTINUOUS)
ONCE_PLAN = BootPlan((NETWORK, DISK), ORDER)
FLAGS = bytes([0x80, 0x04, 0, 0, 0])


def machine(change: MachineChange, power: PowerState = PowerState.ON) -> MachineReported:
    return MachineReported(MachineEvent(UUID(int=1), change, power))


STARTED, RESET = machine(MachineChange.STARTED), machine(MachineChange.RESET)
SEEN_ON = machine(MachineChange.OBSERVED)


def hear(subject: Bmc, event: Event, now: float = 0.0) -> list[Effect]:
    """Its effects but the log's, which has tests of its own."""
    return [each for each in subject.receive(event, now) if not isinstance(each, Append)]


def bmc(
    power: PowerState = PowerState.OFF, *, script: bool = False, runtime: Runtime | None = None
) -> Bmc:
    subject = Bmc(order=ORDER, script=script, runtime=runtime)
    hear(subject, machine(MachineChange.OBSERVED, power))
    return subject


def told(subject: Bmc, override: BootOverride) -> None:
    """Set an override on a running machine, and tell the machine."""
    [setting] = [e for e in hear(subject, OverrideRequested(override, 1)) if isinstance(e, SetBoot)]
    hear(subject, BootTold(setting.edition))


def test_an_override_is_persisted_before_it_is_acknowledged() -> None:
    subject = bmc()
    assert hear(subject, OverrideRequested(ONCE, 1)) == [
        Persist(Runtime(override=ONCE)),
        Answer(1, Verdict.DONE),
    ]


def test_a_running_machine_is_told_of_an_override() -> None:
    subject = bmc(PowerState.ON)
    effects = hear(subject, OverrideRequested(ONCE, 1))
    assert effects == [
        Persist(Runtime(override=ONCE, on=True)),
        SetBoot(ONCE_PLAN, 1),
        Answer(1, Verdict.DONE),
    ]


def test_a_command_carries_the_plan_and_the_boot_uses_up_once() -> None:
    subject = bmc()
    hear(subject, OverrideRequested(ONCE, 1))
    assert hear(subject, PowerRequested(PowerCommand.ON, 2)) == [Drive(PowerCommand.ON, ONCE_PLAN)]
    assert hear(subject, STARTED) == [Persist(Runtime())]
    assert hear(subject, RESET)[:1] == [Persist(Runtime(restart_cause=0x0A))]
    assert subject.runtime.override == NO_OVERRIDE


def test_once_is_used_up_when_the_outcome_comes_before_the_event() -> None:
    subject = bmc()
    hear(subject, OverrideRequested(ONCE, 1))
    hear(subject, PowerRequested(PowerCommand.ON, 2))
    hear(subject, CommandEnded(Verdict.DONE), 1.0)
    assert subject.runtime.override == NO_OVERRIDE


def test_an_event_that_comes_late_does_not_use_up_a_newer_once() -> None:
    subject = bmc()
    hear(subject, OverrideRequested(ONCE, 1))
    hear(subject, PowerRequested(PowerCommand.ON, 2))
    hear(subject, CommandEnded(Verdict.DONE), 1.0)
    told(subject, ONCE)
    hear(subject, STARTED, 1.1)
    assert subject.runtime.override == ONCE


def test_once_set_while_a_command_is_under_way_is_kept_for_the_boot_after() -> None:
    subject = bmc()
    hear(subject, PowerRequested(PowerCommand.ON, 1))
    effects = hear(subject, OverrideRequested(ONCE, 2))
    assert SetBoot(ONCE_PLAN, 1) in effects
    hear(subject, STARTED)
    hear(subject, CommandEnded(Verdict.DONE))
    assert subject.runtime.override == ONCE
    hear(subject, BootTold(1))
    hear(subject, RESET)
    assert subject.runtime.override == NO_OVERRIDE


def test_the_same_once_set_again_is_a_new_one() -> None:
    subject = bmc()
    hear(subject, OverrideRequested(ONCE, 1))
    hear(subject, PowerRequested(PowerCommand.ON, 2))
    hear(subject, OverrideRequested(ONCE, 3))
    hear(subject, STARTED)
    assert subject.runtime.override == ONCE


def test_a_guest_that_resets_itself_uses_up_once_and_the_machine_is_told() -> None:
    subject = bmc(PowerState.ON)
    told(subject, ONCE)
    effects = hear(subject, RESET)
    assert effects[-1] == SetBoot(PERSISTENT, 2)
    assert subject.runtime.override == NO_OVERRIDE
    hear(subject, BootTold(2))
    assert not [e for e in hear(subject, RESET) if isinstance(e, SetBoot)]


def test_a_reset_before_the_machine_was_told_leaves_once() -> None:
    subject = bmc(PowerState.ON)
    hear(subject, OverrideRequested(ONCE, 1))
    effects = hear(subject, RESET)
    assert subject.runtime.override == ONCE
    assert effects[-1] == SetBoot(ONCE_PLAN, 1)


def test_a_machine_that_could_not_be_told_is_told_when_it_is_seen_again() -> None:
    subject = bmc(PowerState.ON)
    hear(subject, OverrideRequested(ONCE, 1))
    hear(subject, machine(MachineChange.UNREACHABLE, PowerState.UNKNOWN))
    assert hear(subject, SEEN_ON) == [SetBoot(ONCE_PLAN, 1)]
    hear(subject, BootTold(1))
    assert hear(subject, SEEN_ON) == []


def test_after_a_restart_of_the_daemon_a_running_machine_is_told_again() -> None:
    subject = Bmc(order=ORDER, script=False, runtime=Runtime(override=ONCE, on=True))
    assert hear(subject, SEEN_ON) == [SetBoot(ONCE_PLAN, 0)]


def finished(now: BootPlan) -> MachineReported:
    event = MachineEvent(UUID(int=1), MachineChange.STARTED, PowerState.ON, told=now)
    return MachineReported(event)


def test_a_start_that_a_dead_daemon_began_uses_up_the_once_that_it_followed() -> None:
    subject = Bmc(order=ORDER, script=False, runtime=Runtime(override=ONCE))
    hear(subject, SEEN_ON)
    effects = hear(subject, finished(ONCE_PLAN))
    assert subject.runtime.override == NO_OVERRIDE
    assert effects[-1] == SetBoot(PERSISTENT, 1), "the next reset follows the order"


def test_a_start_that_followed_something_else_leaves_once() -> None:
    subject = Bmc(order=ORDER, script=False, runtime=Runtime(override=ONCE))
    hear(subject, SEEN_ON)
    hear(subject, finished(PERSISTENT))
    assert subject.runtime.override == ONCE


def test_a_persistent_override_is_not_used_up() -> None:
    subject = bmc()
    hear(subject, OverrideRequested(ALWAYS, 1))
    hear(subject, PowerRequested(PowerCommand.ON, 2))
    hear(subject, STARTED)
    hear(subject, CommandEnded(Verdict.DONE))
    hear(subject, RESET)
    assert subject.runtime.override == ALWAYS


def test_a_machine_that_boots_by_script_uses_up_once_when_it_asks() -> None:
    subject = bmc(script=True)
    hear(subject, OverrideRequested(ONCE, 1))
    hear(subject, PowerRequested(PowerCommand.ON, 2))
    hear(subject, STARTED)
    hear(subject, CommandEnded(Verdict.DONE))
    assert subject.runtime.override == ONCE
    assert hear(subject, BootObserved()) == [Persist(subject.runtime)]
    assert subject.runtime.override == NO_OVERRIDE


def test_a_machine_that_starts_its_disk_without_asking_uses_up_once_when_it_started() -> None:
    subject = Bmc(order=(NETWORK, DISK), script=True, starts_disk=True)
    hear(subject, machine(MachineChange.OBSERVED, PowerState.OFF))
    disk = BootOverride(DISK, OverrideEnabled.ONCE)
    hear(subject, OverrideRequested(disk, 1))
    hear(subject, PowerRequested(PowerCommand.ON, 2))
    hear(subject, STARTED)
    assert subject.runtime.override == NO_OVERRIDE
    hear(subject, CommandEnded(Verdict.DONE))
    hear(subject, OverrideRequested(ONCE, 3))
    hear(subject, PowerRequested(PowerCommand.CYCLE, 4))
    hear(subject, RESET)
    hear(subject, CommandEnded(Verdict.DONE))
    assert subject.runtime.override == ONCE, "it asks for anything else"
    hear(subject, BootObserved())
    assert subject.runtime.override == NO_OVERRIDE


def test_ipmi_flags_are_cleared_after_a_minute_without_a_command() -> None:
    subject = bmc()
    hear(subject, OverrideRequested(ONCE, 1, FLAGS), 0.0)
    assert subject.deadline == FLAGS_TIMEOUT
    hear(subject, PowerRequested(PowerCommand.OFF, 2), 50.0)
    hear(subject, CommandEnded(Verdict.DONE, outcome=Outcome.UNCHANGED), 50.0)
    assert subject.deadline == 50.0 + FLAGS_TIMEOUT
    assert list(subject.expire(110.0)) == [Persist(Runtime())]


def test_ipmi_flags_outlast_a_command_that_takes_longer() -> None:
    subject = bmc()
    hear(subject, OverrideRequested(ONCE, 1, FLAGS), 0.0)
    hear(subject, PowerRequested(PowerCommand.ON, 2), 1.0)
    for now in (61.0, 121.0, 181.0):
        list(subject.expire(now))
        assert subject.runtime.override == ONCE
    hear(subject, CommandEnded(Verdict.FAILED, "why"), 200.0)
    assert subject.deadline == 181.0 + FLAGS_TIMEOUT
    list(subject.expire(181.0 + FLAGS_TIMEOUT))
    assert subject.runtime.override == NO_OVERRIDE


def test_ipmi_flags_outlast_the_start_of_a_machine_that_asks_later() -> None:
    subject = bmc(script=True)
    hear(subject, OverrideRequested(ONCE, 1, FLAGS), 0.0)
    hear(subject, PowerRequested(PowerCommand.ON, 2), 1.0)
    hear(subject, STARTED, 20.0)
    hear(subject, CommandEnded(Verdict.DONE), 21.0)
    list(subject.expire(300.0))
    assert subject.runtime.override == ONCE
    hear(subject, BootObserved(), 301.0)
    assert subject.runtime.override == NO_OVERRIDE


def test_ipmi_flags_of_before_a_restart_have_their_minute_anew() -> None:
    runtime = Runtime(override=ONCE, boot_flags=FLAGS)
    subject = bmc(runtime=runtime)
    hear(subject, Reshaped(ORDER, script=False), 7.0)
    assert subject.deadline == 7.0 + FLAGS_TIMEOUT
    hear(subject, Reshaped(ORDER, script=False), 30.0)
    assert subject.deadline == 7.0 + FLAGS_TIMEOUT, "an `up` gives them no more time"
    for kept in (replace(runtime, clearing=0x08), replace(runtime, boot_flags=b"")):
        other = bmc(runtime=kept)
        hear(other, Reshaped(ORDER, script=False), 7.0)
        assert other.deadline is None


def test_ipmi_flags_stay_when_parameter_3_says_so_or_when_they_are_persistent() -> None:
    subject = bmc()
    hear(subject, ClearingRequested(0x08, 1))
    hear(subject, OverrideRequested(ONCE, 2, FLAGS))
    assert subject.deadline is None
    other = bmc()
    hear(other, OverrideRequested(ALWAYS, 1, bytes([0xC0, 0x04, 0, 0, 0])))
    assert other.deadline is None


def test_an_override_from_redfish_has_no_timeout() -> None:
    subject = bmc()
    hear(subject, OverrideRequested(ONCE, 1))
    assert subject.deadline is None


_EVENTS = st.one_of(
    st.builds(PowerRequested, st.sampled_from(PowerCommand), st.integers(1, 9), st.booleans()),
    st.builds(OverrideRequested, st.sampled_from([ONCE, ALWAYS, NO_OVERRIDE]), st.integers(1, 9)),
    st.builds(machine, st.sampled_from(MachineChange), st.sampled_from(PowerState)),
    st.builds(CommandEnded, st.sampled_from([Verdict.DONE, Verdict.FAILED]), st.just("why")),
    st.builds(BootTold, st.integers(0, 5)),
    st.just(BootObserved()),
)


def _numbered(event: Event, ticket: int) -> Event:
    """A request gets a ticket of its own; restart goes with SOFT only."""
    match event:
        case PowerRequested(command=command, restart=restart):
            restart = restart and command is PowerCommand.SOFT
            return PowerRequested(command, ticket, restart=restart)
        case OverrideRequested():
            return replace(event, ticket=ticket)
        case _:
            return event


@given(st.lists(_EVENTS, max_size=30))
def test_every_request_is_answered_once_and_in_time(events: list[Event]) -> None:
    subject, asked, answered = bmc(), [], []
    for number, each in enumerate(events):
        event = _numbered(each, 100 + number)
        if isinstance(event, PowerRequested | OverrideRequested):
            asked.append(event.ticket)
        effects = hear(subject, event, float(number))
        effects += subject.expire(number + 0.25)
        answered += [e.ticket for e in effects if isinstance(e, Answer)]
    assert sorted(answered) == asked


@given(st.lists(_EVENTS, max_size=30))
def test_the_plan_always_follows_from_order_and_override(events: list[Event]) -> None:
    subject = bmc()
    for event in events:
        for effect in hear(subject, event):
            if isinstance(effect, Drive):
                assert effect.boot == next_boot(ORDER, subject.runtime.override)


HTTP_ONCE = BootOverride(BootDevice.HTTP, OverrideEnabled.ONCE)
URI = "http://h/boot.iso"


def by_http(*, script: bool = False) -> Bmc:
    subject = bmc(script=script)
    hear(subject, HttpBootUriRequested(URI, 1))
    hear(subject, OverrideRequested(HTTP_ONCE, 2))
    return subject


def test_http_boots_from_the_network_and_its_uri_holds_for_the_boot_that_followed() -> None:
    subject = by_http()
    assert subject.boot == ONCE_PLAN
    assert subject.http_boot == ""
    hear(subject, PowerRequested(PowerCommand.ON, 3))
    hear(subject, STARTED)
    hear(subject, CommandEnded(Verdict.DONE))
    assert subject.runtime.override == NO_OVERRIDE
    assert subject.http_boot == URI
    hear(subject, RESET, 60.0)
    assert subject.http_boot == ""
    assert subject.runtime.http_boot_uri == URI


def test_a_machine_that_boots_by_script_asks_for_the_uri_before_its_boot_is_observed() -> None:
    subject = by_http(script=True)
    assert subject.http_boot == URI
    hear(subject, BootObserved())
    assert subject.http_boot == ""


def test_a_machine_that_runs_is_told_of_another_order_and_of_the_same_one_nothing() -> None:
    subject = Bmc(order=ORDER, script=False)
    hear(subject, SEEN_ON)
    assert hear(subject, Reshaped(ORDER, script=False)) == []
    assert hear(subject, Reshaped((NETWORK,), script=False)) == [
        SetBoot(BootPlan((NETWORK,), (NETWORK,)), 1)
    ]


TURNED = (NETWORK, DISK)


def test_a_client_sets_the_persistent_order_and_a_machine_that_runs_is_told() -> None:
    subject = bmc(PowerState.ON)
    assert hear(subject, BootOrderRequested(TURNED, 1)) == [
        Persist(Runtime(boot_order=TURNED, on=True)),
        SetBoot(BootPlan(TURNED, TURNED), 1),
        Answer(1, Verdict.DONE),
    ]
    assert hear(subject, Reshaped(ORDER, script=False)) == [SetBoot(BootPlan(TURNED, TURNED), 1)]
    hear(subject, BootTold(1))
    assert hear(subject, Reshaped(ORDER, script=False)) == [], "the file says what it said"
    assert subject.boot_order == TURNED


def test_a_client_s_order_holds_for_every_start_and_after_once() -> None:
    subject = bmc()
    hear(subject, BootOrderRequested(TURNED, 1))
    hear(subject, OverrideRequested(BootOverride(DISK, OverrideEnabled.ONCE), 2))
    plan = BootPlan(ORDER, TURNED)
    assert hear(subject, PowerRequested(PowerCommand.ON, 3)) == [Drive(PowerCommand.ON, plan)]
    hear(subject, STARTED)
    assert subject.boot == BootPlan(TURNED, TURNED)


def test_a_client_s_order_survives_a_restart_of_ours_and_the_machine_is_told_again() -> None:
    subject = Bmc(order=ORDER, script=False, runtime=Runtime(boot_order=TURNED))
    assert subject.boot == BootPlan(TURNED, TURNED)
    assert SetBoot(BootPlan(TURNED, TURNED), 0) in hear(subject, SEEN_ON)


def test_another_order_of_the_file_goes_before_a_client_s() -> None:
    subject = bmc(runtime=Runtime(boot_order=TURNED))
    assert hear(subject, Reshaped((NETWORK,), script=False)) == [Persist(Runtime())]
    assert subject.boot_order == (NETWORK,)


def test_a_client_who_sets_the_file_s_order_leaves_it_to_the_file() -> None:
    subject = bmc(runtime=Runtime(boot_order=TURNED))
    assert hear(subject, BootOrderRequested(ORDER, 1))[0] == Persist(Runtime())


def test_an_order_of_devices_that_are_not_there_any_more_is_none() -> None:
    subject = Bmc(order=(DISK,), script=False, runtime=Runtime(boot_order=TURNED))
    assert subject.boot == BootPlan((DISK,), (DISK,))


def test_another_order_leaves_once_for_the_next_boot() -> None:
    subject = Bmc(order=ORDER, script=False)
    hear(subject, SEEN_ON)
    hear(subject, OverrideRequested(ONCE, ticket=1))
    (told,) = hear(subject, Reshaped((DISK,), script=False))
    assert isinstance(told, SetBoot)
    assert told.boot == BootPlan((NETWORK, DISK), (DISK,))
