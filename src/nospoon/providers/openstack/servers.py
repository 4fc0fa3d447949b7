"""The driver of Kind.MACHINE: servers of Nova, which boot our image and ask it what to do.

https://docs.openstack.org/api-ref/compute/
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from uuid import UUID

import structlog

from nospoon.errors import Conflict, Gone, HostUnreachable, OutOfSpace, ProviderError
from nospoon.model.boot import BootDevice, BootPlan
from nospoon.model.machine import MachineChange, MachineEvent, Outcome, PowerCommand, PowerState
from nospoon.model.node_kind import NodeKind
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.answers import How, text_of
from nospoon.providers.base import ConsoleStream, Medium
from nospoon.providers.feed import EventFeed
from nospoon.providers.openstack.actions import POWER, STARTED_BY, Actions, Settled
from nospoon.providers.openstack.adopted import OwnersServers, nics, of_its_owner
from nospoon.providers.openstack.api import PARALLEL, Service, is_full
from nospoon.providers.openstack.around import Around, NeutronPort
from nospoon.providers.openstack.consoles import serial_console
from nospoon.providers.openstack.drives import KeptMedia
from nospoon.providers.openstack.made_of import MadeOf
from nospoon.providers.openstack.ports import vlan_noted
from nospoon.providers.openstack.records import LONGEST_LOG, Known
from nospoon.providers.openstack.rescue import Rescue
from nospoon.providers.openstack.root_volumes import RootVolumes
from nospoon.providers.openstack.roster import (
    LONGEST_NAME,
    MADE,
    Roster,
    Server,
    metadata,
)
from nospoon.providers.openstack.shown import Ref
from nospoon.providers.openstack.snapshots import KEEP, ServerSnapshots
from nospoon.providers.recorder import Recorder
from nospoon.providers.understood import understood
from nospoon.runtime import clock
from nospoon.runtime.log_rate import RateLimitedLog
from nospoon.runtime.paced import paced

log = structlog.get_logger()
few = RateLimitedLog()
"""For lines of each server at each look."""
GIB = 1 << 30
STARTS = 3
"""Tries to start a server."""
WITH_TYPES = "2.67"
"""Microversion (Stein) from which Nova makes volumes of a type."""
BUILD, REMOVE = 1200, 240
"""Pauses within which Nova builds a server, and removes it."""
SOON, SELDOM = 4, 20
"""Pauses from one look at all servers to the next, while something changes, and while nothing
does.
"""
FLAVORS = 10.0
"""Seconds for which the ids of flavors are taken to be what they were."""
CONSOLES = PARALLEL // 2
"""Logs that are asked for at a time: a host that is busy answers late."""
DISK = BootDevice.DISK
BOOT_ADDRESS = "Give its host a `boot_address` in the file, where it asks what to boot"
BOOTING = {PowerCommand.ON, PowerCommand.CYCLE, PowerCommand.RESET}


@understood
class ServerDriver:
    """`recorder`: keeps consoles, `media`: what is in CD drives, both here. `serve`: begins to
    answer boot images, once there are nodes. `made_of`: images and disks of servers.
    """

    kind = Kind.MACHINE
    boot_order = None
    firmware_keys = None

    def __init__(
        self,
        around: Around,
        owners: OwnersServers,
        recorder: Recorder,
        media: KeptMedia,
        serve: Callable[[], object],
        made_of: MadeOf,
    ) -> None:
        self._around, self._owners, self._made_of = around, owners, made_of
        self._recorder, self._media, self._serve = recorder, media, serve
        self._roster = Roster(around)
        self._actions = Actions(around, self._roster, self._hear)
        self._rescue = Rescue(self._actions, made_of.boot_images)
        self.snapshots = ServerSnapshots(around, self._actions, self._rebuilding)
        self._feed = EventFeed()
        self._known: dict[UUID, MachineEvent] = {}
        self._consoles: dict[UUID, Known] = {}
        self._started: set[UUID] = set()
        self._flavors: dict[str, str] = {}
        self._flavors_end = 0.0
        self._user = -2 - int(around.cloud.login[:8] or "0", 16)

    @property
    def drives(self) -> ServerDriver:
        return self

    @property
    def adoption(self) -> ServerDriver:
        return self

    async def claim(self, resource: Resource, tag: OwnerTag) -> None:
        await self._owners.claim(resource, tag)
        self._publish(
            (await self._actions.must(_machine(resource).uuid)).event(MachineChange.OBSERVED)
        )

    async def release(self, observed: Observed) -> None:
        machine = _shape(observed).uuid
        server = await self._roster.of(machine)
        if server is not None:
            await self._give_back(server, observed.tag)
            await self._owners.release(server, observed.tag)
        self._let_go(machine)
        await self._media.eject(machine)

    async def _give_back(self, server: Server, tag: OwnerTag) -> None:
        """One that boots our image boots its own disk again, or is off if its guest ended."""
        if not (server.is_rescued and server.shape.boot_iso):
            return
        self._owners.check(server, tag)
        now = await self._rescue.leave(server.machine)
        if server.power is not PowerState.ON:
            await self._power_off(now)

    async def insert(self, machine: UUID, medium: Medium) -> None:
        server = await self._actions.must(machine)
        if not server.shape.boot_iso:
            raise of_its_owner(
                server.shape.adopted, "it boots no medium, only its disk", f"{BOOT_ADDRESS}."
            )
        await self._media.insert(machine, medium)

    async def eject(self, machine: UUID) -> None:
        """What is kept here goes, whatever the cloud says of the server."""
        if self._media.path(machine) is None:
            await self._actions.must(machine)
        await self._media.eject(machine)

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        servers = await self._roster.servers(cluster)
        plugged = await nics(self._around) if servers else {}
        found = []
        async for each in paced(servers):
            there = tuple(plugged.get(each.id, ()))
            macs = {nic.mac for nic in there}
            own = tuple(nic for nic in each.shape.nics if nic.mac in macs)
            links = there if each.shape.adopted else own
            # one that was not made to the end has to be changed
            order = each.shape.boot_order if each.made else ()
            shape = replace(each.shape, nics=links, boot_order=order)
            seen = self._around.observed(self.kind, shape, each.tagged, fault=each.fault)
            found.append(replace(seen, running=each.power is PowerState.ON))
        return found

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        """It is off when this returns: Nova starts what it builds, and the boot image waits for an
        answer.
        """
        shape = _machine(resource)
        there = await self._roster.of(shape.uuid)
        if there is not None and there.power is PowerState.FAILED:
            await self._remove(there)
            there = None
        if there is None:
            there = await self._build(resource, shape, tag)
        else:
            self._around.refuse_others(resource.key, there.tagged, tag)
            if there.made:
                return
            there = await self._built(there)
        await self._finish(there)

    async def _finish(self, made: Server) -> None:
        """Power off what Nova started, and note that it is made. One that starts from an image runs
        on: what cloud-init does at its first boot is not to be interrupted.
        """
        if made.shape.kind is NodeKind.BAREMETAL:
            made = await self._stop(made)
            self._consoles[made.machine] = Known(is_over=True)
        body = {"metadata": {MADE: "yes"}}
        path = f"/servers/{made.id}/metadata"
        await self._around.api.call(Service.NOVA, "POST", path, body)
        self._publish(made.event(MachineChange.DEFINED))

    async def _build(self, resource: Resource, shape: Machine, tag: OwnerTag) -> Server:
        ports = [await self._port(resource, nic.mac, tag) for nic in shape.nics]
        server = {
            "name": f"{tag.name}-{resource.key.name}",
            **await self._made_of.of(shape, tag),
            "flavorRef": await self._flavor(shape.flavor),
            "networks": [{"port": each.id} for each in ports] or "none",
            "metadata": metadata(resource.key.name, shape, tag),
            **({"availability_zone": shape.zone} if shape.zone else {}),
        }
        body = {"server": server}
        how: How = {"microversion": WITH_TYPES} if self._around.cloud.volume_type else {}
        id_ = await self._around.api.call(Service.NOVA, "POST", "/servers", body, read=_id, **how)
        self._actions.stir()
        self._roster.know(shape.uuid, UUID(id_))
        try:
            return await self._built(await self._actions.soon(shape.uuid))
        except ProviderError as error:
            await self._forget(id_)
            raise error from None

    async def _built(self, server: Server) -> Server:
        """Once Nova has built it. Raises `ProviderError` with Nova's words where it has not."""
        end = clock.monotonic() + BUILD * self._around.pause
        while clock.monotonic() < end:
            if server.status == "ERROR":
                failure = OutOfSpace if is_full(server.fault) else ProviderError
                raise failure(f"Nova could not build server {server.id}: {server.fault}")
            if not _is_building(server):
                return server
            server = await self._actions.soon(server.machine)
        seconds = BUILD * self._around.pause
        raise ProviderError(f"server {server.id} is not built after {seconds:.0f} s")

    async def _port(self, resource: Resource, mac: str, tag: OwnerTag) -> NeutronPort:
        made = self._around.noted_port(tag.cluster, mac)
        if made is not None and vlan_noted(made) is None:
            return made
        query = {"mac_address": mac}
        async for record in self._around.ports(**query):
            own = self._around.is_own(record.tagged, tag.cluster)
            if own and vlan_noted(record) is None:
                return record
        raise Gone(f"{resource.key} has no port with MAC {mac}", hint="Run `nospoon up` again.")

    async def _flavor(self, name: str) -> str:
        """Its id, which is asked for once for many servers."""
        now = clock.monotonic()
        if now > self._flavors_end:
            self._flavors, self._flavors_end = {}, now + FLAVORS
        if name not in self._flavors:
            self._flavors[name] = await self._flavor_id(name)
        return self._flavors[name]

    async def _flavor_id(self, name: str) -> str:
        listed = self._around.api.listed(Service.NOVA, "/flavors", read=partial(_called, name))
        async for id_ in listed:
            return id_
        raise ProviderError(
            f"cloud {self._around.api.name} has no flavor {name} any more", hint="Plan again."
        )

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        del observed
        shape = _machine(desired)
        if shape.adopted:
            server = await self._roster.of(shape.uuid)
            if server is not None and not shape.boot_iso:
                await self._give_back(server, tag)
            await self.claim(desired, tag)
            return
        server = await self._actions.must(shape.uuid)
        self._around.refuse_others(desired.key, server.tagged, tag)
        if not server.made:
            await self._finish(await self._built(server))
        if server.task or server.status in STARTED_BY:
            await self._take_out(shape.uuid)
        path = f"/servers/{server.id}"
        for nic in shape.nics:
            own = await self._port(desired, nic.mac, tag)
            if own.device != str(server.id):  # a port that goes is unplugged by Neutron
                body = {"interfaceAttachment": {"port_id": own.id}}
                await self._around.api.call(Service.NOVA, "POST", f"{path}/os-interface", body)
        tagged = {"metadata": {**metadata(desired.key.name, shape, tag), MADE: "yes"}}
        await self._around.api.call(Service.NOVA, "PUT", f"{path}/metadata", tagged)

    async def delete(self, observed: Observed) -> None:
        if _shape(observed).adopted:
            await self.release(observed)
            return
        machine = _shape(observed).uuid
        server = await self._actions.looks.now(machine)
        if server is not None:
            self._around.refuse_others(observed.key, server.tagged, observed.tag)
            await self._remove(server)
        self._let_go(machine)
        await self._media.eject(machine)

    def _let_go(self, machine: UUID) -> None:
        if self._known.pop(machine, None) is not None:
            gone = MachineEvent(machine, MachineChange.UNDEFINED, PowerState.ABSENT)
            self._feed.publish(gone)
        self._consoles.pop(machine, None)

    async def _remove(self, server: Server) -> None:
        if server.has_root_volume:
            await RootVolumes(self._around).clear(server)
        await self._forget(str(server.id))
        end = clock.monotonic() + REMOVE * self._around.pause
        while True:
            try:
                await self._actions.soon(server.machine)
            except Gone:
                return
            if clock.monotonic() > end:
                raise ProviderError(
                    f"server {server.id} is still there after {REMOVE * self._around.pause:.0f} s"
                )

    async def _forget(self, id_: str) -> None:
        try:
            await self._around.api.call(Service.NOVA, "DELETE", f"/servers/{id_}")
        except Gone:
            return

    async def power(self, machine: UUID, command: PowerCommand, boot: BootPlan) -> Outcome:
        """`boot` is not needed where a boot image asks for it: a server of others boots its disk,
        or is rescued with the boot image.
        """
        server, was_paused = await self._actions.going_on(machine)
        await self._read_before(server, command)
        on = server.power is PowerState.ON
        if server.shape.adopted:
            asks = _asks(server, command, boot)
            if server.shape.boot_iso and (asks or server.is_rescued):
                return await self._power_by_rescue(server, command, asks=asks)
        match command, on:
            case (PowerCommand.ON, True) if was_paused:
                return Outcome.CONTINUED
            case (PowerCommand.OFF | PowerCommand.SOFT, _) if server.shape.shelved:
                await self._put_away(server)
                return Outcome.CHANGED if on else Outcome.UNCHANGED
            case (PowerCommand.ON, True) | (PowerCommand.OFF | PowerCommand.SOFT, False):
                return Outcome.UNCHANGED
            case (PowerCommand.ON | PowerCommand.CYCLE, False):
                await self._power_on(server)
            case (PowerCommand.OFF, True):
                await self._power_off(server)
            case (PowerCommand.SOFT, True):
                await self._actions.act(machine, {"os-stop": None})
            case (PowerCommand.CYCLE, True):
                await self._power_on(await self._power_off(server))
            case (PowerCommand.RESET, True):
                self._begins(machine)
                await self._actions.act(machine, {"reboot": {"type": "HARD"}})
                now = await self._actions.until(
                    machine, lambda each: each.status == "ACTIVE", POWER
                )
                self._publish(now.event(MachineChange.RESET))
            case (PowerCommand.DIAG, True):
                await self._actions.act(machine, {"trigger_crash_dump": None})
            case _:
                raise ProviderError(f"machine {machine} is off: it cannot do {command}")
        return Outcome.CHANGED

    async def _read_before(self, server: Server, command: PowerCommand) -> None:
        """Its console, but where a command ends with that, or it says no more."""
        known = self._consoles.get(server.machine)
        is_read = command is PowerCommand.OFF if _is_on(server) else known and known.is_over
        if not is_read:
            await self._read_console(server.machine)

    async def _put_away(self, server: Server) -> None:
        """Off, and shelved, which goes on when this returns: Nova copies its root. One whose guest
        powered itself off is shelved, too.
        """
        now = await self._power_off(server)
        if now.status not in STARTED_BY:
            await self._actions.act(server.machine, {"shelve": None})

    async def _take_out(self, machine: UUID) -> None:
        """Of a server that is shelved, on its host and off: Nova changes no other ones."""
        server = await self._actions.until(machine, lambda _: True, KEEP)
        if server.status in STARTED_BY:
            await self._power_off(await self._power_on(server))

    @asynccontextmanager
    async def _rebuilding(self, machine: UUID) -> AsyncIterator[None]:
        """Nova makes its root again meanwhile, and starts and stops it."""
        await self._take_out(machine)
        self._begins(machine)
        yield
        made = await self._actions.must(machine)
        if made.shape.shelved:
            await self._put_away(made)

    async def _power_by_rescue(
        self, server: Server, command: PowerCommand, *, asks: bool
    ) -> Outcome:
        """Of a server of others that boots our image, or does when it `asks` what to boot."""
        machine, on = server.machine, server.power is PowerState.ON
        match command, on:
            case (PowerCommand.ON, True) | (PowerCommand.OFF | PowerCommand.SOFT, False):
                return Outcome.UNCHANGED
            case (PowerCommand.OFF | PowerCommand.SOFT, True):
                await self._power_off(await self._rescue.leave(machine))
            case (PowerCommand.ON | PowerCommand.CYCLE, _) | (PowerCommand.RESET, True):
                self._begins(machine)
                by = self._rescue.enter if asks else self._rescue.leave
                change = MachineChange.RESET if on else MachineChange.STARTED
                self._publish((await by(machine)).event(change))
            case (PowerCommand.DIAG, True):
                await self._actions.act(machine, {"trigger_crash_dump": None})
            case _:
                raise ProviderError(f"machine {machine} is off: it cannot do {command}")
        return Outcome.CHANGED

    async def _power_on(self, server: Server) -> Server:
        """A start that fails on its host leaves the server off without a word, such as where Nova
        gave the port of one's serial console to another that started meanwhile: it is begun again.
        """
        machine = server.machine
        self._begins(machine)
        for left in reversed(range(STARTS)):
            if server.task:
                server = await self._actions.afterwards(machine, lambda _: True, KEEP)
            pauses = KEEP if server.status in STARTED_BY else POWER
            await self._actions.act(machine, {STARTED_BY.get(server.status, "os-start"): None})
            is_on = Settled(lambda each: each.power is PowerState.ON)
            server = await self._actions.afterwards(machine, is_on, pauses)
            if server.power is PowerState.ON:
                self._publish(server.event(MachineChange.STARTED))
                return server
            log.warning("a server did not start", server=str(server.id), tries_left=left)
        raise ProviderError(
            f"server {server.id} did not start: it is {server.status} again after {STARTS} tries",
            hint="Nova's log of its host says why.",
        )

    async def _power_off(self, server: Server) -> Server:
        server = await self._stop(server)
        await self._read_console(server.machine)
        return server

    async def _stop(self, server: Server) -> Server:
        machine = server.machine
        if server.power is PowerState.ON:
            await self._actions.act(machine, {"os-stop": None})
        if server.power is PowerState.ON or server.task:
            server = await self._actions.afterwards(machine, _is_off, POWER)
        self._publish(server.event(MachineChange.STOPPED))
        return server

    async def machines(self) -> Sequence[MachineEvent]:
        events = [
            each.event(MachineChange.OBSERVED)
            async for each in paced(await self._roster.servers())
            if not _is_building(each) and self._around.at_home(each.machine)
        ]
        self._known |= {each.uuid: each for each in events}
        return events

    async def watch(self) -> AsyncIterator[MachineEvent]:
        self._serve()
        with self._feed.listen() as queue:
            looked = clock.monotonic()
            await self._actions.looks.since(looked)
            for event in await self.machines():
                yield event
            away = False
            while True:
                looks = SOON if self._actions.is_restless else SELDOM
                left = looked + looks * self._around.pause - clock.monotonic()
                heard = await _next(queue, left)
                if heard is not None:
                    yield heard
                    continue
                before, looked = looked, clock.monotonic()
                try:
                    await self._actions.looks.since(before)
                    await self._read_consoles()
                except HostUnreachable as error:
                    name = self._around.api.name
                    log.warning("cloud does not answer", cloud=name, why=str(error))
                    for each in [] if away else list(self._known.values()):
                        yield replace(
                            each, change=MachineChange.UNREACHABLE, power=PowerState.UNKNOWN
                        )
                    away = True
                    continue
                if away:
                    away = False
                    for event in await self.machines():
                        yield event

    async def _hear(self, servers: Collection[Server], gone: Collection[UUID]) -> None:
        """What happened that we did not do."""
        async for each in paced(servers):
            before = self._known.get(each.machine)
            if each.task or _is_building(each) or before is None or before.power is each.power:
                continue  # what is made here is published where it is made
            event = each.event(CHANGES.get(each.power, MachineChange.OBSERVED))
            if event.power is PowerState.ON:
                self._begins(each.machine)
            self._publish(event)
        for machine, known in list(self._known.items()) if gone else ():
            if known.smbios in gone:
                del self._known[machine]
                self._feed.publish(
                    replace(known, change=MachineChange.UNDEFINED, power=PowerState.ABSENT)
                )

    def _publish(self, event: MachineEvent) -> None:
        self._known[event.uuid] = event
        self._feed.publish(event)

    def _begins(self, machine: UUID) -> None:
        """It is started, and its console may begin from the start."""
        self._started.add(machine)
        known = self._consoles.setdefault(machine, Known())
        known.begin(clock.monotonic(), SOON * self._around.pause)

    async def _read_consoles(self) -> None:
        """Of those that are on and due; what one cannot be asked for is asked for again."""
        on = [each.uuid for each in self._known.values() if self._is_due(each)]
        for first in range(0, len(on), CONSOLES):
            some = on[first : first + CONSOLES]
            await asyncio.gather(*(self._try_console(each) for each in some))

    def _is_due(self, each: MachineEvent) -> bool:
        if each.power is not PowerState.ON:
            return False
        known = self._consoles.get(each.uuid)
        return known is None or clock.monotonic() >= known.due

    async def _try_console(self, machine: UUID) -> None:
        try:
            await self._read_console(machine)
        except ProviderError as error:
            name = self._around.api.name
            few.info("console not read", of=name, machine=str(machine), why=str(error))

    async def _read_console(self, machine: UUID) -> None:
        """What it said since, into its record. A server that is not built yet has said nothing."""
        server = self._known.get(machine)
        if server is None or server.smbios is None or not self._around.at_home(machine):
            return
        path = f"/servers/{server.smbios}/action"
        try:
            text = await self._around.api.call(
                Service.NOVA, "POST", path, {"os-getConsoleOutput": {}}, read=_said
            )
        except (Gone, Conflict):
            return
        known = self._consoles.setdefault(machine, Known())
        known.is_over = server.power is not PowerState.ON
        fresh = await asyncio.to_thread(known.more, text, restarted=machine in self._started)
        known.rest(clock.monotonic(), said=len(fresh), shortest=SOON * self._around.pause)
        if fresh:
            self._started.discard(machine)
            self._recorder.take(machine, fresh.encode(), self._user)

    async def console(self, machine: UUID) -> ConsoleStream:
        server = await self._actions.must(machine)
        if server.power is not PowerState.ON:
            raise ProviderError(f"machine {machine} is off: its console says nothing")
        return await serial_console(self._around.api, str(server.id))

    def console_record(self, machine: UUID) -> str:
        return str(self._recorder.path(machine) or "")


