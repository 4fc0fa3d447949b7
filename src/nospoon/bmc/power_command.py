"""A power command: what it means for a machine as it is, and whether it may be given now."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nospoon.bmc.messages import Answer, PowerRequested, Verdict
from nospoon.bmc.restart_cause import CAUSE_CHASSIS_CONTROL, CAUSE_UNKNOWN
from nospoon.bmc.state import RUNNING, STOPPED, State
from nospoon.model.boot import BootPlan
from nospoon.model.machine import PowerCommand, PowerState

NEEDS_RUNNING = frozenset({PowerCommand.RESET, PowerCommand.CYCLE, PowerCommand.DIAG})
BOOTING = frozenset({PowerCommand.ON, PowerCommand.CYCLE, PowerCommand.RESET})
FOLLOWING = frozenset({PowerCommand.ON, PowerCommand.OFF, PowerCommand.CYCLE})
STOPS = frozenset({PowerCommand.OFF, PowerCommand.SOFT})
LEADS_TO = {
    PowerCommand.ON: PowerState.ON,
    PowerCommand.CYCLE: PowerState.ON,
    PowerCommand.RESET: PowerState.ON,
    PowerCommand.OFF: PowerState.OFF,
}


@dataclass(slots=True)
class Pending:
    """A command under way: who still waits for an answer, and until when.

    `edition`: of the override with which it was driven; `plan`: what it was given to boot;
    `before`: the power as it was seen then.
    `booted`: the boot that it causes was seen. `reported`: the machine told its power since, so
    that the outcome need not be inferred.
    """

    command: PowerCommand
    edition: int
    waiting: dict[int, float]
    cause: int
    plan: BootPlan
    before: PowerState
    booted: bool = False
    reported: bool = False

    @property
    def switches_on(self) -> bool:
        """Someone's command makes the machine go on."""
        by_command = self.cause == CAUSE_CHASSIS_CONTROL
        return by_command and self.command in {PowerCommand.ON, PowerCommand.CYCLE}

    @property
    def unplugs(self) -> bool:
        """It is off because AC power was lost; that may be back when it ends."""
        return self.command is PowerCommand.OFF and self.cause == CAUSE_UNKNOWN


def meant(event: PowerRequested, pending: Pending | None, state: State) -> PowerRequested:
    """A machine that is off in the middle of its cycle is none to be switched on."""
    power = state.power
    if pending is not None:
        power = LEADS_TO.get(pending.command, power)
    if not event.turns_on or power in RUNNING:
        return event
    return replace(event, command=PowerCommand.ON, restart=False)


def refusal(event: PowerRequested, pending: Pending | None, state: State) -> Answer | None:
    """Why it may not be given; None: it may."""
    if not state.runtime.has_power:
        reason = "the machine has no AC power"
        return Answer(event.ticket, Verdict.WRONG_STATE, reason)
    follows = event.command in FOLLOWING and not event.restart
    if pending is not None and is_contrary(event, pending, state) and not follows:
        reason = f"{pending.command} is under way"
        return Answer(event.ticket, Verdict.BUSY, reason)
    if state.power is PowerState.ABSENT:
        reason = "the machine is not there any more; `nospoon up` makes it again"
        return Answer(event.ticket, Verdict.GONE, reason)
    if state.power is PowerState.UNKNOWN and state.reason:
        return Answer(event.ticket, Verdict.UNREACHABLE, state.reason)
    needs_running = event.command in NEEDS_RUNNING or event.restart
    if needs_running and state.power is PowerState.OFF and pending is None:
        reason = f"{event.command} needs a machine that is on"
        return Answer(event.ticket, Verdict.WRONG_STATE, reason)
    return None


def is_contrary(event: PowerRequested, pending: Pending | None, state: State) -> bool:
    """Another command than this one is under way."""
    return pending is not None and pending.command is not command_for(event.command, state)


def is_so_already(command: PowerCommand, state: State) -> bool:
    """The machine is as the command would make it."""
    if command is PowerCommand.ON:
        return state.power is PowerState.ON
    return command in STOPS and state.power in STOPPED


def command_for(command: PowerCommand, state: State) -> PowerCommand:
    """A machine that failed is not started but started again."""
    failed = state.power is PowerState.FAILED
    return PowerCommand.CYCLE if failed and command is PowerCommand.ON else command
