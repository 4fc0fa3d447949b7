"""Networks that OVB's templates join by routers, with the ranges that they have there.

Parameters and their defaults are those of templates/undercloud-networks-routed.yaml,
undercloud-networks-public-router.yaml and baremetal-networks-routed.yaml. None of these subnets has
DHCP: what deploys the nodes answers it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, ip_network

from nospoon.errors import UsageError

PUBLIC, ROUTED = "undercloud-networks-public-router", "undercloud-networks-routed"
OVERCLOUD = "baremetal-networks-routed"


@dataclass(frozen=True, slots=True)
class _Joined:
    """`networks`: parameter that names each of them, and its default. `ranges`: defaults of the
    parameter with `_cidr` behind it. `router`: parameter that names theirs, "" for none, and its
    default.
    """

    networks: tuple[tuple[str, str], ...]
    ranges: tuple[str, ...]
    router: tuple[str, str]


def _overcloud(name: str, number: int) -> _Joined:
    parameter, ranges = f"overcloud_{name}_net", (f"172.{number}.0.0/24", f"172.{number}.1.0/24")
    networks = ((parameter, f"overcloud_{name}"), (f"{parameter}2", f"overcloud_{name}2"))
    return _Joined(networks, ranges, (f"overcloud_{name}_router", f"{name}_router"))


PROVISION = _Joined(
    tuple((f"provision_net{each}", f"provision{each}") for each in ("", 2, 3)),
    ("192.168.24.0/24", "192.168.25.0/24", "192.168.26.0/24"),
    ("provision_router_name", "provision_router"),
)
OUTSIDE = _Joined((("public_net", "public"),), ("10.0.0.0/24",), ("", "public-router"))
JOINED: Mapping[str, tuple[_Joined, ...]] = {
    PUBLIC: (OUTSIDE,),
    ROUTED: (PROVISION, OUTSIDE),
    OVERCLOUD: (
        _overcloud("tenant", 16),
        _overcloud("internal", 17),
        _overcloud("storage", 18),
        _overcloud("storage_mgmt", 19),
    ),
}
"""Template -> what it joins."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A network with a router. `parameters`: those that say so."""

    name: str
    range: IPv4Network
    router: str
    parameters: tuple[str, ...]


def leaves(
    templates: tuple[str, ...], get: Callable[[str, object], object], *, file: str, provision: bool
) -> Iterator[Leaf]:
    """Of IPv4, for no router of nospoon leads out of IPv6. `get`: a parameter of the environment,
    or its default. `provision`: whether the provisioning networks have their router. Raises
    `UsageError`.
    """
    for template in templates:
        for each in JOINED.get(template, ()):
            if each is PROVISION and not provision:
                continue
            named, usual = each.router
            router = str(get(named, usual) if named else usual)
            for (parameter, default), range_ in zip(each.networks, each.ranges, strict=True):
                wanted = str(get(f"{parameter}_cidr", range_))
                try:
                    found = ip_network(wanted, strict=False)
                except ValueError as error:
                    raise UsageError(
                        f"{file}: {parameter}_cidr: expected a network such as {range_}, "
                        f"got {wanted!r}"
                    ) from error
                if isinstance(found, IPv4Network):
                    read = (parameter, f"{parameter}_cidr", f"{parameter}_ip_version", named)
                    yield Leaf(str(get(parameter, default)), found, router, read)
