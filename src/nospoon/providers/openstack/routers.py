"""Routers of Neutron: each leads from networks of a cluster to an external one.

https://docs.openstack.org/api-ref/network/v2/#routers-routers
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from nospoon.errors import Conflict, Gone
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.networks import Led, Router
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.openstack.api import Service
from nospoon.providers.openstack.around import (
    Around,
    NeutronNetwork,
    NeutronPort,
    NeutronRouter,
)
from nospoon.providers.openstack.floating_ips import FloatingIpDriver
from nospoon.providers.openstack.networks import range_noted
from nospoon.providers.openstack.ports import BY_ID
from nospoon.providers.openstack.shown import Ref
from nospoon.providers.openstack.tags import Tagged, described, short
from nospoon.providers.understood import understood
from nospoon.runtime.paced import paced

PATH = "/routers"


@understood
class RouterDriver:
    kind = Kind.ROUTER

    def __init__(self, around: Around, floating_ips: FloatingIpDriver) -> None:
        self._around, self._floating_ips = around, floating_ips

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        own = [
            (each, tagged)
            async for each in paced(await self._around.routers())
            if (tagged := each.tagged) is not None and self._around.is_own(tagged, cluster)
        ]
        if not own:
            return []
        networks = {each.id: each for each in await self._around.networks()}
        found = []
        for record, tagged in own:
            id_ = record.external
            known = networks.get(id_)
            external = id_ if tagged.more == BY_ID or known is None else known.name
            led = [each for each in await self._led(record) if each.network in networks]
            there = {each.subnet for each in led}
            ways = [await self._way(networks[each], there) for each in {e.network for e in led}]
            shape = Router(record.name, tuple(sorted(ways)), external)
            found.append(self._around.observed(self.kind, shape, tagged))
        return found

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        shape = _router(resource)
        there = await self._own(resource.key, tag)
        external = await self._around.network(shape.external)
        body = {
            "name": shape.name,
            "description": described(
                Tagged(tag, resource.key.name, BY_ID if shape.external == external.id else "")
            ),
            "external_gateway_info": {"network_id": external.id},
        }
        call = self._around.api.call
        if there is None:
            made = await call(Service.NEUTRON, "POST", PATH, {"router": body}, read=_id)
        else:
            made = there.id
            await call(Service.NEUTRON, "PUT", f"{PATH}/{made}", {"router": body})
        await self._lead(NeutronRouter(made, shape.name, external.id, None), shape, tag)

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        if await self._own(observed.key, tag) is None:
            raise Gone(f"{observed.key} no longer exists", hint="Plan again.")
        await self.create(desired, tag)

    async def delete(self, observed: Observed) -> None:
        there = await self._own(observed.key, observed.tag)
        if there is None:
            return
        for each in await self._led(there):
            await self._unlead(there.id, each, observed.tag)
        await self._around.api.delete(Service.NEUTRON, f"{PATH}/{there.id}")

    async def _way(self, network: NeutronNetwork, there: Collection[str]) -> Led:
        """Of the addresses that the network has now, if its subnet is one of those led."""
        subnets = await self._around.subnets(network.id)
        ranges = [each.cidr for each in subnets if each.id in there]
        noted = range_noted(network)
        return Led(network.name, noted if noted in ranges else next(iter(ranges), ""))

    async def _lead(self, router: NeutronRouter, shape: Router, tag: OwnerTag) -> None:
        """To each subnet of its networks whose gateway it is to be, and to no other network."""
        networks = [await self._around.network(each.network) for each in shape.networks]
        led = await self._led(router)
        for way in led:
            if way.network not in {each.id for each in networks}:
                await self._unlead(router.id, way, tag)
        there = {each.subnet for each in led}
        path = f"{PATH}/{router.id}/add_router_interface"
        for network in networks:
            for each in await self._around.subnets(network.id):
                if not each.led or each.id in there:
                    continue
                body = {"subnet_id": each.id}
                try:
                    await self._around.api.call(Service.NEUTRON, "PUT", path, body)
                except Conflict:
                    await self._give_up(each.id, router, tag)
                    await self._around.api.call(Service.NEUTRON, "PUT", path, body)

    async def _give_up(self, subnet: str, router: NeutronRouter, tag: OwnerTag) -> None:
        """Have no other router of its cluster be the gateway of a subnet: it may be going now."""
        for other in await self._around.routers():
            if other.id == router.id or not self._around.is_own(other.tagged, tag.cluster):
                continue
            for each in await self._led(other):
                if each.subnet == subnet:
                    await self._unlead(other.id, each, tag)

    async def _unlead(self, router: str, port: NeutronPort, tag: OwnerTag) -> None:
        path = f"{PATH}/{router}/remove_router_interface"
        api = self._around.api
        try:
            try:
                await api.call(Service.NEUTRON, "PUT", path, {"port_id": port.id})
            except Conflict:  # floating IPs lead by it
                await self._floating_ips.let_go(router, port.network, tag.cluster)
                await api.call(Service.NEUTRON, "PUT", path, {"port_id": port.id})
        except Gone as error:  # it went meanwhile
            await api.require_unlisted(error, Service.NEUTRON, f"/ports/{port.id}")

    async def _led(self, router: NeutronRouter) -> list[NeutronPort]:
        """Its ports in networks that nospoon made."""
        return [each for each in await self._ports(router.id) if each.network != router.external]

    async def _ports(self, router: str) -> list[NeutronPort]:
        query = {"device_id": router}
        return [each async for each in self._around.ports(**query)]

    async def _own(self, key: Key, tag: OwnerTag) -> NeutronRouter | None:
        for each in await self._around.routers():
            tagged = each.tagged
            is_own = self._around.is_own(tagged, tag.cluster)
            if is_own and tagged is not None and tagged.name == key.name:
                return each
        return None


def _id(answer: Mapping[str, Ref]) -> str:
    return short(answer["router"]["id"])


def _router(resource: Resource) -> Router:
    assert isinstance(resource.shape, Router), "router keys have router shapes"
    return resource.shape
