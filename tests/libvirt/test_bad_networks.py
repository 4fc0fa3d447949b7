"""Bad days of networks with a real libvirtd: taken, stopped, and bridges that lose their guests."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from nospoon.errors import NotOurs
from nospoon.model.cluster import Host
from nospoon.model.connections import Libvirt
from nospoon.model.machine import PowerCommand
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.networks import Link, Tunnel
from nospoon.model.resources.resource import Deviation, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.libvirt import LibvirtConnection
from nospoon.providers.libvirt.capabilities import RULES
from nospoon.providers.libvirt.hypervisor import Hypervisor
from nospoon.providers.libvirt.networks import NetworkDriver
from nospoon.providers.libvirt.tunnels import MOST_LEARNED, device_of
from nospoon.providers.unlinked import UNLINKED
from nospoon.runtime.process import Finished
from nospoon.runtime.runner import LocalRunner, Runner
from nospoon.testing.racks import PLAN, Bench, Rack, found, make, observe_all, rack_for

pytestmark = pytest.mark.libvirt


@pytest.fixture
def bench(bench_with_image: Bench) -> Bench:
    return bench_with_image


@pytest.fixture
def rack(bench: Bench) -> Rack:
    return rack_for(bench)


async def test_somebody_elses_bridge_is_refused_and_left_alone(
    bench: Bench, rack: Rack, runner: Runner
) -> None:
    assert rack.link is not None
    assert isinstance(rack.link.shape, Link)
    bridge = rack.link.shape.name
    await runner.run(["ip", "link", "add", bridge, "type", "bridge"])
    try:
        with pytest.raises(NotOurs, match=rf"bridge {bridge}.*ip link show {bridge}"):
            await make(bench, rack.link)
        assert (await runner.run(["ip", "link", "show", bridge])).status == 0
        assert rack.link.key not in await observe_all(bench)
    finally:
        await runner.run(["ip", "link", "del", bridge])


async def left_behind(bridge: str, runner: Runner, virsh: Sequence[str], address: str) -> None:
    """As a libvirtd that is killed while it starts a network leaves it: a bridge, and no state."""
    await runner.run([*virsh, "net-destroy", bridge])
    await runner.run(["ip", "link", "add", bridge, "address", address, "type", "bridge"])


async def test_a_bridge_that_a_killed_libvirtd_left_is_recreated_and_removed(
    bench: Bench, connection: LibvirtConnection, rack: Rack, runner: Runner, own_libvirt: Any
) -> None:
    assert rack.link is not None
    assert isinstance(rack.link.shape, Link)
    bridge, virsh = rack.link.shape.name, ["virsh", "-c", own_libvirt.uri]
    driver = connection.drivers[Kind.NETWORK]
    await make(bench, rack.link)
    (made,) = json.loads((await runner.run(["ip", "-json", "link", "show", bridge])).stdout)
    await left_behind(bridge, runner, virsh, made["address"])
    seen = await found(bench, rack.link)
    assert seen.fault == "the network is not started"
    await driver.change(seen, rack.link, bench.tag)
    assert (await found(bench, rack.link)).fault == ""
    (made,) = json.loads((await runner.run(["ip", "-json", "link", "show", bridge])).stdout)
    await left_behind(bridge, runner, virsh, made["address"])
    await driver.delete(await found(bench, rack.link))
    assert (await runner.run(["ip", "link", "show", bridge], check=False)).status != 0


async def test_a_bridge_of_others_in_place_of_a_stopped_network_is_refused_and_left_alone(
    bench: Bench, connection: LibvirtConnection, rack: Rack, runner: Runner, own_libvirt: Any
) -> None:
    assert rack.link is not None
    assert isinstance(rack.link.shape, Link)
    bridge, virsh = rack.link.shape.name, ["virsh", "-c", own_libvirt.uri]
    driver = connection.drivers[Kind.NETWORK]
    await make(bench, rack.link)
    await left_behind(bridge, runner, virsh, "02:00:00:00:00:77")
    try:
        seen = await found(bench, rack.link)
        with pytest.raises(NotOurs, match=rf"bridge {bridge}.*ip link show {bridge}"):
            await driver.change(seen, rack.link, bench.tag)
        await driver.delete(seen)
        assert (await runner.run(["ip", "link", "show", bridge])).status == 0
        assert rack.link.key not in await observe_all(bench)
    finally:
        await runner.run(["ip", "link", "delete", bridge])


async def test_a_link_that_was_stopped_shows_a_fault_and_a_change_plugs_guests_in_again(
    bench: Bench, connection: LibvirtConnection, rack: Rack, runner: Runner
) -> None:
    await make(bench, *rack.all)
    assert rack.link is not None
    assert isinstance(rack.link.shape, Link)
    await connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
    bridge = rack.link.shape.name
    before = await ports_of(bridge, runner)
    assert len(before) == 1
    wider = replace(rack.link, shape=replace(rack.link.shape, address="172.31.88.1/24", mtu=1400))
    driver = connection.drivers[Kind.NETWORK]
    await driver.change(await found(bench, rack.link), wider, bench.tag)
    assert (await found(bench, rack.link)).shape == wider.shape
    assert await ports_of(bridge, runner) == before
    shown = (await runner.run(["ip", "addr", "show", "dev", bridge])).stdout
    assert "172.31.88.1/24" in shown
    assert "mtu 1400" in shown


WATCH = """
import socket, struct, sys
line = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
line.bind((0, 1))  # RTMGRP_LINK
link = socket.if_nametoindex(sys.argv[1])
print("ready", flush=True)
while True:
    told, found, at = line.recv(1 << 16), {}, 32
    family, index, flags = struct.unpack_from("=BxxxiI", told, 16)
    while at < len(told):
        size, kind = struct.unpack_from("=HH", told, at)
        found[kind] = told[at + 4 : at + size]
        at += -(-size // 4) * 4
    if (family, index) == (socket.AF_UNSPEC, link):
        words = ("up" if flags & 1 else "down", "plugged" if 10 in found else "alone")
        print(*words, found.get(20, b"").decode().strip("\\0"), flush=True)
"""
"""What the kernel says of a link (rtnetlink(7)): whether it is up (IFF_UP) and in a bridge
(IFLA_MASTER), and its alias (IFLA_IFALIAS).
"""


async def test_no_guest_is_up_beside_its_bridge_while_that_is_recreated(
    bench: Bench, connection: LibvirtConnection, rack: Rack, runner: Runner, own_libvirt: Any
) -> None:
    """For a tenth of a second it had its host to itself, by no rule of the network: in that time it
    became its router of IPv6.
    """
    await make(bench, *rack.all)
    assert rack.link is not None
    assert isinstance(rack.link.shape, Link)
    await connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
    (tap,) = await ports_of(rack.link.shape.name, runner)
    narrower = replace(rack.link, shape=replace(rack.link.shape, mtu=1400))
    driver = connection.drivers[Kind.NETWORK]
    argv = [*own_libvirt.enter, sys.executable, "-c", WATCH, tap]
    watch = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    assert watch.stdout is not None
    try:
        assert await watch.stdout.readline() == b"ready\n"
        await driver.change(await found(bench, rack.link), narrower, bench.tag)
        await runner.run(["ip", "link", "set", "dev", tap, "alias", "over"])
        seen = list[str]()
        while not seen or "over" not in seen[-1]:
            seen.append((await watch.stdout.readline()).decode().strip())
    finally:
        watch.kill()
        await watch.wait()
    assert "down alone" in seen
    assert "up alone" not in seen
    assert seen[-1] == "up plugged over"


async def test_a_running_guest_that_lost_its_bridge_is_a_fault_and_is_plugged_in_again(
    bench: Bench, connection: LibvirtConnection, rack: Rack, runner: Runner, own_libvirt: Any
) -> None:
    """By somebody's hand, and by a daemon that ended while it made the bridge anew."""
    await make(bench, *rack.all)
    assert rack.link is not None
    assert isinstance(rack.link.shape, Link)
    await connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
    bridge, driver = rack.link.shape.name, connection.drivers[Kind.NETWORK]
    (tap,) = await ports_of(bridge, runner)
    assert (await found(bench, rack.link)).fault == ""
    virsh = ["virsh", "-c", own_libvirt.uri]
    losses = (
        [["ip", "link", "set", "dev", tap, "nomaster"]],
        [[*virsh, "net-destroy", bridge], [*virsh, "net-start", bridge]],
    )
    for loss in losses:
        for argv in loss:
            await runner.run(argv)
        assert await ports_of(bridge, runner) == []
        seen = await found(bench, rack.link)
        assert seen.fault == f"{tap} of running machines is not plugged in"
        await driver.change(seen, rack.link, bench.tag)
        assert await ports_of(bridge, runner) == [tap]
        assert (await found(bench, rack.link)).fault == ""
    for gone, fault in (
        ([*virsh, "net-destroy", bridge], "the network is not started"),
        (["ip", "link", "delete", bridge], f"its bridge {bridge} is gone"),
    ):
        await runner.run(gone)
        assert (await found(bench, rack.link)).fault == fault
        await driver.change(await found(bench, rack.link), rack.link, bench.tag)
        assert await ports_of(bridge, runner) == [tap]
        assert (await found(bench, rack.link)).fault == ""


async def test_a_running_guest_is_plugged_into_a_users_bridge_again_that_was_made_anew(
    bench: Bench, connection: LibvirtConnection, rack: Rack, runner: Runner
) -> None:
    assert isinstance(rack.machine.shape, Machine)
    (nic,) = rack.machine.shape.nics
    theirs, other = f"nst{nic.port[2:10]}", f"nso{nic.port[2:10]}"
    anew = [["ip", "link", "add", theirs, "type", "bridge"], ["ip", "link", "set", theirs, "up"]]
    gone = ["ip", "link", "delete", theirs]
    away = [
        ["ip", "link", "add", other, "type", "bridge"],
        ["ip", "link", "set", nic.port, "master", other],
    ]
    try:
        for argv in anew:
            await runner.run(argv)
        wanted = replace(rack.machine.shape, nics=(replace(nic, network=theirs),))
        machine = replace(rack.machine, shape=wanted)
        await make(bench, *rack.all[:-1], machine)
        await connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
        assert await ports_of(theirs, runner) == [nic.port]
        for loss in ([gone, *anew], away):
            for argv in loss:
                await runner.run(argv)
            seen = await found(bench, machine)
            assert (seen.shape, seen.deviations) == (wanted, (Deviation(UNLINKED, (nic.mac,), ()),))
            assert RULES[Kind.MACHINE][UNLINKED] == "live"
            await connection.machine_driver.change(seen, machine, bench.tag)
            assert await ports_of(theirs, runner) == [nic.port]
            again = await found(bench, machine)
            assert (again.shape, again.live, again.deviations) == (wanted, None, ())
    finally:
        await connection.machine_driver.power(rack.uuid, PowerCommand.OFF, PLAN)
        await runner.run(gone)
        await runner.run(["ip", "link", "delete", other], check=False)


async def test_bridges_are_seen_from_another_network_namespace_too(
    bench: Bench, rack: Rack, runner: Runner, own_libvirt: Any
) -> None:
    """As from a container that has libvirt's socket, but not its network."""
    assert rack.link is not None
    assert isinstance(rack.link.shape, Link)
    await make(bench, rack.link)
    hypervisor = Hypervisor(own_libvirt.uri, bench.host)
    elsewhere = NetworkDriver(hypervisor, bench.deployment, runner=LocalRunner())

    async def fault() -> str:
        (seen,) = await elsewhere.observe(bench.tag.cluster)
        return seen.fault

    try:
        assert await fault() == ""
        await runner.run(["ip", "link", "delete", rack.link.shape.name])
        assert await fault() == f"its bridge {rack.link.shape.name} is gone"
        await elsewhere.create(rack.link, bench.tag)
        assert await fault() == ""
        (seen,) = await elsewhere.observe(bench.tag.cluster)
        await elsewhere.delete(seen)  # with its rules of that namespace
    finally:
        await hypervisor.close()


async def ports_of(bridge: str, runner: Runner) -> list[str]:
    done = await runner.run(["ip", "-json", "link", "show", "master", bridge])
    return [link["ifname"] for link in json.loads(done.stdout or "[]") if link]


class Vanishing:
    """Tells of one port of each bridge more, whose machine ended meanwhile."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    async def run(
        self, argv: Sequence[str], *, stdin: bytes | None = None, check: bool = True
    ) -> Finished:
        done = await self._runner.run(argv, stdin=stdin, check=check)
        if "master" in argv and "show" in argv:
            links = [*json.loads(done.stdout or "[]"), {"ifname": "gone-0"}]
            return replace(done, status=0, stdout=json.dumps(links))
        return done


class Noting:
    """Notes the commands that it runs."""

    def __init__(self, runner: Runner) -> None:
        self._runner, self.noted = runner, list[str]()

    async def run(
        self, argv: Sequence[str], *, stdin: bytes | None = None, check: bool = True
    ) -> Finished:
        self.noted.append(" ".join(argv))
        return await self._runner.run(argv, stdin=stdin, check=check)


async def test_what_guests_send_from_fills_no_memory_of_the_host(
    bench: Bench, rack: Rack, runner: Runner, own_libvirt: Any
) -> None:
    """A bridge learns so many addresses where Linux and iproute2 can limit them; a tunnel does."""
    assert rack.link is not None
    assert isinstance(rack.link.shape, Link)
    hypervisor, noting = Hypervisor(own_libvirt.uri, bench.host), Noting(runner)
    driver = NetworkDriver(hypervisor, bench.deployment, runner=noting)
    tunnel = Tunnel(4242, "127.0.0.1", ("127.0.0.2",))
    link = replace(rack.link, shape=replace(rack.link.shape, tunnel=tunnel))
    bridge = rack.link.shape.name
    try:
        await driver.create(link, bench.tag)
        limit = f"ip link set dev {bridge} type bridge fdb_max_learned {MOST_LEARNED}"
        assert limit in noting.noted
        answers = ["cat", f"/proc/sys/net/ipv4/conf/{bridge}/arp_filter"]
        assert (await runner.run(answers)).stdout == "1\n", "to addresses of the network alone"
        mask = ["cat", f"/sys/class/net/{bridge}/bridge/group_fwd_mask"]
        assert (await runner.run(mask)).stdout == "0xfff8\n", "by no port past the bridge"
        await runner.run(["sh", "-c", f"echo 0 >{mask[1]}"])
        (seen,) = await driver.observe(bench.tag.cluster)
        assert seen.fault == "its bridge passes frames of guests to the host by their taps"
        await driver.change(seen, link, bench.tag)
        assert (await runner.run(mask)).stdout == "0xfff8\n", "as that of an earlier version"
        assert rack.link.shape.address6 == ""
        ipv6 = ["cat", f"/proc/sys/net/ipv6/conf/{bridge}/disable_ipv6"]
        assert (await runner.run(ipv6)).stdout == "1\n", "it has no address, and no neighbors"
        device = ["ip", "-d", "-json", "link", "show", "dev", device_of(bridge)]
        (shown,) = json.loads((await runner.run(device)).stdout)
        assert shown["linkinfo"]["info_data"]["limit"] == MOST_LEARNED
        (seen,) = await driver.observe(bench.tag.cluster)
        assert seen.fault == ""
        await driver.delete(seen)
    finally:
        await hypervisor.close()


async def test_a_port_that_vanishes_while_its_network_changes_is_no_error(
    own_libvirt: Any, runner: Runner, tmp_path: Path
) -> None:
    async def no_image(sha256: str) -> str:
        raise AssertionError(sha256)

    connection = LibvirtConnection(
        Host("here", Libvirt(own_libvirt.uri)),
        "kit",
        Vanishing(runner),
        no_image,
        records=str(tmp_path),
        verdicts=tmp_path,
        opened=own_libvirt.uri,
    )
    driver = connection.drivers[Kind.NETWORK]
    network = Resource(Key(Kind.NETWORK, "here", "lan"), Link("nsvanish0"))
    tag = OwnerTag("kit", uuid4())
    await driver.create(network, tag)
    (seen,) = await driver.observe(tag.cluster)
    await driver.change(seen, replace(network, shape=Link("nsvanish0", mtu=1400)), tag)
    (changed,) = await driver.observe(tag.cluster)
    assert changed.shape == Link("nsvanish0", mtu=1400)
    await driver.delete(changed)
    await connection.close()
