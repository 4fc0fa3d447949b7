"""A caution for BMCs whose passwords cross a network in the clear."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import ip_address

from nospoon.model.resources import Bmc, Resource


def plain_redfish(desired: Iterable[Resource]) -> Iterator[str]:
    """One note for all BMCs that serve Redfish without TLS beyond loopback."""
    found = sorted(
        each.key.name
        for each in desired
        if isinstance(each.shape, Bmc)
        and each.shape.redfish_port
        and not each.shape.tls
        and not ip_address(each.shape.address).is_loopback
    )
    if found:
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        yield (
            f"Redfish of {found[0]}{more} is served without TLS on an address that other machines "
            "may reach: passwords cross the network in the clear. Set `bmc.tls: true`."
        )
