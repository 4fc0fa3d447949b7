"""Networks of Neutron: a wire for one cluster, on which Neutron gives no addresses.

https://docs.openstack.org/api-ref/network/v2/#networks
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from nospoon.errors import Gone
from nospoon.model.resources import Kind, Link, Observed, OwnerTag, Resource
from nospoon.providers.openstack.api import Service
from nospoon.providers.openstack.around import Around, tag_of
from nospoon.providers.openstack.tags import Tagged, described
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
            tagged = tag_of(record)
            if tagged is not None and self._around.is_own(tagged, cluster):
                fault = "" if record["subnets"] else "it has no subnet"
                shape = _shape(record, tagged)
                found.append(self._around.observed(self.kind, shape, tagged, fault=fault))
        return found

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        shape = _link(resource)
        there = [each for each in await self._around.networks() if each["name"] == shape.bridge]
        for record in there:
            self._around.refuse_others(resource.key, tag_of(record), tag)
        if there:
            await self._update(there[0]["id"], resource, tag)
            if not there[0]["subnets"]:
                await self._add_subnet(there[0])
            return
        body = {"name": shape.bridge, **_said(resource, tag)}
        answer = await self._around.api.call(
            Service.NEUTRON, "POST", "/networks", {"network": body}
        )
        await self._add_subnet(answer["network"])

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        record = await self._found(observed)
        if record is None:
            raise Gone(f"{observed.key} no longer exists", hint="Plan again.")
        await self._update(record["id"], desired, tag)
        if not record["subnets"]:
            await self._add_subnet(record)

    async def delete(self, observed: Observed) -> None:
        record = await self._found(observed)
        if record is None:
            return
        self._around.refuse_others(observed.key, tag_of(record), observed.tag)
        try:
            path = f"/networks/{record['id']}"
            await self._around.api.call(Service.NEUTRON, "DELETE", path)
        except Gone:
            return

    async def _add_subnet(self, network: Mapping[str, object]) -> None:
        """Nova plugs servers into networks without any subnet no more than into none."""
        subnet = {
            "network_id": network["id"],
            "name": network["name"],
            "ip_version": 4,
            "cidr": UNUSED,
            "gateway_ip": None,
            "enable_dhcp": False,
        }
        await self._around.api.call(Service.NEUTRON, "POST", "/subnets", {"subnet": subnet})

    async def _found(self, observed: Observed) -> Mapping[str, Any] | None:
        assert isinstance(observed.shape, Link), "network keys have link shapes"
        name = observed.shape.bridge
        found = (each for each in await self._around.networks() if each["name"] == name)
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


def _shape(record: Mapping[str, Any], tagged: Tagged) -> Link:
    mtu = int(record["mtu"]) if tagged.more else USUAL_MTU
    return Link(bridge=str(record["name"]), mtu=mtu)
