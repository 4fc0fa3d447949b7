"""One BMC: a pure machine with a clock, from which IPMI, Redfish and the API all answer.

Rules:

- A power command is checked first: the machine is there, its host answers, nothing contrary is
  under way. The same command while it is under way joins it.
- It is answered when its outcome is known, but after 250 ms at the latest, then as accepted; a
  failure that comes later shows as power fault. On of a running machine and off of a stopped one
  are done already; reset, cycle and diag need a running one (IPMI 2.0 §28.3, code D5h).
- A graceful restart is a soft power-off, and on once the guest has shut down; a guest that does
  not within three minutes is a power fault.
- What must survive is persisted before it is acknowledged.
- Once is used up by the boot that is observed and that followed it: of a command that was driven
  with it, or of a reset after the running machine was told of it. Each change of the override is
  an edition, so that a newer one of the same value is not taken for the older. Persistent
  overrides are kept.
- A machine that runs is told of a change; what it could not be told is told when it is seen again.
- Boot flags that an IPMI client set once are cleared after 60 s without a chassis command, which
  starts the time anew, unless parameter 3 says not to (§28.13).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace

from nospoon.bmc.messages import (
    Answer,
    BootObserved,
    BootTold,
    ClearingRequested,
    CommandEnded,
    Drive,
    Effect,
    Event,
    IdentifyRequested,
    MachineReported,
    OverrideRequested,
    Persist,
    PowerRequested,
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
    used_up,
)
from nospoon.model.machine import MachineChange, MachineEvent, PowerCommand, PowerState

ANSWER_WITHIN = 0.25
FLAGS_TIMEOUT = 60.0
SHUTDOWN_PATIENCE = 180.0
EVENT_LAG = 5.0
"""The event of a boot may come after the outcome of its command, by so much."""
KEEP_AFTER_TIMEOUT = 0x08
"""Parameter 3, bit 3: do not clear the valid bit when no command comes within 60 s."""

_RUNNING = frozenset({PowerState.ON, PowerState.FAILED})
_NEEDS_RUNNING = frozenset({PowerCommand.RESET, PowerCommand.CYCLE, PowerCommand.DIAG})
_BOOTING = frozenset({PowerCommand.ON, PowerCommand.CYCLE, PowerCommand.RESET})
_LEADS_TO = {
    PowerCommand.ON: PowerState.ON,
    PowerCommand.CYCLE: PowerState.ON,
    PowerCommand.RESET: PowerState.ON,
    PowerCommand.OFF: PowerState.OFF,
}
_STOPPED = frozenset({PowerState.OFF, PowerState.ABSENT})

# IPMI 2.0 table 28-3 (last power event) and 28-11 (restart cause)
POWER_ON_BY_IPMI = 0x10
POWER_FAULT = 0x08
CAUSE_CHASSIS_CONTROL = 0x01
CAUSE_SOFT_RESET = 0x0A


@dataclass(slots=True)
class _Pending:
    """A command under way: who still waits for an answer, and until when.

    `edition`: of the override with which it was driven. `booted`: the boot that it causes was
    seen. `reported`: the machine told its power since, so that the outcome need not be inferred.
    """

    command: PowerCommand
    edition: int
    waiting: dict[int, float]
    booted: bool = False
    reported: bool = False


class Bmc:
    """The aggregate of one node. `script`: its machine boots our ISO and tells when it booted."""

    __slots__ = (
        "_edition",
        "_flags_expire",
        "_identify_until",
        "_order",
        "_pending",
        "_restart_until",
        "_script",
        "_told",
        "_unseen_until",
        "power",
        "reason",
        "runtime",
    )

    def __init__(
        self, *, order: tuple[BootDevice, ...], script: bool, runtime: Runtime | None = None
    ) -> None:
        self.runtime = runtime if runtime is not None else Runtime()
        self.power = PowerState.UNKNOWN
        self.reason = ""
        self._order, self._script = order, script
        self._pending: _Pending | None = None
        self._flags_expire: float | None = None
        self._identify_until: float | None = None
        self._restart_until: float | None = None
        self._unseen_until: float | None = None
        self._edition = 0
        self._told = -1 if self.runtime.override.active else 0

    @property
    def boot(self) -> BootPlan:
        """What the machine boots next, and afterwards."""
        return next_boot(self._order, self.runtime.override)

    @property
    def is_on(self) -> bool:
        return self.power in _RUNNING

    @property
    def fault(self) -> str:
        """Why the last command failed or the machine does, "" when all is well."""
        return self.runtime.power_fault or self._broken

    @property
    def _broken(self) -> str:
        match self.power:
            case PowerState.FAILED:
                return self.reason or "the machine failed"
            case PowerState.ABSENT:
                return self.reason or "the machine is not there any more"
            case _:
                return ""

    @property
    def identify(self) -> bool:
        """Whether the identify light is lit, for a time or until told otherwise."""
        return self.runtime.identify or self._identify_until is not None

    @property
    def deadline(self) -> float | None:
        """When `expire` wants to be called."""
        if self._pending is None and self._is_idle:
            return None
        waiting = self._pending.waiting.values() if self._pending is not None else ()
        timers = (self._flags_expire, self._identify_until, self._restart_until)
        return min([*waiting, *(each for each in timers if each is not None)], default=None)

    @property
    def _is_idle(self) -> bool:
        return (
            self._flags_expire is None
            and self._identify_until is None
            and self._restart_until is None
        )

    def reshape(self, *, order: tuple[BootDevice, ...], script: bool) -> None:
        """The node's shape changed; runtime state did not. The driver told the machine itself."""
        self._order, self._script = order, script

    def revert(self, runtime: Runtime) -> None:
        """What was to be persisted could not be: this is what holds."""
        self._edition += 1
        self.runtime = runtime

    def receive(self, event: Event, now: float) -> Iterator[Effect]:
        """Take an event; carry out the effects in order, all of them."""
        match event:
            case PowerRequested():
                return self._power_requested(event, now)
            case OverrideRequested():
                return self._override_requested(event, now)
            case ClearingRequested():
                return self._keep(replace(self.runtime, clearing=event.clearing), event.ticket)
            case IdentifyRequested():
                return self._identify_requested(event, now)
            case MachineReported():
                return self._reported(event.event, now)
            case BootObserved():
                return self._boot_observed()
            case BootTold():
                return self._told_of(event.edition)
            case CommandEnded():
                return self._ended(event, now)

    def expire(self, now: float) -> Iterator[Effect]:
        """Answer who waited long enough; end what lasts for a time only."""
        if self._pending is not None:
            due = [ticket for ticket, at in self._pending.waiting.items() if at <= now]
            for ticket in due:
                del self._pending.waiting[ticket]
                yield Answer(ticket, Verdict.ACCEPTED)
        if _is_due(self._identify_until, now):
            self._identify_until = None
        if _is_due(self._restart_until, now):
            self._restart_until = None
            seconds = f"{SHUTDOWN_PATIENCE:.0f}"
            yield from self._failed(f"the guest did not shut down within {seconds} s to restart")
        if _is_due(self._flags_expire, now):
            self._flags_expire = None
            yield from self._change_override(NO_OVERRIDE, b"")

    def _power_requested(self, event: PowerRequested, now: float) -> Iterator[Effect]:
        if self._flags_expire is not None:
            self._flags_expire = now + FLAGS_TIMEOUT
        refusal = self._refusal(event)
        if refusal is not None:
            yield refusal
            return
        if event.restart or self._pending is None:
            self._restart_until = now + SHUTDOWN_PATIENCE if event.restart else None
        if self._pending is not None:
            self._pending.waiting[event.ticket] = now + ANSWER_WITHIN
            return
        if self._is_so_already(event.command):
            yield Answer(event.ticket, Verdict.DONE)
            return
        yield self._drive(self._command_for(event.command), {event.ticket: now + ANSWER_WITHIN})

    def _drive(self, command: PowerCommand, waiting: dict[int, float]) -> Drive:
        self._pending = _Pending(command, self._edition, waiting)
        self._unseen_until = None
        return Drive(command, self.boot)

    def _refusal(self, event: PowerRequested) -> Answer | None:
        command = self._command_for(event.command)
        if self._pending is not None and self._pending.command is not command:
            reason = f"{self._pending.command} is under way"
            return Answer(event.ticket, Verdict.BUSY, reason)
        if self.power is PowerState.ABSENT:
            reason = "the machine is not there any more; `nospoon up` makes it again"
            return Answer(event.ticket, Verdict.GONE, reason)
        if self.power is PowerState.UNKNOWN and self.reason:
            return Answer(event.ticket, Verdict.UNREACHABLE, self.reason)
        needs_running = event.command in _NEEDS_RUNNING or event.restart
        if needs_running and self.power is PowerState.OFF and self._pending is None:
            reason = f"{event.command} needs a machine that is on"
            return Answer(event.ticket, Verdict.WRONG_STATE, reason)
        return None

    def _is_so_already(self, command: PowerCommand) -> bool:
        if command is PowerCommand.ON:
            return self.power is PowerState.ON
        return command in {PowerCommand.OFF, PowerCommand.SOFT} and self.power is PowerState.OFF

    def _command_for(self, command: PowerCommand) -> PowerCommand:
        """A machine that failed is not started but started anew."""
        failed = self.power is PowerState.FAILED
        return PowerCommand.CYCLE if failed and command is PowerCommand.ON else command

    def _ended(self, event: CommandEnded, now: float) -> Iterator[Effect]:
        pending, self._pending = self._pending, None
        if pending is None:
            return
        if event.verdict is Verdict.DONE:
            yield from self._succeeded(pending, now)
        else:
            self._restart_until = None
            yield from self._failed(event.reason or str(event.verdict))
        for ticket in pending.waiting:
            yield Answer(ticket, event.verdict, event.reason)
        yield from self._restart_if_stopped()

    def _succeeded(self, pending: _Pending, now: float) -> Iterator[Effect]:
        """What the command leads to is so, even if the machine's event is still on its way."""
        boots = pending.command in _BOOTING
        unseen = not pending.booted if boots else not pending.reported
        if unseen and pending.command in _LEADS_TO:
            self.power, self.reason = _LEADS_TO[pending.command], ""
        after = replace(
            self.runtime,
            power_fault="",
            last_power_event=POWER_ON_BY_IPMI if boots else 0,
            restart_cause=CAUSE_CHASSIS_CONTROL if boots else self.runtime.restart_cause,
        )
        yield from self._persist(after)
        if boots and unseen:
            self._unseen_until = now + EVENT_LAG
            yield from self._followed(pending.edition)

    def _failed(self, reason: str) -> Iterator[Effect]:
        after = replace(self.runtime, power_fault=reason, last_power_event=POWER_FAULT)
        yield from self._persist(after)

    def _restart_if_stopped(self) -> Iterator[Effect]:
        """The second half of a graceful restart."""
        if self._restart_until is None or self._pending is not None:
            return
        if self.power in _STOPPED:
            self._restart_until = None
        if self.power is PowerState.OFF:
            yield self._drive(PowerCommand.ON, {})

    def _identify_requested(self, event: IdentifyRequested, now: float) -> Iterator[Effect]:
        timed = event.lit and event.seconds is not None
        self._identify_until = now + (event.seconds or 0) if timed else None
        after = replace(self.runtime, identify=event.lit and not timed)
        yield from self._keep(after, event.ticket)

    def _override_requested(self, event: OverrideRequested, now: float) -> Iterator[Effect]:
        once = event.override.enabled is OverrideEnabled.ONCE
        timed = event.flags and once and not self.runtime.clearing & KEEP_AFTER_TIMEOUT
        self._flags_expire = now + FLAGS_TIMEOUT if timed else None
        yield from self._change_override(event.override, event.flags)
        yield Answer(event.ticket, Verdict.DONE)

    def _change_override(self, override: BootOverride, flags: bytes) -> Iterator[Effect]:
        self._edition += 1
        yield from self._persist(replace(self.runtime, override=override, boot_flags=flags))
        if self.power is PowerState.ON or self._pending is not None:
            yield SetBoot(self.boot, self._edition)

    def _boot_observed(self) -> Iterator[Effect]:
        """A machine that boots by script asked, and was answered by the override at hand."""
        yield from self._use_up(self._edition)
        self._told = self._edition

    def _told_of(self, edition: int) -> Iterator[Effect]:
        self._told = edition
        yield from ()

    def _reported(self, event: MachineEvent, now: float) -> Iterator[Effect]:
        self.power, self.reason = event.power, event.reason
        if event.change is MachineChange.UNREACHABLE:
            self.power = PowerState.UNKNOWN
            self.reason = event.reason or "the host of the machine does not answer"
        if self._pending is not None:
            self._pending.reported = True
        if event.change in {MachineChange.STARTED, MachineChange.RESET}:
            yield from self._booted(event.change, now)
        elif event.change is MachineChange.OBSERVED:
            yield from self._catch_up()
        yield from self._restart_if_stopped()

    def _booted(self, change: MachineChange, now: float) -> Iterator[Effect]:
        """A boot was seen: of the command under way, of one that just ended, or of the guest."""
        pending = self._pending
        if pending is not None and pending.command in _BOOTING and not pending.booted:
            pending.booted = True
            yield from self._followed(pending.edition)
        elif self._unseen_until is not None and now <= self._unseen_until:
            self._unseen_until = None
        else:
            if change is MachineChange.RESET:
                yield from self._persist(replace(self.runtime, restart_cause=CAUSE_SOFT_RESET))
            if not self._script:
                yield from self._use_up(self._told)
            yield from self._catch_up()

    def _followed(self, edition: int) -> Iterator[Effect]:
        """The machine booted as this edition says; what it boots afterwards it was told with it."""
        self._told = edition
        if not self._script and (yield from self._use_up(edition)):
            self._told = self._edition

    def _catch_up(self) -> Iterator[Effect]:
        """A running machine that was not told of the override, because of a bad day, is now."""
        if self.power is PowerState.ON and self._told != self._edition and self._pending is None:
            yield SetBoot(self.boot, self._edition)

    def _use_up(self, edition: int) -> Generator[Effect, None, bool]:
        """The boot that was observed followed this edition; a newer one stays."""
        override = self.runtime.override
        if edition != self._edition or used_up(override) == override:
            return False
        self._flags_expire = None
        self._edition += 1
        yield from self._persist(replace(self.runtime, override=used_up(override), boot_flags=b""))
        return True

    def _keep(self, after: Runtime, ticket: int) -> Iterator[Effect]:
        yield from self._persist(after)
        yield Answer(ticket, Verdict.DONE)

    def _persist(self, after: Runtime) -> Iterator[Effect]:
        if after != self.runtime:
            self.runtime = after
            yield Persist(after)


def _is_due(at: float | None, now: float) -> bool:
    return at is not None and at <= now
