"""Power of one machine: commands, their outcomes, what is seen, and AC power.

Rules:

- A power command is checked first: AC power and the machine are there, its host answers. The same
  command while it is under way joins it. On, off and cycle while another command is under way are
  accepted and follow it, the last one only: so `off` and `cycle` in a row leave the machine on, as
  hardware does. Reset, soft and diag are for the guest of now: while another is under way the BMC
  is busy.
- It is answered when its outcome is known, but after 250 ms at the latest, then as accepted; a
  failure that comes later shows as power fault. On of a running machine and off of a stopped one
  change nothing, but are given to it nevertheless: what is known of it may be some seconds old,
  and one that its owner paused runs on. Reset, cycle and diag need a running one (IPMI 2.0 §28.3,
  code D5h).
- A graceful restart is a soft power-off, and on once the guest has shut down; a guest that does
  not within three minutes is a power fault.
- When AC power is lost the machine is driven off, after whatever is under way; when it returns the
  power restore policy decides (§28.8). A machine that runs without AC power is driven off whenever
  it is seen.
- A reboot of the host is to its machines a loss of AC power, however the host ended them: the
  policy decides once about each machine that is off then. Who goes off while the host runs and
  does not shut down stays off (`Runtime.on`), and so does who is switched off by a command.
- What was done by a lie (an injected fault) is believed while the fault lasts, and nothing else
  follows from it. Whatever the machine reports is believed instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from nospoon.bmc.boot import Boot
from nospoon.bmc.faults import Fault
from nospoon.bmc.faults import Kind as FaultKind
from nospoon.bmc.last_event import switched_off, switched_on
from nospoon.bmc.log import Kind
from nospoon.bmc.messages import (
    AcLost,
    AcReturned,
    Answer,
    CommandEnded,
    Drive,
    Effect,
    HostSeen,
    PowerRequested,
    Verdict,
)
from nospoon.bmc.power_command import (
    BOOTING,
    LEADS_TO,
    STOPS,
    Pending,
    command_for,
    is_contrary,
    is_so_already,
    meant,
    refusal,
)
from nospoon.bmc.restart_cause import CAUSE_CHASSIS_CONTROL, CAUSE_UNKNOWN, RESTORES, restored
from nospoon.bmc.started import booted_by_itself, followed
from nospoon.bmc.state import RUNNING, STOPPED, State
from nospoon.model.machine import MachineChange, MachineEvent, Outcome, PowerCommand, PowerState

ANSWER_WITHIN = 0.25
SHUTDOWN_PATIENCE = 180.0
EVENT_LAG = 5.0
"""The event of a boot may come after the outcome of its command, by so much."""


class Power:
    """`_then`: what AC power or a client wants done once the command under way has ended, and its
    cause.

    `_truth`: power and reason as they are, where something else is believed. `_host_boot`: id of
    the boot of the host that runs now, "" before it is known.
    """

    __slots__ = (
        "_boot",
        "_host_boot",
        "_pending",
        "_restart_until",
        "_state",
        "_then",
        "_truth",
        "_unseen_until",
    )

    def __init__(self, state: State, boot: Boot) -> None:
        self._state, self._boot = state, boot
        self._pending: Pending | None = None
        self._restart_until: float | None = None
        self._unseen_until: float | None = None
        self._then: tuple[PowerCommand, int] | None = None
        self._truth: tuple[PowerState, str] | None = None
        self._host_boot = ""

    @property
    def busy(self) -> bool:
        """A command is under way."""
        return self._pending is not None

    @property
    def commands(self) -> tuple[PowerCommand, ...]:
        """What is under way: the command that the machine carries out, and what follows it."""
        now = (self._pending.command,) if self._pending is not None else ()
        return (*now, self._then[0]) if self._then is not None else now

    @property
    def deadline(self) -> float | None:
        """When `expire` wants to be called."""
        waiting = self._pending.waiting.values() if self._pending is not None else ()
        others = (self._restart_until, self._lie.until if self._lie is not None else None)
        return min([*waiting, *(each for each in others if each is not None)], default=None)

    @property
    def _lie(self) -> Fault | None:
        """The fault by which something is believed."""
        faults = self._state.faults if self._truth is not None else None
        return faults.find(FaultKind.POWER_LIES) if faults is not None else None

    def doubted(self, now: float) -> Iterator[Effect]:
        """Believe no more than what is so, once the fault is over."""
        lie = self._lie
        over = lie is None or (lie.until is not None and lie.until <= now)
        if over:
            yield from self._found_out(now)

    def _found_out(self, now: float) -> Iterator[Effect]:
        if self._truth is not None:
            (power, reason), self._truth = self._truth, None
            yield from self._state.see(power, reason, now)

    def expire(self, now: float) -> Iterator[Effect]:
        """Answer who waited long enough; give up on guests that do not shut down; find out lies."""
        yield from self.doubted(now)
        if self._pending is not None:
            due = [ticket for ticket, at in self._pending.waiting.items() if at <= now]
            for ticket in due:
                del self._pending.waiting[ticket]
                yield Answer(ticket, Verdict.ACCEPTED)
        if self._restart_until is not None and self._restart_until <= now:
            self._restart_until = None
            seconds = f"{SHUTDOWN_PATIENCE:.0f}"
            reason = f"the guest did not shut down within {seconds} s to restart"
            yield from self._failed(reason, now)

    def requested(self, event: PowerRequested, now: float) -> Iterator[Effect]:
        """Someone asks for a command."""
        self._boot.chassis_command(now)
        event = meant(event, self._pending, self._state)
        refused = refusal(event, self._pending, self._state)
        if refused is not None:
            yield refused
            return
        if is_contrary(event, self._pending, self._state):
            self._restart_until, self._then = None, (event.command, CAUSE_CHASSIS_CONTROL)
            yield Answer(event.ticket, Verdict.ACCEPTED)
            return
        if event.restart or self._pending is None:
            self._restart_until = now + SHUTDOWN_PATIENCE if event.restart else None
        if self._pending is not None:
            if self._then is not None and self._then[1] == CAUSE_CHASSIS_CONTROL:
                self._then = None  # the last command counts
            self._pending.waiting[event.ticket] = now + ANSWER_WITHIN
            return
        believed = is_so_already(event.command, self._state)
        if believed and event.command is not PowerCommand.ON:  # its host may have rebooted just now
            yield from self._state.persist(replace(self._state.runtime, on=False))
        if believed and self._lie is not None:
            yield Answer(event.ticket, Verdict.DONE, outcome=Outcome.UNCHANGED)
            return
        waiting = {event.ticket: now + ANSWER_WITHIN}
        command = command_for(event.command, self._state)
        yield self._drive(command, CAUSE_CHASSIS_CONTROL, waiting, believed=believed)

    def act(self, command: PowerCommand, cause: int) -> Iterator[Effect]:
        """The BMC itself wants a running machine to do this (the watchdog, §27.1)."""
        if self._pending is None and self._state.power in RUNNING:
            yield self._drive(command, cause, {})

    def _drive(
        self,
        command: PowerCommand,
        cause: int,
        waiting: dict[int, float],
        *,
        believed: bool = False,
    ) -> Drive:
        plan, before = self._boot.plan, self._state.power
        self._pending = Pending(command, self._boot.edition, waiting, cause, plan, before)
        self._unseen_until = None
        again = command is PowerCommand.RESET and self._state.runtime.secure_boot.waits
        given = PowerCommand.CYCLE if again else command
        return Drive(given, plan, unplugs=self._pending.unplugs, believed=believed)

    def ended(self, event: CommandEnded, now: float) -> Iterator[Effect]:
        """The command under way ended."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        if event.lied:
            yield from self._lied(pending, now)
        elif event.verdict is Verdict.DONE and event.outcome is not Outcome.CHANGED:
            yield from self._was_so(pending, now)
        elif event.verdict is Verdict.DONE:
            yield from self._succeeded(pending, now)
        else:
            self._restart_until = None
            yield from self._failed(event.reason or str(event.verdict), now)
        for ticket in pending.waiting:
            yield Answer(ticket, event.verdict, event.reason, outcome=event.outcome)
        yield from self.doubted(now)
        if pending.cause not in RESTORES:
            yield from self._host_confirmed(now)
        elif event.verdict is not Verdict.UNREACHABLE:  # else once its host is seen again
            yield from self._host_noted()
        yield from self._go_on()

    def _lied(self, pending: Pending, now: float) -> Iterator[Effect]:
        """The command is believed to be done; no boot follows from it."""
        state = self._state
        yield from state.persist(replace(state.runtime, power_fault=""))
        if not pending.reported and pending.command in LEADS_TO:
            self._truth = self._truth or (state.power, state.reason)
            yield from state.see(LEADS_TO[pending.command], "", now)

    def _was_so(self, pending: Pending, now: float) -> Iterator[Effect]:
        """The machine was as it was to be, for longer than was known: no boot follows from it."""
        state = self._state
        so = PowerState.OFF if pending.command in STOPS else PowerState.ON
        if not pending.reported:
            self._truth = None
            yield from state.see(so, "", now)
        event = state.runtime.last_power_event
        if pending.before in STOPPED and state.power in RUNNING:
            event = switched_on(event, by_command=False)
        elif pending.before in RUNNING and state.power in STOPPED:
            event = self._switched_off(event)
        on = so is PowerState.ON and (state.runtime.on or state.power in RUNNING)
        yield from state.persist(
            replace(state.runtime, power_fault="", last_power_event=event, on=on)
        )

    def _succeeded(self, pending: Pending, now: float) -> Iterator[Effect]:
        """What the command leads to is so, even if the machine's event is still on its way."""
        boots, state = pending.command in BOOTING, self._state
        unseen = not pending.booted if boots else not pending.reported
        if unseen and pending.command in LEADS_TO:
            self._truth = None
            yield from state.see(LEADS_TO[pending.command], "", now)
        after = replace(
            state.runtime,
            power_fault="",
            last_power_event=self._last_event(pending),
            restart_cause=pending.cause if boots else state.runtime.restart_cause,
            on=boots or (state.runtime.on and pending.command is not PowerCommand.OFF),
        )
        yield from state.persist(after)
        if pending.command is PowerCommand.CYCLE:
            yield from state.record(Kind.POWER_CYCLE, now)
        if boots and unseen:
            self._unseen_until = now + EVENT_LAG
            yield from followed(self._state, self._boot, pending, now)

    def _last_event(self, pending: Pending) -> int:
        """The last power event after a command was carried out."""
        event, on = self._state.runtime.last_power_event, pending.switches_on
        match pending.command:
            case PowerCommand.ON:
                return switched_on(event, by_command=on)
            case PowerCommand.CYCLE:
                return switched_on(0, by_command=on)
            case PowerCommand.OFF:
                return self._switched_off(event, unplugs=pending.unplugs)
            case PowerCommand.RESET | PowerCommand.SOFT | PowerCommand.DIAG:
                return event

    def _switched_off(self, event: int, *, unplugs: bool = False) -> int:
        """AC power may be back already when the machine goes off for want of it."""
        return switched_off(event, unplugged=unplugs or not self._state.runtime.has_power)

    def _failed(self, reason: str, now: float) -> Iterator[Effect]:
        runtime = self._state.runtime
        yield from self._state.persist(replace(runtime, power_fault=reason))
        yield from self._state.record(Kind.POWER_FAULT, now, reason)

    def _go_on(self) -> Iterator[Effect]:
        """What waited for the end of something: AC power, the second half of a restart."""
        if self._pending is not None:
            return
        if self._then is not None:
            (command, cause), self._then = self._then, None
            if command is PowerCommand.CYCLE and self._state.power in STOPPED:
                command = PowerCommand.ON
            if not is_so_already(command, self._state):
                yield self._drive(command_for(command, self._state), cause, {})
            return
        if self._restart_until is None:
            return
        if self._state.power in STOPPED:
            self._restart_until = None
        if self._state.power is PowerState.OFF:
            yield self._drive(PowerCommand.ON, CAUSE_CHASSIS_CONTROL, {})

    def reported(self, event: MachineEvent, now: float) -> Iterator[Effect]:
        """The machine's connection told something of it."""
        power, reason = event.power, event.reason
        if event.change is MachineChange.UNREACHABLE:
            power = PowerState.UNKNOWN
            reason = reason or "the host of the machine does not answer"
        if event.change is MachineChange.CRASHED and power is not PowerState.FAILED:
            yield from self._state.record(Kind.GUEST_STOPPED, now, reason)
        yield from self._observed(power, reason, now)
        if self._pending is not None:
            self._pending.reported = True
        elif power in RUNNING and not self._state.runtime.has_power:
            self._then = (PowerCommand.OFF, CAUSE_UNKNOWN)
        if event.change in {MachineChange.STARTED, MachineChange.RESET}:
            yield from self._booted(event, now)
        elif event.change is MachineChange.OBSERVED:
            yield from self._boot.catch_up(busy=self.busy)
        yield from self._go_on()

    def _observed(self, power: PowerState, reason: str, now: float) -> Iterator[Effect]:
        """The machine's power is so, and no belief counts any more."""
        state, before = self._state, self._state.power if self._truth is None else self._truth[0]
        self._truth = None
        yield from state.see(power, reason, now)
        if self._pending is not None and self._pending.command in LEADS_TO:
            return  # its outcome tells what that means
        on = state.runtime.on or power in RUNNING
        event = state.runtime.last_power_event
        if before in STOPPED and power in RUNNING:
            event = switched_on(event, by_command=False)
        elif before in RUNNING and power in STOPPED:
            event = self._switched_off(event)
        yield from state.persist(replace(state.runtime, last_power_event=event, on=on))

    def _booted(self, event: MachineEvent, now: float) -> Iterator[Effect]:
        """A boot was seen: of the command under way, of one that just ended, or of the guest."""
        pending = self._pending
        if pending is not None and pending.command in BOOTING and not pending.booted:
            pending.booted = True
            yield from followed(self._state, self._boot, pending, now)
        elif self._unseen_until is not None and now <= self._unseen_until:
            self._unseen_until = None
        else:
            yield from booted_by_itself(self._state, self._boot, event, now, busy=self.busy)

    def ac_lost(self, event: AcLost, now: float) -> Iterator[Effect]:
        """AC power is gone: the machine goes off at once, or once what is under way has ended."""
        state = self._state
        if not state.runtime.has_power:
            yield Answer(event.ticket, Verdict.DONE)
            return
        self._restart_until = None
        yield from self._found_out(now)
        was_on = state.power in RUNNING or self._comes_up
        last = switched_off(state.runtime.last_power_event, unplugged=True)
        after = replace(state.runtime, has_power=False, was_on=was_on, last_power_event=last)
        yield from state.persist(after)
        yield from state.record(Kind.AC_LOST, now)
        yield Answer(event.ticket, Verdict.DONE)
        self._then = (PowerCommand.OFF, CAUSE_UNKNOWN)
        yield from self._go_on()

    @property
    def _comes_up(self) -> bool:
        return self._pending is not None and self._pending.command in BOOTING

    def ac_returned(self, event: AcReturned, now: float) -> Iterator[Effect]:
        """AC power is back: the policy decides."""
        state = self._state
        if state.runtime.has_power:
            yield Answer(event.ticket, Verdict.DONE)
            return
        yield from state.persist(replace(state.runtime, has_power=True))
        yield from state.record(Kind.AC_RETURNED, now)
        yield Answer(event.ticket, Verdict.DONE)
        cause = restored(state.runtime.settings.policy, was_on=state.runtime.was_on)
        if cause is not None:
            self._then = (PowerCommand.ON, cause)
        yield from self._go_on()

    def host_seen(self, event: HostSeen, now: float) -> Iterator[Effect]:
        """The machine's host runs: what is so now is no effect of its shutdown."""
        self._host_boot = event.boot
        yield from self._host_confirmed(now)

    def _host_confirmed(self, now: float) -> Iterator[Effect]:
        """After a reboot of the host the policy decides; else the machine is off if it looks so.

        Not while a command is under way: its outcome counts, and this is looked at again then.
        """
        state, boot = self._state, self._host_boot
        runtime = state.runtime
        if not boot or self.busy or self._then is not None or state.power is PowerState.UNKNOWN:
            return
        if runtime.host_boot in {"", boot}:
            yield from self._host_noted()
            return
        yield from state.record(Kind.AC_LOST, now)
        yield from state.record(Kind.AC_RETURNED, now)
        cause = restored(runtime.settings.policy, was_on=runtime.on)
        if cause is None or state.power is not PowerState.OFF or not runtime.has_power:
            yield from self._host_noted()
        else:
            yield self._drive(PowerCommand.ON, cause, {})

    def _host_noted(self) -> Iterator[Effect]:
        """Nothing is left to do about the boot of the host."""
        state = self._state
        boot, on = self._host_boot or state.runtime.host_boot, state.power in RUNNING
        yield from state.persist(replace(state.runtime, host_boot=boot, on=on))
