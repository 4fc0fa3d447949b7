"""What liblxc is given, and what a host says of itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nospoon.errors import MissingTool, ProviderError
from nospoon.model.cluster import Host, Switch
from nospoon.model.connections import Lxc
from nospoon.model.node_kind import NodeKind
from nospoon.model.resources.machines import Machine, MachineNic
from nospoon.providers.containers.records import parse
from nospoon.providers.lxc import LxcConnection
from nospoon.providers.lxc.config import Cgroups, Ids, render
from nospoon.providers.lxc.host import LxcHost
from nospoon.runtime.process import Finished
from nospoon.testing.probed import MACHINE

BOX = replace(MACHINE, cpus=2, memory=1 << 30, kind=NodeKind.CONTAINER)
NIC = MachineNic("02:00:00:00:00:01", "br0", "virtio", port="ns0-0")


def lines(machine: Machine, cgroups: Cgroups = Cgroups()) -> list[str]:  # noqa: B008  (frozen)
    text = render(
        machine, "box", directory="/p/box", log="/r/log", ids=Ids(1000, 65536), cgroups=cgroups
    )
    return text.splitlines()


def test_a_container_has_users_of_its_own_and_no_networks_of_its_host() -> None:
    told = lines(replace(BOX, nics=()))
    assert "lxc.idmap = u 0 1000 65536" in told
    assert "lxc.idmap = g 0 1000 65536" in told
    assert "lxc.net.0.type = empty" in told
    (dropped,) = (line for line in told if line.startswith("lxc.cap.drop"))
    assert {"sys_module", "sys_rawio", "sys_time", "syslog"} <= set(dropped.split())
    mounts = [line for line in told if line.startswith("lxc.mount.auto")]
    assert mounts[0] == "lxc.mount.auto = ", "those of the included files are dropped"
    assert not any("rw" in line for line in mounts)
    assert "lxc.no_new_privs = 1" in told


@pytest.mark.parametrize(
    ("cgroups", "limits"),
    [
        (
            Cgroups(unified=True, controllers={"cpu", "memory", "pids"}),
            {
                "cgroup2.cpu.max = 200000 100000",
                "cgroup2.memory.max = 1073741824",
                "cgroup2.memory.swap.max = 0",
                "cgroup2.pids.max = 4096",
            },
        ),
        (
            Cgroups(controllers={"cpu", "memory", "pids"}),
            {
                "cgroup.cpu.cfs_period_us = 100000",
                "cgroup.cpu.cfs_quota_us = 200000",
                "cgroup.memory.limit_in_bytes = 1073741824",
                "cgroup.pids.max = 4096",
            },
        ),
        (Cgroups(controllers={"pids"}), {"cgroup.pids.max = 4096"}),
    ],
)
def test_cpus_memory_and_processes_are_limited_by_what_the_kernel_has(
    cgroups: Cgroups, limits: set[str]
) -> None:
    found = {line.removeprefix("lxc.") for line in lines(BOX, cgroups) if "cgroup" in line[:11]}
    assert found == limits


def test_a_nic_is_plugged_into_its_bridge_and_its_vlans() -> None:
    plain = lines(replace(BOX, nics=(NIC,)))
    for line in ("link = br0", "veth.pair = ns0-0", "hwaddr = 02:00:00:00:00:01", "name = eth0"):
        assert f"lxc.net.0.{line}" in plain
    assert not any("vlan" in line for line in plain)
    tagged = replace(NIC, switch=Switch.OVS, vlan=100, trunk=(101, 102))
    found = [line for line in lines(replace(BOX, nics=(NIC, tagged))) if "vlan" in line]
    assert found == [
        "lxc.net.1.veth.vlan.id = 100",
        "lxc.net.1.veth.vlan.tagged.id = 101",
        "lxc.net.1.veth.vlan.tagged.id = 102",
    ]


GOOD = "ids u 1000000 65536\nids g 1000000 65536\ncgroup2 cpu\ncpus 4\nmemory 1024\nname h\n"


class Says:
    """A runner whose commands say this."""

    def __init__(self, text: str) -> None:
        self.text = text

    async def run(self, argv: object, *, stdin: object = None, check: bool = True) -> Finished:
        del argv, stdin, check
        return Finished((), 0, self.text, "")


@pytest.mark.parametrize(
    ("text", "idmap", "error", "why"),
    [
        ("lacks lxc-start\n", (0, 0), MissingTool, "has no lxc-start.*apt install lxc uidmap"),
        ("cpus 1\n", (0, 0), ProviderError, "reserves no ids for root.*usermod --add-subuids"),
        ("ids u 5 65536\nids g 6 65536\n", (0, 0), ProviderError, "reserves no ids"),
        (GOOD, (2_000_000, 65536), ProviderError, "2000000:65536 is not reserved for root"),
        (GOOD, (1_000_000, 65537), ProviderError, "Add the line `root:1000000:65537` there"),
    ],
)
async def test_a_host_that_cannot_make_containers_says_what_it_lacks(
    text: str, idmap: tuple[int, int], error: type[Exception], why: str
) -> None:
    with pytest.raises(error, match=why):
        await LxcHost("here:lxc", Says(text), "/pools", idmap).ids()


async def test_ids_are_those_that_are_reserved_or_chosen_among_them() -> None:
    assert await LxcHost("h", Says(GOOD), "/p", (0, 0)).ids() == Ids(1_000_000, 65536)
    more = GOOD.replace("65536", "200000")
    assert await LxcHost("h", Says(more), "/p", (1_100_000, 65536)).ids() == Ids(1_100_000, 65536)
    facts = await LxcHost("h", Says(GOOD), "/p", (0, 0)).facts()
    assert (facts.cpus, facts.memory, facts.name) == (4, 1 << 20, "h")
    assert facts.cgroups == Cgroups(unified=True, controllers=frozenset({"cpu"}))


async def test_a_host_is_checked_again_though_it_had_all() -> None:
    async def no_images(sha256: str) -> str:
        raise LookupError(sha256)

    said = Says(GOOD)
    host = Host("h", Lxc())
    connection = LxcConnection(host, "d", said, no_images, root="/p", records="/r")
    await connection.check()
    said.text = "lacks lxc-start\n"
    with pytest.raises(MissingTool):
        await connection.check()


@pytest.mark.parametrize(("said", "found"), [("", 0), ("apparmor\n", 2)])
async def test_where_the_kernel_has_apparmor_liblxc_makes_a_profile_for_systemd(
    said: str, found: int
) -> None:
    facts = await LxcHost("h", Says(GOOD + said), "/p", (0, 0)).facts()
    text = render(
        BOX, "box", directory="/p/box", log="/r/log", ids=Ids(1000, 65536),
        cgroups=facts.cgroups, apparmor=facts.apparmor,
    )  # fmt: skip
    wanted = ["lxc.apparmor.profile = generated", "lxc.apparmor.allow_nesting = 1"]
    assert [line for line in text.splitlines() if "apparmor" in line] == wanted[:found]


def test_what_cannot_be_read_is_nobodys() -> None:
    records = "record a/pool.json {]\nrecord b/pool.json {}\n"
    seen = parse(f"{records}size a/x.volume many\nruns a/b 1\n\nwhat\n")
    assert (seen.records, seen.sizes, seen.running) == ({}, {}, {})
