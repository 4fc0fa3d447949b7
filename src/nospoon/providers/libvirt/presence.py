"""Keeps listening to a libvirt: its events become machine events, and it comes back when lost.

libvirt's thread only hands raw events to the loop (`_arrived`); one task digests them in order. A
lost connection makes every machine UNREACHABLE; a new one lists all of them again, for what
happened in between was not told.

Resets are told once per boot. SeaBIOS answers every warm reset with a hard one of its own some
40 ms later (its `tryReboot`: it must restore its image in RAM), and the boot order is read after
that second one. So a reset counts when the machine has run for `SETTLE` seconds without another;
only then is the order of later boots set, and RESET told.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from uuid import UUID

import libvirt
import structlog

from nospoon.errors import NospoonError
from nospoon.model.boot import BootPlan
from nospoon.model.cluster import Firmware
from nospoon.model.machine import MachineChange, MachineEvent, PowerState
from nospoon.providers.feed import EventFeed
from nospoon.providers.libvirt.bindings import Connect, Domain
from nospoon.providers.libvirt.hypervisor import Hypervisor
from nospoon.providers.libvirt.monitor import PAUSE_REASONS, PRELAUNCH, run_state
from nospoon.providers.libvirt.owner import NAMESPACE
from nospoon.providers.libvirt.roster import Known, Roster
from nospoon.providers.libvirt.states import POWER, STOPPED, Lifecycle, RawEvent, Rebooted
from nospoon.runtime.tasks import Tasks

log = structlog.get_logger()
SETTLE = {Firmware.BIOS: 1.5, Firmware.UEFI: 0.0, Firmware.UEFI_SECURE: 0.0}
"""Seconds of running after which a reset of this firmware is no prelude to another."""
FIRST_RETRY, LAST_RETRY = 0.25, 5.0
END_LOOKS, END_SECONDS = 60, 0.5
UNTAGGED = "it was defined without nospoon's tag; `nospoon up` claims or makes it again"
TasksByMachine = dict[UUID, asyncio.Task[None]]
UuidAction = Callable[[UUID], Awaitable[None]]


class Presence:
    """Events of one host. `settled` is awaited when a reset has settled, before it is told;
    `finish` when a machine is found that was never let go after its start.
    """

    def __init__(
        self,
        hypervisor: Hypervisor,
        roster: Roster,
        *,
        settled: UuidAction,
        finish: UuidAction,
    ) -> None:
        self._hypervisor, self._roster = hypervisor, roster
        self._settled, self._finish = settled, finish
        self.feed = EventFeed()
        self.starting: set[UUID] = set()
        self.tasks = Tasks(f"libvirt {hypervisor.host}")
        self._raw: asyncio.Queue[RawEvent] = asyncio.Queue()
        self._resets: dict[UUID, asyncio.Event] = {}
        self._settling: TasksByMachine = {}
        self._ending: TasksByMachine = {}
        self._tried = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._was_lost = False
        self._listening: tuple[Connect, list[int]] | None = None

    async def ready(self) -> None:
        """Listen from now on; returns when the first attempt to do so ended, well or not."""
        if self._running is None:
            self._running = self.tasks.start(self._run(), name="listen")
            self.tasks.start(self._digest_all(), name="digest")
        await self._tried.wait()

    def publish(self, uuid: UUID, change: MachineChange, power: PowerState, why: str = "") -> None:
        self.feed.publish(MachineEvent(uuid, change, power, why))

    def finished(self, uuid: UUID, told: BootPlan) -> None:
        """A machine runs whose start a daemon before us began, and what it was told to boot."""
        event = MachineEvent(uuid, MachineChange.STARTED, PowerState.ON, told=told)
        self.feed.publish(event)

    def expect_reset(self, uuid: UUID) -> asyncio.Event:
        """An event that is set by the next reset of this machine."""
        return self._resets.setdefault(uuid, asyncio.Event())

    async def _run(self) -> None:
        delay = FIRST_RETRY
        loop = asyncio.get_running_loop()
        while True:
            lost = asyncio.Event()
            register = partial(self._register, loop=loop, lost=lost)
            try:
                await self._hypervisor.keep(register, "listen to events")
                await self._announce()
                self._tried.set()
                delay = FIRST_RETRY
                await lost.wait()
            except NospoonError as error:
                tell = log.debug if self._was_lost else log.warning
                tell("host is unreachable", host=self._hypervisor.host, why=str(error))
            self._tell_unreachable()
            self._tried.set()
            await asyncio.sleep(delay)
            delay = min(2 * delay, LAST_RETRY)

    def _register(
        self, connect: Connect, *, loop: asyncio.AbstractEventLoop, lost: asyncio.Event
    ) -> None:
        """In a worker thread; the callbacks run in libvirt's event thread."""
        self._deregister()

        def hand_over(action: Callable[..., object], *values: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended: no one listens
                loop.call_soon_threadsafe(action, *values)

        def lifecycle(_c: object, domain: Domain, event: int, detail: int, _o: object) -> None:
            hand_over(self._arrived, Lifecycle(UUID(bytes=domain.UUID()), event, detail))

        def reboot(_c: object, domain: Domain, _o: object) -> None:
            hand_over(self._arrived, Rebooted(UUID(bytes=domain.UUID())))

        def metadata(_c: object, domain: Domain, _t: int, uri: str | None, _o: object) -> None:
            if uri == NAMESPACE:  # another process tagged it, or removed our tag
                defined = Lifecycle(UUID(bytes=domain.UUID()), libvirt.VIR_DOMAIN_EVENT_DEFINED, 0)
                hand_over(self._arrived, defined)

        def closed(_c: object, _reason: int, _o: object) -> None:
            hand_over(lost.set)

        register = connect.domainEventRegisterAny
        callbacks = [
            register(None, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, lifecycle, None),
            register(None, libvirt.VIR_DOMAIN_EVENT_ID_REBOOT, reboot, None),
            register(None, libvirt.VIR_DOMAIN_EVENT_ID_METADATA_CHANGE, metadata, None),
        ]
        connect.registerCloseCallback(closed, None)
        self._listening = (connect, callbacks)

    def _deregister(self) -> None:
        """Stop listening, and close that connection: one with callbacks never closes."""
        listening, self._listening = self._listening, None
        if listening is None or not listening[0].isAlive():
            return
        connect, callbacks = listening
        for callback in callbacks:
            connect.domainEventDeregisterAny(callback)
        connect.unregisterCloseCallback()
        connect.close()

    async def _announce(self) -> None:
        """Tell all machines again after an absence, and finish what a dead daemon began."""
        self._roster.clear()
        events = await self.look()
        if self._was_lost:
            for event in events:
                self.feed.publish(event)
        self._was_lost = False
        for uuid in await self._hypervisor.ask(self._half_started, "look for paused machines"):
            if uuid not in self.starting:
                self.tasks.start(self._finished(uuid), name=f"finish start of {uuid}")

    async def _finished(self, uuid: UUID) -> None:
        await self._finish(uuid)

    def _tell_unreachable(self) -> None:
        if not self._was_lost:
            for uuid in self._roster.ours():
                self.publish(uuid, MachineChange.UNREACHABLE, PowerState.UNKNOWN)
        self._was_lost = True

    async def look(self) -> Sequence[MachineEvent]:
        """The power of all our machines, in one bulk call."""
        found = await self._hypervisor.ask(self._states, "list machines")
        return [
            MachineEvent(uuid, MachineChange.OBSERVED, power, why) for uuid, power, why in found
        ]

    def _states(self, connect: Connect) -> list[tuple[UUID, PowerState, str]]:
        stats = connect.getAllDomainStats(libvirt.VIR_DOMAIN_STATS_STATE, 0)
        return [
            (UUID(bytes=domain.UUID()), *self._power(domain, values.get("state.state", 0)))
            for domain, values in stats
            if self._roster.look(domain) is not None
        ]

    def _power(self, domain: Domain, state: int) -> tuple[PowerState, str]:
        """Of a machine that is paused, QEMU knows whether it has failed."""
        if state == libvirt.VIR_DOMAIN_PAUSED:
            reason = PAUSE_REASONS.get(run_state(domain), "")
            return (PowerState.FAILED if reason else PowerState.ON), reason
        return POWER.get(state, PowerState.UNKNOWN), ""

    def _half_started(self, connect: Connect) -> list[UUID]:
        """Machines that were started paused and whose guest never ran."""
        paused = connect.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_PAUSED)
        return [
            UUID(bytes=domain.UUID())
            for domain in paused
            if self._roster.look(domain) is not None and run_state(domain) == PRELAUNCH
        ]

    def _arrived(self, raw: RawEvent) -> None:
        """On the loop, in the order in which libvirt told them."""
        log.debug("libvirt reported", host=self._hypervisor.host, told=raw)
        if isinstance(raw, Rebooted) and raw.uuid in self._resets:
            self._resets.pop(raw.uuid).set()
        stopped = isinstance(raw, Lifecycle) and raw.event == libvirt.VIR_DOMAIN_EVENT_STOPPED
        if raw.uuid not in self.starting or stopped:
            self._raw.put_nowait(raw)

    async def _digest_all(self) -> None:
        while True:
            raw = await self._raw.get()
            try:
                await self._digest(raw)
            except NospoonError as error:
                log.warning("event not understood", host=self._hypervisor.host, why=str(error))

    async def _digest(self, raw: RawEvent) -> None:
        former = None
        if isinstance(raw, Lifecycle) and raw.event == libvirt.VIR_DOMAIN_EVENT_DEFINED:
            former = self._roster.forget(raw.uuid)
        known = self._roster.known(raw.uuid) or await self._find(raw.uuid)
        if known is None:
            if former is not None:  # what it does from now on is not followed
                self.publish(raw.uuid, MachineChange.UNREACHABLE, PowerState.UNKNOWN, UNTAGGED)
            return
        match raw:
            case Rebooted(uuid):
                self._start(self._settling, uuid, self._settle(uuid, SETTLE[known.firmware]))
            case Lifecycle():
                await self._tell(raw)

    async def _find(self, uuid: UUID) -> Known | None:
        def look(connect: Connect) -> Known | None:
            try:
                return self._roster.look(connect.lookupByUUID(uuid.bytes))
            except libvirt.libvirtError:
                return None  # it is gone already, and its UNDEFINED needs no telling

        return await self._hypervisor.ask(look, f"look at domain {uuid}")

    async def _tell(self, raw: Lifecycle) -> None:
        match raw.event:
            case libvirt.VIR_DOMAIN_EVENT_DEFINED:
                await self.tell_looked(raw.uuid, MachineChange.DEFINED)
            case libvirt.VIR_DOMAIN_EVENT_UNDEFINED:
                if await self._runs(raw.uuid):
                    self._roster.lost_definition(raw.uuid)
                else:
                    self._gone(raw.uuid)
            case libvirt.VIR_DOMAIN_EVENT_STARTED:
                restored = raw.detail == libvirt.VIR_DOMAIN_EVENT_STARTED_RESTORED
                change = MachineChange.OBSERVED if restored else MachineChange.STARTED
                self.publish(raw.uuid, change, PowerState.ON)
            case libvirt.VIR_DOMAIN_EVENT_SHUTDOWN:
                self._start(self._ending, raw.uuid, self._see_end(raw))
            case libvirt.VIR_DOMAIN_EVENT_STOPPED:
                _cancel(self._ending, raw.uuid)
                _cancel(self._settling, raw.uuid)
                change, why = STOPPED.get(raw.detail, (MachineChange.STOPPED, ""))
                self.publish(raw.uuid, change, PowerState.OFF, why)
                known = self._roster.known(raw.uuid)
                if known is not None and known.transient:
                    self._gone(raw.uuid)
            case libvirt.VIR_DOMAIN_EVENT_SUSPENDED | libvirt.VIR_DOMAIN_EVENT_RESUMED:
                await self.tell_looked(raw.uuid, MachineChange.OBSERVED)
            case libvirt.VIR_DOMAIN_EVENT_CRASHED:
                self.publish(
                    raw.uuid, MachineChange.CRASHED, PowerState.FAILED, "the guest panicked"
                )

    async def _runs(self, uuid: UUID) -> bool:
        """Whether a domain is running, with a definition or without (a transient one)."""

        def look(connect: Connect) -> bool:
            try:
                return bool(connect.lookupByUUID(uuid.bytes).isActive())
            except libvirt.libvirtError:
                return False

        return await self._hypervisor.ask(look, f"look at domain {uuid}")

    def _gone(self, uuid: UUID) -> None:
        self._roster.forget(uuid)
        _cancel(self._settling, uuid)
        self.publish(uuid, MachineChange.UNDEFINED, PowerState.ABSENT)

    async def tell_looked(self, uuid: UUID, change: MachineChange) -> None:
        """Look at a machine, and tell its power as this event."""

        def look(connect: Connect) -> tuple[PowerState, str]:
            domain = self._roster.find(connect, uuid)
            return self._power(domain, domain.state()[0])

        power, why = await self._hypervisor.ask(look, f"look at machine {uuid}")
        if power is PowerState.FAILED:
            change = MachineChange.FAILED
        self.publish(uuid, change, power, why)

    async def _see_end(self, raw: Lifecycle) -> None:
        """The guest has ended and QEMU is about to. A libvirtd that was restarted meanwhile may
        not tell of the rest (seen with 9.0), so look for it.
        """
        for _ in range(END_LOOKS):
            await asyncio.sleep(END_SECONDS)
            events = await self.look()
            power = next((event.power for event in events if event.uuid == raw.uuid), None)
            if power is PowerState.OFF:
                by_guest = raw.detail == libvirt.VIR_DOMAIN_EVENT_SHUTDOWN_GUEST
                change = MachineChange.SHUTDOWN if by_guest else MachineChange.STOPPED
                self.publish(raw.uuid, change, PowerState.OFF)
            if power is not PowerState.ON:
                return

    async def _settle(self, uuid: UUID, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._settled(uuid)
        self.publish(uuid, MachineChange.RESET, PowerState.ON)

    def _start(
        self, tasks: TasksByMachine, uuid: UUID, work: Coroutine[object, object, None]
    ) -> None:
        """Begin something for a machine, in place of what was under way of the kind."""
        _cancel(tasks, uuid)
        tasks[uuid] = self.tasks.start(work, name=str(uuid))

    async def close(self) -> None:
        await self.tasks.close()
        if self._listening is not None and not self._was_lost:
            try:
                await self._hypervisor.ask(lambda _: self._deregister(), "stop listening")
            except NospoonError as error:
                log.debug("the host was unreachable at the end", why=str(error))


def _cancel(tasks: TasksByMachine, uuid: UUID) -> None:
    task = tasks.pop(uuid, None)
    if task is not None:
        task.cancel()
