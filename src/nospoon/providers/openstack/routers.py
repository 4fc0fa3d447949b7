"""Routers of Neutron: each leads from a network of a cluster to an external one.

https://docs.openstack.org/api-ref/network/v2/#routers-routers
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from nospoon.errors import Gone
from nospoon.model.resources import Key, Kind, Observed, OwnerTag, Resource, Router
from nospoon.providers.openstack.api import Service
from nospoon.providers.openstack.around import Around, NeutronPort, port
from nospoon.providers.openstack.ports import BY_ID
from nospoon.providers.openstack.shown import Ref
from nospoon.providers.openstack.tags import Tagged, described, of_description, short
from nospoon.providers.openstack.understood import understood
from nospoon.runtime.paced import paced

PATH = "/routers"
LEADS_NOWHERE = "it does not lead to its network"


@dataclass(frozen=True, slots=True)
class _Router:
    """What is kept of one. `external`: id, "" for none."""

    id: str
    name: str
    external: str
    tagged: Tagged | None


@understood
class RouterDriver:
    """A router is called as its network."""

    kind = Kind.ROUTER

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
        found = []
        for record, tagged in own:
            id_ = record.external
            external = id_ if tagged.more == BY_ID else names.get(id_, id_)
            fault = "" if await self._led(record) else LEADS_NOWHERE
            shape = Router(record.name, external)
            found.append(self._around.observed(self.kind, shape, tagged, fault=fault))
        return found

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        shape = _router(resource)
        there = await self._own(resource.key, tag)
        made = there.id if there is not None else None
        external = await self._around.network(shape.external)
        body = {
            "name": shape.network,
            "description": described(
                Tagged(tag, resource.key.name, BY_ID if shape.external == external.id else "")
            ),
            "external_gateway_info": {"network_id": external.id},
        }
        call = self._around.api.call
        if made is None:
            made = await call(Service.NEUTRON, "POST", PATH, {"router": body}, read=_id)
        else:
            await call(Service.NEUTRON, "PUT", f"{PATH}/{made}", {"router": body})
        await self._lead(made, shape.network)

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        if await self._own(observed.key, tag) is None:
            raise Gone(f"{observed.key} no longer exists", hint="Plan again.")
        await self.create(desired, tag)

    async def delete(self, observed: Observed) -> None:
        there = await self._own(observed.key, observed.tag)
        if there is None:
            return
        for each in await self._led(there):
            path = f"{PATH}/{there.id}/remove_router_interface"
            with contextlib.suppress(Gone):  # it went meanwhile
                await self._around.api.call(Service.NEUTRON, "PUT", path, {"port_id": each.id})
        with contextlib.suppress(Gone):
            await self._around.api.call(Service.NEUTRON, "DELETE", f"{PATH}/{there.id}")

    async def _lead(self, router: str, network: str) -> None:
        """To each subnet of a network whose gateway it is to be."""
        found = await self._around.network(network)
        there = {each.subnet for each in await self._ports(router)}
        for each in await self._around.subnets(found.id):
            if each.led and each.id not in there:
                path, body = f"{PATH}/{router}/add_router_interface", {"subnet_id": each.id}
                await self._around.api.call(Service.NEUTRON, "PUT", path, body)

    async def _led(self, router: _Router) -> list[NeutronPort]:
        """Its ports in networks that nospoon made."""
        return [each for each in await self._ports(router.id) if each.network != router.external]

    async def _ports(self, router: str) -> list[NeutronPort]:
        query = {"device_id": router}
        listed = self._around.api.listed(Service.NEUTRON, "/ports", query, read=port)
        return [each async for each in listed]

    async def _all(self) -> list[_Router]:
        """None in a cloud that has no routers."""
        listed = self._around.api.listed(Service.NEUTRON, PATH, read=_record)
        try:
            return [each async for each in listed]
        except Gone:
            return []

    async def _own(self, key: Key, tag: OwnerTag) -> _Router | None:
        for each in await self._all():
            tagged = each.tagged
            is_own = self._around.is_own(tagged, tag.cluster)
            if is_own and tagged is not None and tagged.name == key.name:
                return each
        return None


def _record(record: Mapping[str, object]) -> _Router:
    gateway = record.get("external_gateway_info") or {}
    if not isinstance(gateway, dict):
        raise TypeError("a gateway is not a mapping")
    return _Router(
        id=short(record["id"]),
        name=short(record["name"]),
        external=short(gateway.get("network_id", "")),
        tagged=of_description(record.get("description")),
    )


def _id(answer: Mapping[str, Ref]) -> str:
    return short(answer["router"]["id"])


def _router(resource: Resource) -> Router:
    assert isinstance(resource.shape, Router), "router keys have router shapes"
    return resource.shape
