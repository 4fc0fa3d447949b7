"""The driver of Kind.MACHINE: servers of Nova, which boot our image and ask it what to do.

https://docs.openstack.org/api-ref/compute/
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from uuid import UUID

from nospoon.errors import (
    Gone,
    HostUnreachable,
    NoComputeHost,
    OutOfSpace,
    ProviderError,
    Transient,
)
from nospoon.model.boot import BootPlan
from nospoon.model.machine import MachineChange, MachineEvent, Outcome, PowerCommand, PowerState
from nospoon.model.node_kind import NodeKind
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.answers import How, text_of
from nospoon.providers.base import ConsoleStream, Medium
from nospoon.providers.openstack.actions import STARTED_BY, Actions
from nospoon.providers.openstack.adopted import OwnersServers, nics, of_its_owner
from nospoon.providers.openstack.api import Service, is_full, is_nowhere
from nospoon.providers.openstack.around import Around, NeutronPort
from nospoon.providers.openstack.console_records import ConsoleRecords
from nospoon.providers.openstack.consoles import serial_console
from nospoon.providers.openstack.drives import KeptMedia
from nospoon.providers.openstack.looks import SOON
from nospoon.providers.openstack.made_of import MadeOf
from nospoon.providers.openstack.ports import vlan_noted
from nospoon.providers.openstack.power import BOOT_ADDRESS, Power
from nospoon.providers.openstack.rescue import Rescue
from nospoon.providers.openstack.root_volumes import RootVolumes
from nospoon.providers.openstack.roster import (
    GONE,
    LONGEST_NAME,
    MADE,
    Roster,
    Server,
    is_building,
    metadata,
)
from nospoon.providers.openstack.server_groups import ServerGroupDriver
from nospoon.providers.openstack.shown import Ref, ServerShown
from nospoon.providers.openstack.snapshots import ServerSnapshots
from nospoon.providers.openstack.watched import Watched
from nospoon.providers.recorder import Recorder
from nospoon.providers.understood import understood
from nospoon.runtime import clock
from nospoon.runtime.paced import paced

WITH_TYPES = "2.67"
"""Microversion (Stein) from which Nova makes volumes of a type."""
BUILD, REMOVE = 1200, 240
"""Pauses within which Nova builds a server, and removes it."""
NEEDS_LXC = (
    "A container needs a compute host with `virt_type = lxc`, which `openstack hypervisor list` "
    "shows to administrators, and Nova's ImagePropertiesFilter."
)
LATE = 120
"""Pauses for which a cloud may still make a server, when it did not answer in time."""
REFUSED = 503
"""Status of a call that no one has carried out (RFC 9110 §15.6.4)."""
FLAVORS = 10.0
"""Seconds for which the ids of flavors are taken to be what they were."""


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
        groups: ServerGroupDriver,
    ) -> None:
        self._around, self._owners, self._made_of = around, owners, made_of
        self._groups = groups
        self._media, self._boot_images = media, made_of.boot_images
        self._roster = Roster(around)
        self._consoles = ConsoleRecords(around, recorder)
        self._watched = Watched(around, self._roster, self._consoles, serve)
        self._actions = Actions(around, self._roster, self._watched.looks)
        self._rescue = Rescue(self._actions, made_of.boot_images)
        self._power = Power(self._actions, self._rescue, self._watched, self._consoles)
        self.snapshots = ServerSnapshots(
            around,
            self._actions,
            rebuilding=self._power.rebuilding,
            stopped=self._power.stopped,
        )
        self._flavors: dict[str, str] = {}
        self._flavors_end = 0.0
        self._late: dict[UUID, float] = {}
        """Until when the cloud may make servers of these machines that it did not answer for."""

    @property
    def drives(self) -> ServerDriver:
        return self

    @property
    def adoption(self) -> ServerDriver:
        return self

    async def claim(self, resource: Resource, tag: OwnerTag) -> None:
        await self._owners.claim(resource, tag)
        self._watched.publish(
            (await self._actions.must(_machine(resource).uuid)).event(MachineChange.OBSERVED)
        )

    async def release(self, observed: Observed) -> None:
        machine = _shape(observed).uuid
        server = await self._roster.of(machine)
        if server is not None:
            await self._give_back(server, observed.tag)
            await self._owners.release(server, observed.tag)
        self._watched.let_go(machine)
        await self._media.eject(machine)

    async def _give_back(self, server: Server, tag: OwnerTag) -> None:
        """One that boots our image boots its own disk again, or is off if its guest ended."""
        if not (server.is_rescued and server.shape.asks):
            return
        self._owners.check(server, tag)
        now = await self._rescue.leave(server.machine)
        if server.power is not PowerState.ON:
            await self._power.power_off(now)

    async def insert(self, machine: UUID, medium: Medium) -> None:
        server = await self._actions.must(machine)
        if not server.shape.asks:
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
        grouped = any(each.shape.group for each in servers)
        groups = await self._groups.of_servers(cluster) if grouped else {}
        urls = await self._boot_images.urls() if any(map(_is_unnoted, servers)) else {}
        found = []
        async for each in paced(servers):
            there = tuple(plugged.get(each.id, ()))
            macs = {nic.mac for nic in there}
            own = tuple(nic for nic in each.shape.nics if nic.mac in macs)
            links = there if each.shape.adopted else own
            # one that was not made to the end has to be changed
            is_whole = each.made and not self._roster.twins(each.machine)
            order = each.shape.boot_order if is_whole else ()
            group = groups.get(str(each.id), "")
            shape = replace(each.shape, nics=links, boot_order=order, group=group)
            if _is_unnoted(each):
                shape = replace(shape, asks_at=urls.get(each.image, ""))
            seen = self._around.observed(self.kind, shape, each.tagged, fault=each.fault)
            found.append(replace(seen, running=each.power is PowerState.ON))
        return found

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        """It is off when this returns: Nova starts what it builds, and the boot image waits for an
        answer.
        """
        shape = _machine(resource)
        there = await self._expected(shape.uuid)
        await self._remove_twins(shape.uuid)
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
            made = await self._power.stop(made)
            self._consoles.pass_over(made.machine)
        body = {"metadata": {MADE: "yes"}}
        path = f"/servers/{made.id}/metadata"
        await self._around.api.call(Service.NOVA, "POST", path, body)
        self._watched.publish(made.event(MachineChange.DEFINED))

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
        body: dict[str, object] = {"server": server}
        if shape.group:
            group = await self._groups.id_of(shape.group, tag.cluster)
            body["os:scheduler_hints"] = {"group": group}
        how: How = {"microversion": WITH_TYPES} if self._around.cloud.volume_type else {}
        call = self._around.api.call
        try:
            id_ = await call(Service.NOVA, "POST", "/servers", body, read=_id, **how)
        except HostUnreachable as error:
            if error.status != REFUSED:
                self._expect(shape.uuid)
            raise
        self._watched.looks.stir()
        self._roster.know(shape.uuid, UUID(id_))
        try:
            return await self._built(await self._actions.soon(shape.uuid))
        except Transient:
            raise  # it goes on being built, and the next try finds it
        except ProviderError as error:
            await self._forget(id_)
            raise error from None

    def _expect(self, machine: UUID) -> None:
        now = clock.monotonic()
        while self._late and next(iter(self._late.values())) <= now:
            del self._late[next(iter(self._late))]  # of those that no one tried again
        self._late.pop(machine, None)  # the latest one is the last
        self._late[machine] = now + LATE * self._around.pause

    async def _expected(self, machine: UUID) -> Server | None:
        """The server of a machine; where the cloud was asked for one, and did not answer, once it
        shows that. None where it shows none in time.
        """
        end = self._late.pop(machine, 0.0)
        while True:
            there = await self._roster.of(machine)
            if there is not None or clock.monotonic() >= end:
                return there
            await asyncio.sleep(SOON * self._around.pause)

    async def _remove_twins(self, machine: UUID) -> None:
        """Once the cloud has none."""
        for id_ in self._roster.twins(machine):
            path, end = f"/servers/{id_}", clock.monotonic() + REMOVE * self._around.pause
            await self._around.api.delete(Service.NOVA, path)
            while await self._around.api.get(Service.NOVA, path, read=_is_there):
                if clock.monotonic() > end:
                    raise ProviderError(f"server {id_}, which is one too many, is still there")
                await asyncio.sleep(SOON * self._around.pause)
        self._roster.twins_went(machine)

    async def _built(self, server: Server) -> Server:
        """Once Nova has built it. Raises `ProviderError` with Nova's words where it has not."""
        end = clock.monotonic() + BUILD * self._around.pause
        while clock.monotonic() < end:
            if server.status == "ERROR":
                why = f"Nova could not build server {server.id}: {server.fault}"
                is_container = server.shape.kind is NodeKind.CONTAINER
                raise _failure(server.fault)(why, hint=NEEDS_LXC if is_container else "")
            if not is_building(server):
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
            if server is not None and not shape.asks:
                await self._give_back(server, tag)
            await self.claim(desired, tag)
            return
        server = await self._actions.must(shape.uuid)
        self._around.refuse_others(desired.key, server.tagged, tag)
        await self._remove_twins(shape.uuid)
        if not server.made and server.power is PowerState.FAILED:
            await self.create(desired, tag)  # a daemon that died before it was deleted
            return
        if not server.made:
            await self._finish(await self._built(server))
        was_away = False
        if server.task or server.status in STARTED_BY:
            was_away = await self._power.take_out(shape.uuid)
        path = f"/servers/{server.id}"
        for nic in shape.nics:
            own = await self._port(desired, nic.mac, tag)
            if own.device != str(server.id):  # a port that goes is unplugged by Neutron
                body = {"interfaceAttachment": {"port_id": own.id}}
                await self._around.api.call(Service.NOVA, "POST", f"{path}/os-interface", body)
        tagged = {"metadata": {**metadata(desired.key.name, shape, tag), MADE: "yes"}}
        await self._around.api.call(Service.NOVA, "PUT", f"{path}/metadata", tagged)
        if was_away and shape.shelved:
            await self._power.put_away(await self._actions.must(shape.uuid))

    async def delete(self, observed: Observed) -> None:
        if _shape(observed).adopted:
            await self.release(observed)
            return
        machine = _shape(observed).uuid
        server = await self._watched.looks.now(machine)
        if server is None:  # by a 404, or by a list
            there = await self._roster.servers(observed.tag.cluster)
            server = next((each for each in there if each.machine == machine), None)
        if server is not None:
            self._around.refuse_others(observed.key, server.tagged, observed.tag)
            await self._remove_twins(machine)
            await self._remove(server)
        self._watched.let_go(machine)
        await self._media.eject(machine)

    async def _remove(self, server: Server) -> None:
        if server.has_root_volume:
            await RootVolumes(self._around).clear(server)
        await self._forget(str(server.id))
        end = clock.monotonic() + REMOVE * self._around.pause
        while True:
            try:
                await self._actions.soon(server.machine)
            except Gone:
                await self._boot_images.left(server.image)
                return
            if clock.monotonic() > end:
                raise ProviderError(
                    f"server {server.id} is still there after {REMOVE * self._around.pause:.0f} s"
                )

    async def _forget(self, id_: str) -> None:
        await self._around.api.delete(Service.NOVA, f"/servers/{id_}")

    async def power(self, machine: UUID, command: PowerCommand, boot: BootPlan) -> Outcome:
        return await self._power.power(machine, command, boot)

    async def machines(self) -> Sequence[MachineEvent]:
        return await self._watched.machines()

    async def watch(self) -> AsyncIterator[MachineEvent]:
        async for event in self._watched.watch():
            yield event

    async def console(self, machine: UUID) -> ConsoleStream:
        server = await self._actions.must(machine)
        if server.power is not PowerState.ON:
            raise ProviderError(f"machine {machine} is off: its console says nothing")
        return await serial_console(self._around.api, str(server.id))

    def console_record(self, machine: UUID) -> str:
        return self._consoles.path(machine)


def _failure(fault: str) -> type[ProviderError]:
    if is_nowhere(fault):
        return NoComputeHost
    return OutOfSpace if is_full(fault) else ProviderError


def _id(answer: Mapping[str, Ref]) -> str:
    return text_of(answer["server"]["id"])[:LONGEST_NAME]


def _is_there(answer: Mapping[str, ServerShown]) -> bool:
    return text_of(answer["server"]["status"]) not in GONE


def _called(name: str, record: Mapping[str, object]) -> str | None:
    """The id of a flavor, if it has this name."""
    return text_of(record["id"])[:LONGEST_NAME] if record["name"] == name else None


def _is_unnoted(server: Server) -> bool:
    """Whether an earlier version made it, which did not note where it asks: its image may say."""
    shape = server.shape
    return shape.asks and not shape.adopted and not shape.asks_at


def _machine(resource: Resource) -> Machine:
    assert isinstance(resource.shape, Machine), "machine keys have machine shapes"
    return resource.shape


def _shape(observed: Observed) -> Machine:
    assert isinstance(observed.shape, Machine), "machine keys have machine shapes"
    return observed.shape