CHANGES = {
    PowerState.ON: MachineChange.STARTED,
    PowerState.OFF: MachineChange.SHUTDOWN,
    PowerState.FAILED: MachineChange.FAILED,
}


async def _next(queue: asyncio.Queue[MachineEvent], seconds: float) -> MachineEvent | None:
    """None where there is none within these seconds, or none are left."""
    if seconds <= 0:
        return None
    try:
        async with asyncio.timeout(seconds):
            return await queue.get()
    except TimeoutError:
        return None


def _asks(server: Server, command: PowerCommand, boot: BootPlan) -> bool:
    """Whether one of others is to boot something else than its disk. Raises `ProviderError` where
    it cannot.
    """
    is_on = server.power is PowerState.ON
    boots = command in BOOTING and not (is_on and command is PowerCommand.ON)
    asks = boots and boot.now[:1] not in {(), (DISK,)}
    if asks and not server.shape.boot_iso:
        raise of_its_owner(
            server.shape.adopted,
            f"Nova boots its disk, not {boot.now[0]}",
            f"{BOOT_ADDRESS}, or set its boot device to disk: `nospoon node boot NODE disk`.",
        )
    return asks


def _id(answer: Mapping[str, Ref]) -> str:
    return text_of(answer["server"]["id"])[:LONGEST_NAME]


def _called(name: str, record: Mapping[str, object]) -> str | None:
    """The id of a flavor, if it has this name."""
    return text_of(record["id"])[:LONGEST_NAME] if record["name"] == name else None


def _said(answer: Mapping[str, object]) -> str:
    """The end of a console log; its thread is a call's."""
    return text_of(answer["output"])[-LONGEST_LOG:]


def _is_on(server: Server) -> bool:
    return server.power is PowerState.ON


def _is_off(server: Server) -> bool:
    return server.power is not PowerState.ON


def _is_building(server: Server) -> bool:
    return server.status == "BUILD"


def _machine(resource: Resource) -> Machine:
    assert isinstance(resource.shape, Machine), "machine keys have machine shapes"
    return resource.shape


def _shape(observed: Observed) -> Machine:
    assert isinstance(observed.shape, Machine), "machine keys have machine shapes"
    return observed.shape
