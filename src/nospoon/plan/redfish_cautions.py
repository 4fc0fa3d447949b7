"""Cautions for BMCs that need no password, or whose passwords cross a network in the clear."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from ipaddress import ip_address

from nospoon.model.resources.bmcs import Bmc
from nospoon.model.resources.resource import Resource


def open_redfish(desired: Iterable[Resource]) -> Iterator[str]:
    """One note for all BMCs that answer Redfish without a login."""
    found = {
        each.key.name: each.shape.address
        for each in desired
        if isinstance(each.shape, Bmc) and not each.shape.redfish_login
    }
    if found:
        alone = all(ip_address(address).is_loopback for address in found.values())
        who = "every user and program of this machine" if alone else "everyone who can reach it"
        yield (
            f"Redfish of {_counted(sorted(found))} answers without a login: {who} can power and "
            "change these machines. `bmc.redfish_auth: required` ends that."
        )


def plain_redfish(desired: Iterable[Resource]) -> Iterator[str]:
    """One note for all BMCs that serve Redfish without TLS beyond loopback."""
    found = sorted(
        each.key.name
        for each in desired
        if isinstance(each.shape, Bmc)
        and each.shape.redfish_port
        and each.shape.redfish_login
        and not each.shape.tls
        and not each.shape.address.startswith("127.")  # most are: no one parses ten thousand
        and not ip_address(each.shape.address).is_loopback
    )
    if found:
        yield (
            f"Redfish of {_counted(found)} is served without TLS on an address that other machines "
            "may reach: passwords cross the network in the clear. Set `bmc.tls: true`."
        )


def _counted(names: Sequence[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")
