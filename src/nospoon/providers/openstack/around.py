"""What all drivers of one cloud share: its APIs, who owns a thing, and what is in Neutron."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from uuid import NAMESPACE_URL, UUID, uuid5

from nospoon.errors import Gone, HostUnreachable, NotOurs, ProviderError
from nospoon.model.cloud import URLS
from nospoon.model.cluster import Host
from nospoon.model.connections import OpenStack
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.resource import Observed, Shape
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.answers import text_of
from nospoon.providers.openstack.api import Api, Service
from nospoon.providers.openstack.tags import Tagged, of_description, short
from nospoon.runtime import clock
from nospoon.runtime.shared import Shared

LEADS = URLS | {"endpoint"}
BuildImage = Callable[[str], Awaitable[Path]]
"""URL that it asks at -> path of a boot image."""


PAIRS = "allowed_address_pairs"
"""Addresses besides its own from which a port may send, where Neutron has the extension of that
name (https://docs.openstack.org/api-ref/network/v2/#allowed-address-pairs).
"""
MOST_PAIRS, LONGEST_PAIR = 64, 64
"""Pairs of a port that are looked at, and characters of each part."""
Span = tuple[str, str]
"""First and last of some addresses."""
MADE_SECONDS = 60.0
"""For which a port is taken to be what it was when it was made."""
MOST_SPANS = 64
"""Of a subnet that are looked at."""
Segment = tuple[str, str, int | None]
"""Type, physical network ("" for none) and id."""
KIND, PHYSICAL, VLAN = (
    f"provider:{each}" for each in ("network_type", "physical_network", "segmentation_id")
)
"""Of a network, for those who may see them
(https://docs.openstack.org/api-ref/network/v2/#provider-extended-attributes).
"""
ROUTERS, TRUNKS = "router", "trunk"
"""Extensions of Neutron; with the first one come floating IPs, too."""
MOST_EXTENSIONS = 1000
IPV4 = 4
AtHome = Callable[[UUID], bool]
"""Whether a machine is one of a node's that is on this host."""


@dataclass(frozen=True, slots=True)
class NeutronNetwork:
    """What is kept of a network. `tagged`: whose it is, None where nospoon did not make it.
    `segment`: what it is made of; None where the project may not see that.
    """

    id: str
    name: str
    has_subnet: bool
    is_external: bool
    mtu: str
    project: str
    tagged: Tagged | None
    segment: Segment | None


@dataclass(frozen=True, slots=True)
class NeutronPort:
    """What is kept of a port. `network`, `device`, `subnet` (of its first `address`): ids, "" for
    none. `guarded`: port security.
    """

    id: str
    network: str
    mac: str
    device: str
    subnet: str
    guarded: bool
    virtual_ips: tuple[str, ...]
    tagged: Tagged | None
    address: str = ""


@dataclass(frozen=True, slots=True)
class NeutronSubnet:
    """What is kept of a subnet. `serves`: whether Neutron gives addresses of it by DHCP; `led`:
    whether it has a gateway; `given`: of which addresses.
    """

    id: str
    cidr: str
    serves: bool
    led: bool
    given: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class NeutronRouter:
    """What is kept of a router. `external`: id of a network, "" for none."""

    id: str
    name: str
    external: str
    tagged: Tagged | None


def everywhere(machine: UUID) -> bool:  # noqa: ARG001  (any)
    return True


def cloud_of(host: Host) -> OpenStack:
    """What a host of this kind leads to."""
    assert isinstance(host.connection, OpenStack), "a host of this kind"
    return host.connection


@dataclass(slots=True)
class Around:
    """`host`: as the cluster file describes the cloud. `pause`: seconds from one look at something
    that is under way to the next. `at_home`: what others say of machines that are not is ignored.
    """

    api: Api
    host: Host
    deployment: str
    build_image: BuildImage
    pause: float = 0.5
    at_home: AtHome = everywhere
    _networks: Shared[list[NeutronNetwork]] = field(init=False)
    _made: dict[tuple[UUID, str], tuple[float, NeutronPort]] = field(default_factory=dict)
    """Of a cluster, by MAC: until when these ports are taken to be there."""

    def __post_init__(self) -> None:
        self._networks = Shared(self._list_networks)

    @property
    def cloud(self) -> OpenStack:
        """What the file says of it now."""
        return cloud_of(self.host)

    def machine_of(self, server: UUID) -> UUID:
        """The UUID of a node that is a server which others made: another one in each cloud, for a
        cloud may give its servers any id, that of another user's machine too. What answers is said
        by Keystone's URL, the region, and URLs of services that do not come from Keystone.
        """
        words = self.cloud.at.split(" ")
        leads = (each for each in words[2:] if each.partition("=")[0] in LEADS)
        place = " ".join((*words[:2], *leads))
        return uuid5(NAMESPACE_URL, f"nospoon:server:{place}:{server}")

    def is_own(self, tagged: Tagged | None, cluster: UUID | None) -> bool:
        """Whether a thing with this tag is of this deployment, and of the cluster, None for any."""
        return (
            tagged is not None
            and tagged.tag.deployment == self.deployment
            and cluster in (None, tagged.tag.cluster)
        )

    def observed(self, kind: Kind, shape: Shape, tagged: Tagged, *, fault: str = "") -> Observed:
        return Observed(Key(kind, self.host.name, tagged.name), shape, tagged.tag, fault=fault)

    def refuse_others(self, key: Key, tagged: Tagged | None, tag: OwnerTag) -> None:
        """Raises `NotOurs` for a thing that has not this cluster's tag."""
        if not self.is_own(tagged, tag.cluster):
            raise NotOurs(
                f"{key} is not managed by nospoon in cloud {self.api.name}: it is left unchanged"
            )

    async def networks(self) -> list[NeutronNetwork]:
        """All that the project sees, with what is needed of each; who asks meanwhile shares it."""
        return await self._networks()

    async def _list_networks(self) -> list[NeutronNetwork]:
        listed = self.api.listed(Service.NEUTRON, "/networks", read=_network)
        return [each async for each in listed]

    async def network(self, name: str) -> NeutronNetwork:
        """One by name or id. Raises `ProviderError`."""
        found = [each for each in await self.networks() if name in (each.name, each.id)]
        if len(found) == 1:
            return found[0]
        several = "several networks of that name: name one by its id" if found else "none"
        raise ProviderError(
            f"network {name} in cloud {self.api.name}: there is {several}",
            hint="See `openstack network list`.",
        )

    def ports(self, **query: str) -> AsyncIterator[NeutronPort]:
        """Those of the project with these values."""
        listed = self.api.listed
        return listed(Service.NEUTRON, "/ports", query, read=port, parts=_addresses)

    def note_port(self, cluster: UUID, made: NeutronPort) -> None:
        """It was just made, and its server is next."""
        now = clock.monotonic()
        while self._made and (first := next(iter(self._made.items())))[1][0] < now:
            del self._made[first[0]]
        self._made[cluster, made.mac.lower()] = now + MADE_SECONDS, made

    def noted_port(self, cluster: UUID, mac: str) -> NeutronPort | None:
        """One that was just made, which this forgets; None where none was."""
        end, found = self._made.pop((cluster, mac.lower()), (0.0, None))
        return found if clock.monotonic() < end else None

    async def routers(self) -> list[NeutronRouter]:
        """All of the project. None in a cloud that has no routers."""
        listed = self.api.listed(Service.NEUTRON, "/routers", read=_router)
        try:
            return [each async for each in listed]
        except Gone as error:
            await self.require_lack(ROUTERS, error)
            return []

    async def require_lack(self, extension: str, why: Gone) -> None:
        """Neutron says that a collection is not there: it is not if Neutron lacks this extension.
        Raises `HostUnreachable` where it has it, or does not say: clusters may have things there.
        """
        try:
            there = await self.api.call(Service.NEUTRON, "GET", "/extensions", read=_aliases)
        except Gone as error:
            raise HostUnreachable(f"{why}, and so is its list of extensions") from error
        if extension in there:
            raise HostUnreachable(
                f"{why}, though it has the extension `{extension}`",
                hint="What is in front of Neutron, such as a proxy, may have answered.",
            )

    async def addresses(self) -> dict[str, int]:
        """How many IPv4 addresses Neutron gives to ports of each network, by its id: as many as it
        may give, of which others' ports have some that the project may not see.
        """
        found: dict[str, int] = {}
        listed = self.api.listed(Service.NEUTRON, "/subnets", read=_counted)
        async for network, count in listed:
            found[network] = found.get(network, 0) + count
        return found

    async def subnets(self, network: str) -> list[NeutronSubnet]:
        """Those of a network, by its id."""
        query = {"network_id": network}
        listed = self.api.listed(Service.NEUTRON, "/subnets", query, read=_subnet)
        return [each async for each in listed]


def _aliases(answer: Mapping[str, Sequence[Mapping[str, object]]]) -> frozenset[str]:
    return frozenset(short(each["alias"]) for each in answer["extensions"][:MOST_EXTENSIONS])


def _router(record: Mapping[str, object]) -> NeutronRouter:
    gateway = record.get("external_gateway_info") or {}
    if not isinstance(gateway, dict):
        raise TypeError("a gateway is not a mapping")
    return NeutronRouter(
        id=short(record["id"]),
        name=short(record["name"]),
        external=short(gateway.get("network_id", "")),
        tagged=of_description(record.get("description")),
    )


def _subnet(record: Mapping[str, object]) -> NeutronSubnet:
    return NeutronSubnet(
        id=short(record["id"]),
        cidr=short(record["cidr"]),
        serves=bool(record.get("enable_dhcp")),
        led=bool(record.get("gateway_ip")),
        given=_spans(record),
    )


def _counted(record: Mapping[str, object]) -> tuple[str, int] | None:
    """The network of a subnet of IPv4, and how many addresses its pools have."""
    if record.get("ip_version", IPV4) != IPV4:
        return None
    ends = ((int(ip_address(first)), int(ip_address(last))) for first, last in _spans(record))
    return short(record["network_id"]), sum(max(0, last - first + 1) for first, last in ends)


def _spans(record: Mapping[str, object]) -> tuple[Span, ...]:
    pools = record.get("allocation_pools") or []
    if not isinstance(pools, list):
        raise TypeError("allocation pools are not a list")
    return tuple(sorted((short(p["start"]), short(p["end"])) for p in pools[:MOST_SPANS]))


def port(record: Mapping[str, object]) -> NeutronPort:
    """What is needed of a port."""
    pairs = record.get(PAIRS) or []
    if not isinstance(pairs, list):
        raise TypeError("pairs are not a list")
    mac = text_of(record["mac_address"]).lower()
    allowed = tuple(sorted(_allowed(each, mac) for each in pairs[:MOST_PAIRS]))
    return NeutronPort(
        id=short(record["id"]),
        network=short(record["network_id"]),
        mac=short(record["mac_address"]),
        device=short(record.get("device_id", "")),
        subnet=_of_first_address(record, "subnet_id"),
        guarded=bool(record.get("port_security_enabled", True)),
        virtual_ips=allowed,
        tagged=of_description(record.get("description")),
        address=_of_first_address(record, "ip_address"),
    )


def _addresses(of: NeutronPort) -> int:
    return len(of.virtual_ips)


def _of_first_address(record: Mapping[str, object], name: str) -> str:
    addresses = record.get("fixed_ips") or []
    if not isinstance(addresses, list):
        raise TypeError("addresses are not a list")
    return short(addresses[0].get(name, "")) if addresses else ""


def _allowed(pair: Mapping[str, object], mac: str) -> str:
    """Its address; of one that nospoon would not write, with its MAC."""
    address, own = text_of(pair["ip_address"])[:LONGEST_PAIR], text_of(pair.get("mac_address", mac))
    return address if own.lower() == mac else f"{address} from {own[:LONGEST_PAIR]}"


def _network(record: Mapping[str, object]) -> NeutronNetwork:
    return NeutronNetwork(
        id=short(record["id"]),
        name=short(record["name"]),
        has_subnet=bool(record.get("subnets")),
        is_external=bool(record.get("router:external")),
        mtu=short(record.get("mtu", "")),
        project=short(record.get("project_id", "")),
        tagged=of_description(record.get("description")),
        segment=_segment(record),
    )


def _segment(record: Mapping[str, object]) -> Segment | None:
    if KIND not in record:
        return None
    physical, id_ = record.get(PHYSICAL) or "", record.get(VLAN)
    return short(record[KIND]), short(physical), None if id_ is None else int(short(id_))
