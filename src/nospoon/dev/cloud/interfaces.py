"""Bridges of the cloud, and what links its provider network with the host."""

from __future__ import annotations

import array
import contextlib
import fcntl
import json
import secrets
import socket
import struct
from collections.abc import Mapping
from ipaddress import IPv4Network
from pathlib import Path

from nospoon.dev.cloud.configuration import PUBLIC, RACKS, bridge
from nospoon.dev.cloud.namespaces import Namespaces
from nospoon.dev.cloud.wanted import Wanted
from nospoon.errors import Conflict
from nospoon.runtime import process

_SIOCETHTOOL, _ETHTOOL_STXCSUM = 0x8946, 0x17
"""linux/sockios.h, linux/ethtool.h"""
_INNER = "host0"
"""The link's end in the cloud."""


def link(wanted: Wanted) -> str:
    """The host's bridge to the provider network, which machines of a cluster may be on. Two clouds
    differ in their ports.
    """
    return f"nscloud{wanted.port_base}"


def outer(wanted: Wanted) -> str:
    """The host's end of what links that bridge with the cloud."""
    return f"{link(wanted)}p"


async def refuse_overlap(wanted: Wanted) -> None:
    """A range that the host routes elsewhere would take that traffic."""
    if wanted.container:
        return
    told = json.loads((await process.run(["ip", "-j", "-4", "route"])).stdout or "[]")
    for each in told:
        if each["dst"] != "default" and IPv4Network(each["dst"]).overlaps(wanted.public):
            raise Conflict(
                f"the host has a route to {each['dst']} by {each.get('dev', 'none')}, which "
                f"overlaps the cloud's provider network {wanted.public}",
                hint="Choose another range with --public, or use --container.",
            )


async def disconnect(wanted: Wanted) -> None:
    """Remove the host's interfaces: the kernel removes the link some time after the namespace's
    end.
    """
    for name in (outer(wanted), link(wanted)):
        if _is_there(name):
            await process.run(["ip", "link", "delete", name], check=False)


def _is_there(name: str) -> bool:
    return name in {each for _, each in socket.if_nameindex()}


async def connect(wanted: Wanted, where: Namespaces, env: Mapping[str, str]) -> None:
    """Make the bridges, and give the host, or the namespace, its address."""
    switch = ["ovs-vsctl", "--retry", "--timeout=60"]
    for name in map(bridge, (PUBLIC, RACKS)):
        switch += ["--", "--may-exist", "add-br", name]
        switch += ["--", "set", "bridge", name, "datapath_type=netdev"]
    for here, there in ((PUBLIC, RACKS), (RACKS, PUBLIC)):
        end, other = f"to-{there}", f"to-{here}"
        switch += ["--", "--may-exist", "add-port", bridge(here), end]
        switch += ["--", "set", "interface", end, "type=patch", f"options:peer={other}"]
    if not wanted.container:
        switch += ["--", "--may-exist", "add-port", bridge(PUBLIC), _INNER]
    await where.run(switch, env)
    address = f"{wanted.gateway}/{wanted.public.prefixlen}"
    if wanted.container:
        inner = bridge(PUBLIC)
        await where.run(["ip", "address", "replace", address, "dev", inner], env)
        await where.run(["ip", "link", "set", inner, "up"], env)
        return
    name, end = link(wanted), outer(wanted)
    if not _is_there(name):  # its own address, or it has the lowest of those that are plugged in
        mac = f"02:{':'.join(f'{each:02x}' for each in secrets.token_bytes(5))}"
        await process.run(["ip", "link", "add", name, "address", mac, "type", "bridge"])
    if not _is_there(end):
        peer = ["type", "veth", "peer", "name", _INNER, "netns", str(where.first)]
        await process.run(["ip", "link", "add", end, "master", name, *peer])
    _guard(name)
    await process.run(["ip", "address", "replace", address, "dev", name])
    _fill_in_checksums(end)
    for each in (end, name):
        await process.run(["ip", "link", "set", each, "up"])
    await where.run(["ip", "link", "set", _INNER, "up"], env)


def _guard(name: str) -> None:
    """Machines on a bridge are not trusted. By IPv6, on which the cloud has nothing, each of them
    could make itself the host's router (RFC 4861 §6.3.4), and reach all that listens here. The host
    answers ARP to addresses of the bridge's own network alone: it notes who asks.
    """
    for family, setting in (("ipv6", "disable_ipv6"), ("ipv4", "arp_filter")):
        with contextlib.suppress(FileNotFoundError):  # Linux without IPv6
            Path(f"/proc/sys/net/{family}/conf/{name}/{setting}").write_text("1")


def _fill_in_checksums(name: str) -> None:
    """Have the host compute them: veth leaves that to a receiver which never does, for Open
    vSwitch passes packets on by itself (`ethtool -K NAME tx off`). Guests would drop TCP.
    """
    value = array.array("B", struct.pack("II", _ETHTOOL_STXCSUM, 0))
    request = struct.pack("16sP16x", name.encode(), value.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCETHTOOL, request)
