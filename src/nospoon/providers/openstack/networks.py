"""Networks of Neutron: a wire for one cluster, on which Neutron gives no addresses; or, with NAT, a
network with addresses, DHCP and a router (`nospoon.providers.openstack.routers`). Where a relay
serves DHCP, or what deploys the nodes does, Neutron does not, and says who serves names to servers
that read their config drive.

https://docs.openstack.org/api-ref/network/v2/#networks
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Interface, ip_address, ip_interface, ip_network
from uuid import UUID

from nospoon.errors import Gone
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.networks import Link
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.model.segments import SegmentType
from nospoon.providers.openstack.api import Service
from nospoon.providers.openstack.around import (
    KIND,
    PHYSICAL,
    VLAN,
    Around,
    NeutronNetwork,
    Segment,
    Span,
)
from nospoon.providers.openstack.shown import Ref
from nospoon.providers.openstack.tags import Tagged, described, short
from nospoon.providers.understood import understood
from nospoon.runtime.paced import paced

USUAL_MTU = Link(name="").mtu
"""Of the file's networks that name none: they have what their cloud gives them."""


NOWHERE: Segment = ("", "", None)
PLACED, TYPED, RELAYED, SILENT = "placed", "typed", "relayed", "silent"
BETWEEN = "+"
"""Name servers are noted so."""
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
        there = [each for each in await self._around.networks() if each.name == shape.name]
        for record in there:
            self._around.refuse_others(resource.key, record.tagged, tag)
        if there:
            await self._update(there[0].id, resource, tag)
            await self._arrange(there[0].id, shape)
            return
        body = {"name": shape.name, **_said(resource, tag), **_place(shape)}
        made = await self._around.api.call(
            Service.NEUTRON, "POST", "/networks", {"network": body}, read=_id
        )
        await self._arrange(made, shape)

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        record = await self._found(observed)
        if record is None:
            raise Gone(f"{observed.key} no longer exists", hint="Plan again.")
        await self._update(record.id, desired, tag)
        await self._arrange(record.id, _link(desired))

    async def delete(self, observed: Observed) -> None:
        record = await self._found(observed)
        if record is None:
            return
        self._around.refuse_others(observed.key, record.tagged, observed.tag)
        await self._around.api.delete(Service.NEUTRON, f"/networks/{record.id}")

    async def _arrange(self, network: str, link: Link) -> None:
        """Have the subnet that it needs: Nova plugs servers into networks without any no more than
        into none. One that it had with other addresses stays, without DHCP, for ports have
        addresses of it.
        """
        there = await self._around.subnets(network)
        if not link.nat:
            if not there:
                await self._add_subnet(network, link, UNUSED)
        elif range_of(link) not in {each.cidr for each in there}:
            gateway = str(ip_interface(link.address).ip)
            await self._add_subnet(network, link, range_of(link), gateway)
        for each in there:
            is_its = link.nat and each.cidr == range_of(link)
            serves = is_its and not (link.relayed or link.silent)
            given = given_by(link) if is_its else ()
            body: dict[str, object] = {"enable_dhcp": serves} if each.serves != serves else {}
            if is_its and not serves:
                body["dns_nameservers"] = list(link.nameservers)
            if given and each.given and set(given) != set(each.given):
                body["allocation_pools"] = _pools(given)
            if body:
                path = f"/subnets/{each.id}"
                await self._around.api.call(Service.NEUTRON, "PUT", path, {"subnet": body})

    async def _add_subnet(self, network: str, link: Link, cidr: str, gateway: str = "") -> None:
        subnet = {
            "network_id": network,
            "name": link.name,
            "ip_version": 4,
            "cidr": cidr,
            "gateway_ip": gateway or None,
            "enable_dhcp": bool(gateway) and not (link.relayed or link.silent),
            **({"dns_nameservers": list(link.nameservers)} if link.nameservers and gateway else {}),
            **({"allocation_pools": _pools(given_by(link))} if link.spared and gateway else {}),
        }
        await self._around.api.call(Service.NEUTRON, "POST", "/subnets", {"subnet": subnet})

    async def _found(self, observed: Observed) -> NeutronNetwork | None:
        assert isinstance(observed.shape, Link), "network keys have link shapes"
        name = observed.shape.name
        found = (each for each in await self._around.networks() if each.name == name)
        return next(found, None)

    async def _update(self, id_: str, resource: Resource, tag: OwnerTag) -> None:
        body = {"network": _said(resource, tag)}
        await self._around.api.call(Service.NEUTRON, "PUT", f"/networks/{id_}", body)


