"""One BMC: a pure machine with a clock, from which IPMI, Redfish, PDU and the API all answer.

Its parts have the rules: `power` (commands, AC), `boot` (the override), `watchdog`, `log`,
`sensors`. What must survive is persisted before it is acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from nospoon.bmc.boot import Boot
from nospoon.bmc.fru import Inventory
from nospoon.bmc.log import Kind, Log, stamped
from nospoon.bmc.messages import (
    AcLost,
    AcReturned,
    Answer,
    Append,
    BiosRequested,
    BootObserved,
    BootOrderRequested,
    BootTold,
    ClearingRequested,
    CommandEnded,
    Defaults,
    Effect,
    EndSessions,
    Erase,
    Event,
    FaultsChanged,
    HostSeen,
    HttpBootUriRequested,
    IdentifyRequested,
    LogAddRequested,
    LogEraseRequested,
    MachineReported,
    MediaChanged,
    OverrideRequested,
    PowerRequested,
    Reshaped,
    RestartRequested,
    SecureBootRequested,
    SettingsRequested,
    SoftwareRequested,
    Verdict,
    VolumesRequested,
    WatchdogRequested,
    WatchdogReset,
)
from nospoon.bmc.power import Power
from nospoon.bmc.restart_cause import CAUSE_WATCHDOG
from nospoon.bmc.runtime import Runtime, Settings
from nospoon.bmc.software import Component, restarted
from nospoon.bmc.state import RUNNING, State
from nospoon.bmc.watchdog import Act, Watchdog
from nospoon.model.boot import NO_OVERRIDE, BootDevice, BootPlan
from nospoon.model.machine import MachineChange, MachineEvent, PowerCommand, PowerState

RESTART_SECONDS = 2.0


class Bmc:
    """The aggregate of one node. `script`: its machine boots our ISO and tells when it booted, or
    `starts_disk` without it, and then reports nothing.

    `watchdog` None: no one has set it yet. `restart_seconds`: how long a restart of the BMC takes.
    """

    __slots__ = (
        "_boot",
        "_identify_until",
        "_power",
        "_restarting_until",
        "restart_seconds",
        "state",
        "watchdog",
    )

    def __init__(
        self,
        *,
        order: tuple[BootDevice, ...],
        script: bool,
        starts_disk: bool = False,
        runtime: Runtime | None = None,
        log: Log | None = None,
        inventory: Inventory | None = None,
        restart_seconds: float = RESTART_SECONDS,
    ) -> None:
        runtime = runtime if runtime is not None else Runtime()
        self.state = State(runtime, log or Log(), inventory or Inventory())
        self._boot = Boot(self.state, order=order, script=script, starts_disk=starts_disk)
        self._power = Power(self.state, self._boot)
        self._identify_until: float | None = None
        self._restarting_until: float | None = None
        self.restart_seconds = restart_seconds
        self.watchdog: Watchdog | None = None

    @property
    def runtime(self) -> Runtime:
        return self.state.runtime

    @property
    def power(self) -> PowerState:
        return self.state.power

    @property
    def reason(self) -> str:
        """Why power is as it is, where that needs one."""
        return self.state.reason

    @property
    def log(self) -> Log:
        return self.state.log

    @property
    def power_commands(self) -> tuple[PowerCommand, ...]:
        """Those under way, in their order."""
        return self._power.commands

    @property
    def has_power(self) -> bool:
        """AC power is there; without it the BMC is silent."""
        return self.state.runtime.has_power

    @property
    def boot_order(self) -> tuple[BootDevice, ...]:
        """The persistent one."""
        return self._boot.order

    @property
    def boot(self) -> BootPlan:
        """What the machine boots next, and afterwards."""
        return self._boot.plan

    @property
    def http_boot(self) -> str:
        """The URI that the boot at hand fetches, "" when it does not boot by HTTP.

        A machine that boots by script asks before its boot is observed.
        """
        runtime = self.runtime
        asks = self._boot.script and runtime.override.active
        by_override = asks and runtime.override.target is BootDevice.HTTP
        return runtime.http_boot_uri if by_override else runtime.http_boot

    @property
    def is_on(self) -> bool:
        return self.state.power in RUNNING

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
    def is_restarting(self) -> bool:
        """It was asked to restart, and does not answer yet."""
        return self._restarting_until is not None

    @property
    def answers(self) -> bool:
        """Someone who asks is answered; without AC power and while it restarts no one is."""
        return self._restarting_until is None and self.state.runtime.has_power

    @property
    def deadline(self) -> float | None:
        """When `expire` wants to be called."""
        watchdog = self.watchdog.deadline if self.watchdog is not None else None
        timers = (
            self._power.deadline,
            self._boot.flags_expire,
            self._identify_until,
            watchdog,
            self._restarting_until,
        )
        return min((each for each in timers if each is not None), default=None)

    def revert(self, runtime: Runtime) -> None:
        """What was to be persisted could not be: this is what holds."""
        self._boot.edition += 1
        self.state.runtime = runtime

    def receive(self, event: Event, now: float) -> Iterator[Effect]:
        """Take an event; carry out the effects in order, all of them."""
        match event:
            case PowerRequested():
                return self._power.requested(event, now)
            case OverrideRequested():
                return self._override_requested(event, now)
            case BootOrderRequested():
                return self._boot_order_requested(event)
            case (
                HttpBootUriRequested()
                | MediaChanged()
                | ClearingRequested()
                | SettingsRequested()
                | BiosRequested()
                | SoftwareRequested()
                | SecureBootRequested()
                | VolumesRequested()
            ):
                return self._keep(_after(self.runtime, event), event.ticket)
            case IdentifyRequested():
                return self._identify_requested(event, now)
            case LogAddRequested():
                return self._log_added(event, now)
            case LogEraseRequested():
                return self._log_erased(event, now)
            case RestartRequested():
                return self._restart_requested(event, now)
            case WatchdogRequested() | WatchdogReset():
                return self._watchdog_told(event, now)
            case _:
                return self._happened(event, now)

    def _happened(
        self,
        event: MachineReported
        | HostSeen
        | Reshaped
        | BootObserved
        | BootTold
        | CommandEnded
        | AcLost
        | AcReturned
        | FaultsChanged,
        now: float,
    ) -> Iterator[Effect]:
        match event:
            case MachineReported():
                return self._reported(event.event, now)
            case HostSeen():
                return self._power.host_seen(event, now)
            case Reshaped():
                return self._reshaped(event, now)
            case BootObserved():
                return self._boot.observed()
            case BootTold():
                return self._told_of(event.edition)
            case CommandEnded():
                return self._power.ended(event, now)
            case AcLost():
                return self._power.ac_lost(event, now)
            case AcReturned():
                return self._power.ac_returned(event, now)
            case FaultsChanged():
                return self._power.doubted(now)

    def _reshaped(self, event: Reshaped, now: float) -> Iterator[Effect]:
        """A machine that runs is told of another order, for what its guest resets follows."""
        self.state.inventory = event.inventory or self.state.inventory
        runtime = self.runtime
        if event.policy is not None and event.policy is not runtime.filed_policy:
            settings = replace(runtime.settings, policy=event.policy)
            after = replace(runtime, settings=settings, filed_policy=event.policy)
            yield from self.state.persist(after)
        yield from self._boot.reshaped(event, busy=self._power.busy, now=now)

    def expire(self, now: float) -> Iterator[Effect]:
        """Answer who waited long enough; end what lasts for a time only."""
        yield from self._power.expire(now)
        if self._identify_until is not None and self._identify_until <= now:
            self._identify_until = None
        if self._restarting_until is not None and self._restarting_until <= now:
            self._restarting_until = None
        yield from self._boot.expire(now, busy=self._power.busy)
        act = self.watchdog.expire(now) if self.watchdog is not None else None
        if act is not None:
            yield from self._watchdog_acts(act, now)

    def _identify_requested(self, event: IdentifyRequested, now: float) -> Iterator[Effect]:
        timed = event.lit and event.seconds is not None
        self._identify_until = now + (event.seconds or 0) if timed else None
        after = replace(self.runtime, identify=event.lit and not timed)
        yield from self._keep(after, event.ticket)

    def _restart_requested(self, event: RestartRequested, now: float) -> Iterator[Effect]:
        """Who asked is answered before everybody is logged out. The machine notices nothing."""
        if event.defaults is not Defaults.NONE:
            yield from self._forget(event.defaults, now)
        software = restarted(self.runtime.software, Component.BMC)
        yield from self.state.persist(replace(self.runtime, software=software))
        yield from self.state.record(Kind.BMC_RESTARTED, now)
        yield Answer(event.ticket, Verdict.DONE)
        self._restarting_until = now + self.restart_seconds
        self.log.reservation = 0
        self.state.setting.clear()
        yield EndSessions()

    def _forget(self, defaults: Defaults, now: float) -> Iterator[Effect]:
        self._identify_until, self.watchdog = None, None
        none = OverrideRequested(NO_OVERRIDE)
        yield from self.state.persist(forgotten(self.runtime, defaults))
        yield from self._boot.requested(none, now, busy=self._power.busy)

    def _override_requested(self, event: OverrideRequested, now: float) -> Iterator[Effect]:
        yield from self._boot.requested(event, now, busy=self._power.busy)
        yield Answer(event.ticket, Verdict.DONE)

    def _boot_order_requested(self, event: BootOrderRequested) -> Iterator[Effect]:
        yield from self._boot.ordered(event.order, busy=self._power.busy)
        yield Answer(event.ticket, Verdict.DONE)

    def _told_of(self, edition: int) -> Iterator[Effect]:
        self._boot.told = edition
        yield from ()

    def _reported(self, event: MachineEvent, now: float) -> Iterator[Effect]:
        yield from self._power.reported(event, now)
        boots = event.change in {MachineChange.STARTED, MachineChange.RESET}
        if self.watchdog is not None and (boots or not self.is_on):
            self.watchdog.stop(now)

    def _log_added(self, event: LogAddRequested, now: float) -> Iterator[Effect]:
        at = self.state.clock(now)
        yield Append(self.log.add(Kind.ADDED, at, raw=stamped(event.raw, at)))
        yield Answer(event.ticket, Verdict.DONE)

    def _log_erased(self, event: LogEraseRequested, now: float) -> Iterator[Effect]:
        self.log.erase(event.number, self.state.clock(now))
        yield Erase(event.number)
        yield Answer(event.ticket, Verdict.DONE)

    def _watchdog_told(
        self, event: WatchdogRequested | WatchdogReset, now: float
    ) -> Iterator[Effect]:
        match event, self.watchdog:
            case WatchdogRequested(settings=settings), None:
                self.watchdog = Watchdog(settings)
            case WatchdogRequested(settings=settings), Watchdog() as watchdog:
                watchdog.set(settings, now)
            case WatchdogReset(), Watchdog() as watchdog:
                watchdog.reset(now)
            case _:
                yield Answer(event.ticket, Verdict.WRONG_STATE, "the watchdog was never set")
                return
        yield Answer(event.ticket, Verdict.DONE)

    def _watchdog_acts(self, act: Act, now: float) -> Iterator[Effect]:
        assert self.watchdog is not None, "it acts"
        if self.watchdog.settings.log:
            yield from self.state.record(act.kind, now)
        if act.command is not None:
            yield from self._power.act(act.command, CAUSE_WATCHDOG)

    def _keep(self, after: Runtime, ticket: int) -> Iterator[Effect]:
        yield from self.state.persist(after)
        yield Answer(ticket, Verdict.DONE)


def _after(
    runtime: Runtime,
    event: HttpBootUriRequested
    | MediaChanged
    | ClearingRequested
    | SettingsRequested
    | BiosRequested
    | SoftwareRequested
    | SecureBootRequested
    | VolumesRequested,
) -> Runtime:
    """Runtime state after something of it was set, which nothing else follows from."""
    match event:
        case HttpBootUriRequested(uri=uri):
            return replace(runtime, http_boot_uri=uri)
        case MediaChanged(name=name):
            return replace(runtime, media=name)
        case ClearingRequested(clearing=clearing):
            return replace(runtime, clearing=clearing)
        case SettingsRequested(settings=settings):
            return replace(runtime, settings=settings)
        case BiosRequested(bios=bios):
            return replace(runtime, bios=bios)
        case SoftwareRequested(software=software):
            return replace(runtime, software=software)
        case SecureBootRequested(secure_boot=secure_boot):
            return replace(runtime, secure_boot=secure_boot)
        case VolumesRequested(volumes=volumes):
            return replace(runtime, volumes=volumes)


def forgotten(runtime: Runtime, defaults: Defaults) -> Runtime:
    """Runtime state once clients' settings are as they were made; the outlet is the PDU's."""
    before = runtime.settings
    after = Settings(policy=runtime.filed_policy, outlet=before.outlet)
    if defaults is Defaults.BUT_USERS:
        after = replace(after, users=before.users, kg=before.kg)
    return replace(
        runtime, settings=after, clearing=0, identify=False, http_boot_uri="", boot_order=()
    )
