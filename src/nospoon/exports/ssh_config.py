"""Nodes for ssh(1): a block each, to be included by ~/.ssh/config (ssh_config(5)).

A node gets a new host key with each deployment, as often as one likes: no one is asked about it.
"""

from __future__ import annotations

from collections.abc import Iterator

from nospoon.exports.inventory import Inventory, LeftOut, Made, Place


def make(inventory: Inventory) -> Made:
    """Each is CLUSTER-NODE and NODE.CLUSTER; those on a host over ssh are reached through it."""
    blocks = ["\n".join(_block(inventory, each)) for each in inventory.places if each.address]
    left_out = [
        LeftOut("", place.name, ": no DHCP of nospoon gives an address")
        for place in inventory.places
        if not place.address
    ]
    return Made("\n\n".join(blocks) + "\n" if blocks else "", tuple(left_out))


def _block(inventory: Inventory, place: Place) -> Iterator[str]:
    cluster = inventory.cluster.name
    yield f"Host {cluster}-{place.name} {place.name}.{cluster}"
    yield f"    HostName {place.ssh_address}"
    if place.host.ssh:
        yield f"    ProxyJump {place.host.ssh.removeprefix('ssh://')}"
    yield "    StrictHostKeyChecking no"
    yield "    UserKnownHostsFile /dev/null"
    yield "    LogLevel ERROR"
