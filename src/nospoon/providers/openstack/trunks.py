"""Trunks of Neutron: the port of a NIC, and ports of the same MAC whose frames it gets tagged.

https://docs.openstack.org/api-ref/network/v2/#trunk-networking

A port has a trunk before its server starts: Neutron's agents for Open vSwitch make none of a port
that is bound to a host, and remove none of it (neutron, `TrunkPortValidator`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import UUID

from nospoon.errors import Conflict, Gone, ProviderError
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.networks import Carried, Trunk
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.openstack.api import MOST_LISTED, Service
from nospoon.providers.openstack.around import TRUNKS, Around, NeutronPort
from nospoon.providers.openstack.ports import file_name, vlan_noted
from nospoon.providers.openstack.shown import ServerShown
from nospoon.providers.openstack.tags import Tagged, described, of_description, short
from nospoon.providers.understood import understood
from nospoon.runtime import clock
from nospoon.runtime.paced import paced

PATH = "/trunks"
MOST_CARRIED = 4094
"""Ports of a trunk that are looked at: there are so many VLANs (IEEE 802.1Q). All trunks of a cloud
have no more than it has ports.
"""
UNPLUG = 120
"""Pauses within which Nova takes a port out of a server that is off."""
OFF = "SHUTOFF"


@dataclass(frozen=True, slots=True)
class _Trunk:
    """What is kept of a trunk. `parent`: the id of its port; `carries`: ids of ports -> VLAN."""

    id: str
    parent: str
    carries: Mapping[str, int]
    tagged: Tagged | None


@understood
class TrunkDriver:
    kind = Kind.TRUNK

    def __init__(self, around: Around) -> None:
        self._around = around

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        own = [
            (each, tagged)
            async for each in paced(await self._all())
            if (tagged := each.tagged) is not None and self._around.is_own(tagged, cluster)
        ]
        if not own:
            return []
        names = {each.id: each.name for each in await self._around.networks()}
        ports = {each.id: each for each in await self._ports()}
        found = []
        async for record, tagged in paced(own):
            parent = ports.get(record.parent)
            if parent is None:
                continue  # it went meanwhile, and its trunk with it
            carries = tuple(
                sorted(
                    Carried(vlan, file_name(ports[id_], names))
                    for id_, vlan in record.carries.items()
                    if id_ in ports
                )
            )
            shape = Trunk(file_name(parent, names), parent.mac, carries)
            found.append(self._around.observed(self.kind, shape, tagged))
        return found

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        parent, wanted = await self._wanted(resource, tag)
        there = next((each for each in await self._all() if each.parent == parent.id), None)
        if there is not None:
            self._around.refuse_others(resource.key, there.tagged, tag)
            await self._carry(there, wanted)
            return
        body = {
            "port_id": parent.id,
            "name": f"{tag.name}-{resource.key.name}",
            "description": described(Tagged(tag, resource.key.name)),
            "sub_ports": _sub_ports(wanted),
        }
        await self._of_one_in_use("POST", PATH, parent, {"trunk": body})

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        there = await self._own(observed.key, tag)
        if there is None:
            raise Gone(f"{observed.key} no longer exists", hint="Plan again.")
        _, wanted = await self._wanted(desired, tag)
        await self._carry(there, wanted)

    async def delete(self, observed: Observed) -> None:
        there = await self._own(observed.key, observed.tag)
        if there is None:
            return
        parent = next((each for each in await self._ports() if each.id == there.parent), None)
        path = f"{PATH}/{there.id}"
        try:
            await self._of_one_in_use("DELETE", path, parent)
        except Gone as error:
            await self._around.api.require_unlisted(error, Service.NEUTRON, path)

    async def _wanted(
        self, resource: Resource, tag: OwnerTag
    ) -> tuple[NeutronPort, dict[str, int]]:
        """The port that gets the frames, and whose they are with which tag. Raises `Gone`."""
        shape = _trunk(resource)
        own = {
            vlan_noted(each): each
            for each in await self._ports(mac_address=shape.mac)
            if self._around.is_own(each.tagged, tag.cluster)
        }
        names = {each.id: each.name for each in await self._around.networks()}

        def plug(network: str, vlan: int | None) -> NeutronPort:
            found = own.get(vlan)
            if found is None or network not in {found.network, names.get(found.network)}:
                what = f"no port with MAC {shape.mac} on {network}"
                raise Gone(f"{resource.key} has {what}", hint="Run `nospoon up` again.")
            return found

        carries = {plug(each.network, each.vlan).id: each.vlan for each in shape.carries}
        return plug(shape.network, None), carries

    async def _carry(self, there: _Trunk, wanted: Mapping[str, int]) -> None:
        """What is no longer wanted goes first: a VLAN is of one port."""
        path = f"{PATH}/{there.id}"
        gone = {id_: vlan for id_, vlan in there.carries.items() if wanted.get(id_) != vlan}
        more = {id_: vlan for id_, vlan in wanted.items() if there.carries.get(id_) != vlan}
        if gone:
            body: dict[str, object] = {"sub_ports": [{"port_id": each} for each in gone]}
            await self._around.api.call(Service.NEUTRON, "PUT", f"{path}/remove_subports", body)
        if more:
            body = {"sub_ports": _sub_ports(more)}
            await self._around.api.call(Service.NEUTRON, "PUT", f"{path}/add_subports", body)

    async def _of_one_in_use(
        self,
        method: str,
        path: str,
        parent: NeutronPort | None,
        body: Mapping[str, object] | None = None,
    ) -> None:
        """Also where Neutron does it for a port alone that no server has."""
        try:
            await self._around.api.call(Service.NEUTRON, method, path, body)
        except Conflict:
            if parent is None or not parent.device:
                raise
            async with self._unplugged(parent):
                await self._around.api.call(Service.NEUTRON, method, path, body)

    @asynccontextmanager
    async def _unplugged(self, parent: NeutronPort) -> AsyncIterator[None]:
        """A port is out of its server meanwhile. Raises `ProviderError` for one that is on: what
        its guest does not let go of stays.
        """
        call, server = self._around.api.call, parent.device
        status = await self._settled(server)
        if status != OFF:
            raise ProviderError(
                f"server {server} is {status}: Neutron makes and removes no trunk of a port that "
                "it uses",
                hint="Power the node off, and run `nospoon up` again.",
            )
        path = f"/servers/{server}/os-interface"
        await call(Service.NOVA, "DELETE", f"{path}/{parent.id}")
        end = clock.monotonic() + UNPLUG * self._around.pause
        while any(e.device for e in await self._ports(id=parent.id)):
            if clock.monotonic() > end:
                took = f"{UNPLUG * self._around.pause:.0f} s"
                raise ProviderError(f"server {server} still has port {parent.id} after {took}")
            await asyncio.sleep(self._around.pause)
        try:
            yield
        finally:
            plug = {"interfaceAttachment": {"port_id": parent.id}}
            await call(Service.NOVA, "POST", path, plug)

    async def _settled(self, server: str) -> str:
        """Its status, once Nova is done with what it does: a BMC answers before its node is off."""
        end = clock.monotonic() + UNPLUG * self._around.pause
        while True:
            path = f"/servers/{server}"
            status, task = await self._around.api.call(Service.NOVA, "GET", path, read=_status)
            if not task or clock.monotonic() > end:
                return status
            await asyncio.sleep(self._around.pause)

    async def _all(self) -> list[_Trunk]:
        """None in a cloud that has no trunks."""
        listed = self._around.api.listed(Service.NEUTRON, PATH, read=_record)
        found, carried = list[_Trunk](), 0
        try:
            async for each in listed:
                found.append(each)
                carried += len(each.carries)
                if carried > MOST_LISTED:  # each port is in one trunk
                    raise ProviderError(
                        f"Neutron of cloud {self._around.api.name} lists trunks with more than "
                        f"{MOST_LISTED} ports"
                    )
        except Gone as error:
            await self._around.require_lack(TRUNKS, error)
            return []
        return found

    async def _ports(self, **query: str) -> list[NeutronPort]:
        return [each async for each in self._around.ports(**query)]

    async def _own(self, key: Key, tag: OwnerTag) -> _Trunk | None:
        for each in await self._all():
            tagged = each.tagged
            is_own = self._around.is_own(tagged, tag.cluster)
            if is_own and tagged is not None and tagged.name == key.name:
                return each
        return None


def _sub_ports(wanted: Mapping[str, int]) -> list[dict[str, object]]:
    return [
        {"port_id": id_, "segmentation_type": "vlan", "segmentation_id": vlan}
        for id_, vlan in wanted.items()
    ]


def _record(record: Mapping[str, object]) -> _Trunk:
    carried = record.get("sub_ports") or []
    if not isinstance(carried, list):
        raise TypeError("ports of a trunk are not a list")
    return _Trunk(
        id=short(record["id"]),
        parent=short(record["port_id"]),
        carries={
            short(each["port_id"]): int(short(each["segmentation_id"]))
            for each in carried[:MOST_CARRIED]
        },
        tagged=of_description(record.get("description")),
    )


def _status(answer: Mapping[str, ServerShown]) -> tuple[str, str]:
    """And what Nova is doing with the server, "" for nothing."""
    server = answer["server"]
    return short(server["status"]), short(server.get("OS-EXT-STS:task_state") or "")


def _trunk(resource: Resource) -> Trunk:
    assert isinstance(resource.shape, Trunk), "trunk keys have trunk shapes"
    return resource.shape
