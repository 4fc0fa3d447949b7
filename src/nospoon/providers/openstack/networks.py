"""Networks of Neutron: a wire for one cluster, on which Neutron gives no addresses.

https://docs.openstack.org/api-ref/network/v2/#networks
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from nospoon.errors import Gone
from nospoon.model.resources import Kind, Link, Observed, OwnerTag, Resource
from nospoon.providers.openstack.api import Service
from nospoon.providers.openstack.around import Around, NeutronNetwork
from nospoon.providers.openstack.shown import Ref
from nospoon.providers.openstack.tags import Tagged, described, short
from nospoon.providers.openstack.understood import understood
from nospoon.runtime.paced import paced

USUAL_MTU = Link(bridge="").mtu
"""Of the file's networks that name none: they have what their cloud gives them."""


UNUSED = "192.0.2.0/24"
"""Range of the subnet that no port has an address of (TEST-NET-1, RFC 5737)."""


@understood
class NetworkDriver:
    kind = Kind.NETWORK

    def __init__(self, around: Around) -> None:
        self._around = around

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        found = []
        async for record in paced(await self._around.networks()):
            tagged = record.tagged
            if tagged is not None and self._around.is_own(tagged, cluster):
                fault = "" if record.has_subnet else "it has no subnet"
                shape = _shape(record, tagged)
                found.append(self._around.observed(self.kind, shape, tagged, fault=fault))
        return found

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        shape = _link(resource)
        there = [each for each in await self._around.networks() if each.name == shape.bridge]
        for record in there:
            self._around.refuse_others(resource.key, record.tagged, tag)
        if there:
            await self._update(there[0].id, resource, tag)
            if not there[0].has_subnet:
                await self._add_subnet(there[0].id, shape.bridge)
            return
        body = {"name": shape.bridge, **_said(resource, tag)}
        made = await self._around.api.call(
            Service.NEUTRON, "POST", "/networks", {"network": body}, read=_id
        )
        await self._add_subnet(made, shape.bridge)

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        record = await self._found(observed)
        if record is None:
            raise Gone(f"{observed.key} no longer exists", hint="Plan again.")
        await self._update(record.id, desired, tag)
        if not record.has_subnet:
            await self._add_subnet(record.id, record.name)

    async def delete(self, observed: Observed) -> None:
        record = await self._found(observed)
        if record is None:
            return
        self._around.refuse_others(observed.key, record.tagged, observed.tag)
        try:
            path = f"/networks/{record.id}"
            await self._around.api.call(Service.NEUTRON, "DELETE", path)
        except Gone:
            return

    async def _add_subnet(self, network: str, name: str) -> None:
        """Nova plugs servers into networks without any subnet no more than into none."""
        subnet = {
            "network_id": network,
            "name": name,
            "ip_version": 4,
            "cidr": UNUSED,
            "gateway_ip": None,
            "enable_dhcp": False,
        }
        await self._around.api.call(Service.NEUTRON, "POST", "/subnets", {"subnet": subnet})

    async def _found(self, observed: Observed) -> NeutronNetwork | None:
        assert isinstance(observed.shape, Link), "network keys have link shapes"
        name = observed.shape.bridge
        found = (each for each in await self._around.networks() if each.name == name)
        return next(found, None)

    async def _update(self, id_: str, resource: Resource, tag: OwnerTag) -> None:
        body = {"network": _said(resource, tag)}
        await self._around.api.call(Service.NEUTRON, "PUT", f"/networks/{id_}", body)


def _link(resource: Resource) -> Link:
    assert isinstance(resource.shape, Link), "network keys have link shapes"
    return resource.shape


def _said(resource: Resource, tag: OwnerTag) -> dict[str, object]:
    mtu = _link(resource).mtu
    tagged = Tagged(tag, resource.key.name, "" if mtu == USUAL_MTU else str(mtu))
    return {"description": described(tagged)} | ({"mtu": mtu} if mtu != USUAL_MTU else {})


def _shape(record: NeutronNetwork, tagged: Tagged) -> Link:
    return Link(bridge=record.name, mtu=int(record.mtu) if tagged.more else USUAL_MTU)


def _id(answer: Mapping[str, Ref]) -> str:
    return short(answer["network"]["id"])
