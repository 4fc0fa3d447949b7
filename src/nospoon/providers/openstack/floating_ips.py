"""Floating IPs of Neutron: addresses of an external network, each of which leads to a port.

https://docs.openstack.org/api-ref/network/v2/#floating-ips-floatingips
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from nospoon.errors import Conflict, Gone, NotOurs, ProviderError
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.networks import FloatingIp
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.openstack.api import Service
from nospoon.providers.openstack.around import ROUTERS, Around, NeutronPort
from nospoon.providers.openstack.ports import BY_ID, vlan_noted
from nospoon.providers.openstack.tags import Tagged, described, of_description, short
from nospoon.providers.understood import understood
from nospoon.runtime.paced import paced

PATH, MARK = "/floatingips", "+"
CHOSEN, KEPT = "chosen", "kept"
"""Noted with a tag: the file names the address; and the project had it before, and keeps it."""


@dataclass(frozen=True, slots=True)
class _FloatingIp:
    """What is kept of one. `network`, `port`, `router`, `project`: ids, "" for none.
    `is_described`: by anyone.
    """

    id: str
    network: str
    address: str
    port: str
    router: str
    project: str
    tagged: Tagged | None
    is_described: bool


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
        macs = {e.id: e.mac for e in await self._ports() if vlan_noted(e) is None}
        routers = {
            each.id: each.name
            for each in await self._around.routers()
            if self._around.is_own(each.tagged, cluster)
        }
        found = []
        async for record, tagged in paced(own):
            id_ = record.network
            notes = tagged.more.split(MARK)
            network = id_ if BY_ID in notes else names.get(id_, id_)
            chosen = record.address if CHOSEN in notes else ""
            mac, router = macs.get(record.port, ""), routers.get(record.router, "")
            shape = FloatingIp(network, mac, record.address, chosen, router)
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
        notes = [BY_ID] * (shape.network == network.id) + [CHOSEN] * bool(shape.chosen)
        if shape.chosen and (kept := await self._with(shape.chosen, network.id)) is not None:
            _refuse_used(kept)
            more = MARK.join((*notes, KEPT))
            await self._put(kept, leads_to, described(Tagged(tag, resource.key.name, more)))
            return
        body = {
            "floating_network_id": network.id,
            "port_id": leads_to,
            "description": described(Tagged(tag, resource.key.name, MARK.join(notes))),
            **({"floating_ip_address": shape.chosen} if shape.chosen else {}),
        }
        try:
            await self._around.api.call(Service.NEUTRON, "POST", PATH, {"floatingip": body})
        except (Conflict, ProviderError) as error:
            if not shape.chosen:
                raise
            raise ProviderError(
                f"floating IP {shape.chosen}: {error}",
                hint="A member of a project has one that is allocated to the project before "
                "(`openstack floating ip list`), and may usually choose no other.",
            ) from error

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        """The port to which it leads; the address stays."""
        there = await self._own(observed.key, tag)
        if there is None:
            raise Gone(f"{observed.key} no longer exists", hint="Plan again.")
        await self._lead(there, await self._port_of(_floating_ip(desired), tag))

    async def let_go(self, router: str, network: str, cluster: UUID) -> None:
        """Have those of a cluster lead nowhere that lead to a network by a router, by their ids,
        which leads there no more: a plan with that has a step for each of them.
        """
        ports = {each.id for each in await self._ports(network_id=network)}
        for each in await self._all():
            is_led = each.router == router and each.port in ports
            if is_led and self._around.is_own(each.tagged, cluster):
                body = {"floatingip": {"port_id": None}}
                with suppress(Gone):
                    await self._around.api.call(Service.NEUTRON, "PUT", f"{PATH}/{each.id}", body)

    async def delete(self, observed: Observed) -> None:
        there = await self._own(observed.key, observed.tag)
        if there is None or there.tagged is None:
            return
        path = f"{PATH}/{there.id}"
        if KEPT not in there.tagged.more.split(MARK):
            await self._around.api.delete(Service.NEUTRON, path)
            return
        try:
            await self._put(there, None, "")
        except Gone as error:
            await self._around.api.require_unlisted(error, Service.NEUTRON, path)

    async def _lead(self, record: _FloatingIp, leads_to: str) -> None:
        body = {"floatingip": {"port_id": leads_to}}
        await self._around.api.call(Service.NEUTRON, "PUT", f"{PATH}/{record.id}", body)

    async def _put(self, record: _FloatingIp, leads_to: str | None, description: str) -> None:
        """Whose it is and where it leads, in one call."""
        body = {"floatingip": {"port_id": leads_to, "description": description}}
        await self._around.api.call(Service.NEUTRON, "PUT", f"{PATH}/{record.id}", body)

    async def _with(self, address: str, network: str) -> _FloatingIp | None:
        """That of the project which has an address of a network already: administrators of a cloud
        are given those of all projects.
        """
        wanted = address, network, await self._around.api.project()
        all_ = await self._all()
        return next((e for e in all_ if (e.address, e.network, e.project) == wanted), None)

    async def _all(self) -> list[_FloatingIp]:
        """None in a cloud that has no floating IPs."""
        listed = self._around.api.listed(Service.NEUTRON, PATH, read=_record)
        try:
            return [each async for each in listed]
        except Gone as error:
            await self._around.require_lack(ROUTERS, error)
            return []

    async def _own(self, key: Key, tag: OwnerTag) -> _FloatingIp | None:
        for each in await self._all():
            tagged = each.tagged
            is_own = self._around.is_own(tagged, tag.cluster)
            if is_own and tagged is not None and tagged.name == key.name:
                return each
        return None

    async def _ports(self, **query: str) -> list[NeutronPort]:
        return [each async for each in self._around.ports(**query)]

    async def _port_of(self, shape: FloatingIp, tag: OwnerTag) -> str:
        """The id of the cluster's port with this MAC."""
        for each in await self._ports(mac_address=shape.mac):
            if self._around.is_own(each.tagged, tag.cluster) and vlan_noted(each) is None:
                return each.id
        raise ProviderError(f"no port of the cluster has {shape.mac}", hint="Plan again.")


def _refuse_used(record: _FloatingIp) -> None:
    """Raises `NotOurs` for one that someone else uses."""
    if record.port:
        use = "leads to another port"
    elif record.is_described:
        use = "has a description, so someone else may have a use for it"
    else:
        return
    raise NotOurs(
        f"floating IP {record.address} {use}: it is left unchanged",
        hint="Choose another `floating_address`, or leave it out.",
    )


def _record(record: Mapping[str, object]) -> _FloatingIp:
    return _FloatingIp(
        id=short(record["id"]),
        network=short(record["floating_network_id"]),
        address=short(record["floating_ip_address"]),
        port=short(record.get("port_id") or ""),
        router=short(record.get("router_id") or ""),
        project=short(record.get("project_id") or ""),
        tagged=of_description(record.get("description")),
        is_described=bool(record.get("description")),
    )


def _floating_ip(resource: Resource) -> FloatingIp:
    assert isinstance(resource.shape, FloatingIp), "floating IP keys have floating IP shapes"
    return resource.shape