def _link(resource: Resource) -> Link:
    assert isinstance(resource.shape, Link), "network keys have link shapes"
    return resource.shape


def range_of(link: Link) -> str:
    """Of the addresses on a network with NAT."""
    return str(ip_interface(link.address).network)


def range_noted(record: NeutronNetwork) -> str:
    """Of the addresses on a network of nospoon's; "" without NAT."""
    link = _shape(record, record.tagged) if record.tagged is not None else None
    return range_of(link) if link is not None and link.nat else ""


def given_by(link: Link) -> tuple[Span, ...]:
    """First and last of the addresses that Neutron gives: all but the router's and those spared."""
    here, spared = ip_interface(link.address), link.spared
    taken = [(int(here.ip), int(here.ip))]
    if spared:
        among = ip_network(spared)
        taken.append((int(among[0]), int(among[-1])))
    begin, found = int(here.network[1]), []
    for first, last in (*sorted(taken), (int(here.network[-1]), int(here.network[-1]))):
        if begin < first:
            found.append((str(ip_address(begin)), str(ip_address(first - 1))))
        begin = max(begin, last + 1)
    return tuple(found)


def _pools(given: Sequence[Span]) -> list[dict[str, str]]:
    return [{"start": first, "end": last} for first, last in given]


def _said(resource: Resource, tag: OwnerTag) -> dict[str, object]:
    """Noted with the tag: an MTU of the file's, the address of its router, whether the file says in
    which physical network it is or with which id, or its type alone, what is spared, and whether a
    relay serves, or no one, by which name servers.
    """
    link = _link(resource)
    mtu = str(link.mtu) if link.mtu != USUAL_MTU else ""
    placed = PLACED if link.provider or link.segment_id is not None else ""
    placed = placed or (TYPED if link.segment else "")
    by = RELAYED if link.relayed else SILENT if link.silent else ""
    relayed = BETWEEN.join((by, *link.nameservers)) if by else ""
    notes = (mtu, link.address if link.nat else "", placed, link.spared, relayed)
    more = ",".join(notes).rstrip(",")
    tagged = Tagged(tag, resource.key.name, more)
    return {"description": described(tagged)} | ({"mtu": link.mtu} if mtu else {})


def _shape(record: NeutronNetwork, tagged: Tagged) -> Link:
    mtu, noted, placed, spared, relayed, *_ = (*tagged.more.split(","), "", "", "", "")
    address = noted if _is_interface(noted) else ""  # others may have written that
    by, *nameservers = relayed.split(BETWEEN)
    kind, provider, id_ = (record.segment or NOWHERE) if placed else NOWHERE
    is_vlan = kind == str(SegmentType.VLAN)
    return Link(
        name=record.name,
        mtu=int(record.mtu) if mtu else USUAL_MTU,
        address=address,
        nat=bool(address),
        provider=provider,
        vlan=id_ if is_vlan else None,
        segment="" if is_vlan else kind,
        segment_id=id_ if placed == PLACED and not is_vlan else None,
        spared=spared,
        relayed=by == RELAYED,
        silent=by == SILENT,
        nameservers=tuple(nameservers),
    )


def _is_interface(text: str) -> bool:
    try:
        return "/" in text and bool(IPv4Interface(text))
    except ValueError:
        return False


def _place(link: Link) -> dict[str, object]:
    """What it is made of, for who may say so."""
    if not link.provider and not link.segment:
        return {}
    id_ = link.segment_id if link.segment else link.vlan
    return {
        KIND: link.segment or str(SegmentType.VLAN),
        **({PHYSICAL: link.provider} if link.provider else {}),
        **({VLAN: id_} if id_ is not None else {}),
    }


def _id(answer: Mapping[str, Ref]) -> str:
    return short(answer["network"]["id"])
