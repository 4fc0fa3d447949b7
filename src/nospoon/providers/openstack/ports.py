"""Ports of Neutron: one for each NIC, with its MAC.

https://docs.openstack.org/api-ref/network/v2/#ports
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from nospoon.errors import Conflict, Gone
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.networks import Port
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.openstack.api import Service
from nospoon.providers.openstack.around import PAIRS, Around, NeutronNetwork, NeutronPort, port
from nospoon.providers.openstack.tags import Tagged, described
from nospoon.providers.understood import understood

BY_ID, MARK = "id", "+"
"""Noted of a port whose network the file names by id; and between notes."""
CHOSEN, VLAN = "chosen", "vlan="
"""Noted of a port whose address is chosen, and of one on a trunk: with which tag."""


@understood
class PortDriver:
    kind = Kind.PORT

    def __init__(self, around: Around) -> None:
        self._around = around

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        names = {each.id: each.name for each in await self._around.networks()}
        found = []
        async for record in self._around.ports():
            tagged = record.tagged
            if tagged is None or not self._around.is_own(tagged, cluster):
                continue
            noted, *notes = tagged.more.split(MARK)
            given = noted if noted != BY_ID and record.subnet else ""
            shape = Port(
                file_name(record, names),
                record.mac,
                record.guarded,
                record.virtual_ips,
                given,
                record.address if CHOSEN in notes else "",
                vlan_noted(record),
            )
            found.append(self._around.observed(self.kind, shape, tagged))
        return found

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        shape = _port(resource)
        network = await self._around.network(shape.network)
        noted = _noted(shape, by_id=shape.network == network.id)
        body = {
            "network_id": network.id,
            "mac_address": shape.mac,
            "name": f"{tag.name}-{resource.key.name}",
            "description": described(Tagged(tag, resource.key.name, noted)),
            "port_security_enabled": shape.guarded,
            **({PAIRS: _pairs(shape)} if shape.virtual_ips else {}),
            **await self._addressed(shape, network),
        }
        try:
            made = await self._send("POST", "/ports", body, shape, network, tag)
        except Conflict:
            there = await self._with(shape, network.id)
            for record in there:
                self._around.refuse_others(resource.key, record.tagged, tag)
            if not there:
                raise
        else:
            self._around.note_port(tag.cluster, made)

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        """Its virtual IPs and its address; with any other change it is replaced."""
        shape = _port(desired)
        network = await self._around.network(shape.network)
        records = await self._with(shape, network.id)
        if not records:
            raise Gone(f"{observed.key} no longer exists", hint="Plan again.")
        for record in records:
            self._around.refuse_others(desired.key, record.tagged, tag)
            body: dict[str, object] = {PAIRS: _pairs(shape)} if shape.guarded else {}
            if network.tagged is not None or shape.address:
                by_id = network.tagged is None and shape.network == network.id
                noted = Tagged(tag, desired.key.name, _noted(shape, by_id=by_id))
                body |= {"description": described(noted), **await self._addressed(shape, network)}
            await self._send("PUT", f"/ports/{record.id}", body, shape, network, tag)

    async def delete(self, observed: Observed) -> None:
        shape = observed.shape
        assert isinstance(shape, Port), "port keys have port shapes"
        network = await self._around.network(shape.network)
        for record in await self._with(shape, network.id):
            self._around.refuse_others(observed.key, record.tagged, observed.tag)
            await self._around.api.delete(Service.NEUTRON, f"/ports/{record.id}")

    async def _addressed(self, shape: Port, network: NeutronNetwork) -> dict[str, object]:
        """What is said of its addresses. Without one, on networks of nospoon without a router, Nova
        takes it by `ip_allocation: none`.
        """
        chosen = {"ip_address": shape.address} if shape.address else {}
        if network.tagged is None:
            return {"fixed_ips": [chosen]} if chosen else {}
        subnets = await self._around.subnets(network.id) if shape.range else []
        own = [each.id for each in subnets if each.cidr == shape.range]
        return {"fixed_ips": [{"subnet_id": each, **chosen} for each in own]}

    async def _send(
        self,
        method: str,
        path: str,
        body: Mapping[str, object],
        shape: Port,
        network: NeutronNetwork,
        tag: OwnerTag,
    ) -> NeutronPort:
        call, sent = self._around.api.call, {"port": body}
        try:
            return await call(Service.NEUTRON, method, path, sent, read=_answered)
        except Conflict:
            if not await self._freed(shape, network, tag):
                raise
            return await call(Service.NEUTRON, method, path, sent, read=_answered)

    async def _freed(self, shape: Port, network: NeutronNetwork, tag: OwnerTag) -> bool:
        """Whether another port of its cluster had its address, and has another one now: a relay
        gives addresses in an order of its own, and ports had those of the cloud's choice before.
        """
        query = {"network_id": network.id}
        async for each in self._around.ports(**query):
            own = self._around.is_own(each.tagged, tag.cluster)
            if own and each.mac != shape.mac and shape.address == each.address != "":
                for addresses in ([], [{"subnet_id": each.subnet}]):  # it would keep the same one
                    body = {"port": {"fixed_ips": addresses}}
                    await self._around.api.call(Service.NEUTRON, "PUT", f"/ports/{each.id}", body)
                return True
        return False

    async def _with(self, shape: Port, network: str) -> list[NeutronPort]:
        query = {"mac_address": shape.mac, "network_id": network}
        return [each async for each in self._around.ports(**query)]


def _answered(answer: Mapping[str, Mapping[str, object]]) -> NeutronPort:
    return port(answer["port"])


def _noted(shape: Port, *, by_id: bool = False) -> str:
    notes = [BY_ID if by_id else shape.range]
    notes += [CHOSEN] * bool(shape.address)
    notes += [f"{VLAN}{shape.vlan}"] * (shape.vlan is not None)
    return MARK.join(notes)


def file_name(record: NeutronPort, names: Mapping[str, str]) -> str:
    """What a cluster file, or nospoon, calls the network of a port. `names`: of networks, by id."""
    tagged, id_ = record.tagged, record.network
    by_id = tagged is not None and tagged.more.split(MARK)[0] == BY_ID
    return id_ if by_id else names.get(id_, id_)


def vlan_noted(record: NeutronPort) -> int | None:
    """With which tag a port is on a trunk; None of a NIC's own."""
    notes = record.tagged.more.split(MARK)[1:] if record.tagged is not None else ()
    tags = (each.removeprefix(VLAN) for each in notes if each.startswith(VLAN))
    return next((int(each) for each in tags), None)


def _pairs(shape: Port) -> list[dict[str, str]]:
    """With the port's own MAC, which Neutron takes where none is given."""
    return [{"ip_address": each} for each in shape.virtual_ips]


def _port(resource: Resource) -> Port:
    assert isinstance(resource.shape, Port), "port keys have port shapes"
    return resource.shape
