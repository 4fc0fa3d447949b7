"""Floating IPs of Neutron: addresses of an external network, each of which leads to a port.

https://docs.openstack.org/api-ref/network/v2/#floating-ips-floatingips
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from nospoon.errors import Gone, ProviderError
from nospoon.model.resources import FloatingIp, Key, Kind, Observed, OwnerTag, Resource
from nospoon.providers.openstack.api import Service
from nospoon.providers.openstack.around import Around, NeutronPort, port
from nospoon.providers.openstack.ports import BY_ID
from nospoon.providers.openstack.tags import Tagged, described, of_description, short
from nospoon.providers.openstack.understood import understood
from nospoon.runtime.paced import paced

PATH = "/floatingips"


@dataclass(frozen=True, slots=True)
class _FloatingIp:
    """What is kept of one. `network`, `port`: ids, "" for none."""

    id: str
    network: str
    address: str
    port: str
    tagged: Tagged | None


@understood
class FloatingIpDriver:
    kind = Kind.FLOATING_IP

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
        macs = {each.id: each.mac for each in await self._ports()}
        found = []
        async for record, tagged in paced(own):
            id_ = record.network
            network = id_ if tagged.more == BY_ID else names.get(id_, id_)
            shape = FloatingIp(network, macs.get(record.port, ""), record.address)
            found.append(self._around.observed(self.kind, shape, tagged))
        return found

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        shape = _floating_ip(resource)
        leads_to = await self._port_of(shape, tag)
        there = await self._own(resource.key, tag)
        if there is not None:
            await self._lead(there, leads_to)
            return
        network = await self._around.network(shape.network)
        by_id = BY_ID if shape.network == network.id else ""
        body = {
            "floating_network_id": network.id,
            "port_id": leads_to,
            "description": described(Tagged(tag, resource.key.name, by_id)),
        }
        await self._around.api.call(Service.NEUTRON, "POST", PATH, {"floatingip": body})

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        """The port to which it leads; the address stays."""
        there = await self._own(observed.key, tag)
        if there is None:
            raise Gone(f"{observed.key} no longer exists", hint="Plan again.")
        await self._lead(there, await self._port_of(_floating_ip(desired), tag))

    async def delete(self, observed: Observed) -> None:
        there = await self._own(observed.key, observed.tag)
        if there is None:
            return
        try:
            await self._around.api.call(Service.NEUTRON, "DELETE", f"{PATH}/{there.id}")
        except Gone:
            return

    async def _lead(self, record: _FloatingIp, leads_to: str) -> None:
        body = {"floatingip": {"port_id": leads_to}}
        await self._around.api.call(Service.NEUTRON, "PUT", f"{PATH}/{record.id}", body)

    async def _all(self) -> list[_FloatingIp]:
        """None in a cloud that has no floating IPs."""
        listed = self._around.api.listed(Service.NEUTRON, PATH, read=_record)
        try:
            return [each async for each in listed]
        except Gone:
            return []

    async def _own(self, key: Key, tag: OwnerTag) -> _FloatingIp | None:
        for each in await self._all():
            tagged = each.tagged
            is_own = self._around.is_own(tagged, tag.cluster)
            if is_own and tagged is not None and tagged.name == key.name:
                return each
        return None

    async def _ports(self, **query: str) -> list[NeutronPort]:
        listed = self._around.api.listed(Service.NEUTRON, "/ports", query, read=port)
        return [each async for each in listed]

    async def _port_of(self, shape: FloatingIp, tag: OwnerTag) -> str:
        """The id of the cluster's port with this MAC."""
        for each in await self._ports(mac_address=shape.mac):
            if self._around.is_own(each.tagged, tag.cluster):
                return each.id
        raise ProviderError(f"no port of the cluster has {shape.mac}", hint="Plan again.")


def _record(record: Mapping[str, object]) -> _FloatingIp:
    return _FloatingIp(
        id=short(record["id"]),
        network=short(record["floating_network_id"]),
        address=short(record["floating_ip_address"]),
        port=short(record.get("port_id") or ""),
        tagged=of_description(record.get("description")),
    )


def _floating_ip(resource: Resource) -> FloatingIp:
    assert isinstance(resource.shape, FloatingIp), "floating IP keys have floating IP shapes"
    return resource.shape
