"""Three nodes of a real cloud, from their first boot to the last trace of them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import sushy
from openstack.connection import Connection
from tests.cloud.test_cloud import connection
from tests.cloud.test_rack import everything, overwrite_disk, system_of

from nospoon.probe.build import build, command_line
from nospoon.testing import disks, guests
from nospoon.testing.cloud import FULL, OwnCloud
from nospoon.testing.guests import BOOTED, LINE
from nospoon.testing.ironic import until
from nospoon.testing.rack import CACHE, Rack

pytestmark = [
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack"),
    pytest.mark.skipif(
        not FULL,
        reason="three emulated VMs that boot five times each take minutes: make "
        "test-openstack-full",
    ),
]
FILE = """
cluster: {name}
hosts:
  cloud:
    openstack:
      {{cloud: nospoon-cloud, flavors: [metal.tiny, metal.small], boot_address: 172.24.5.1}}
networks: {{lab: {{nat: true}}, provision: {{}}}}
boot: {{live: {live}}}
nodes:
  - {{name: b, cpus: 1, memory: 512MiB, firmware: bios, disks: [1GiB], boot: live,
     placement: {{affinity: flavor}}, nics: [lab]}}
  - {{name: u, cpus: 1, memory: 512MiB, firmware: uefi, disks: [1GiB], boot: live,
     placement: {{affinity: flavor}}, nics: [lab]}}
  - {{name: n, {size}, firmware: bios, boot: live, nics: [lab, provision]}}
"""
SMALL, LARGE = (
    "cpus: 1, memory: 512MiB, disks: [1GiB]",
    "cpus: 2, memory: 3GiB, disks: [10GiB]",
)
LINES = 2000
"""125 KiB of a boot: Nova shows the last 100 KiB."""
GREETING = {"b": BOOTED.decode(), "u": disks.GREETING.decode(), "n": BOOTED.decode()}
HELLO = "nospoon-probe: hello"


def said(rack: Rack, node: str) -> str:
    return rack.run("node", "console", node, "--log").stdout


def says(rack: Rack, node: str, text: str, times: int) -> bool:
    return said(rack, node).count(text) >= times


@pytest.mark.timeout(2400, func_only=True)
def test_three_nodes_boot_the_network_and_their_disks_and_leave_nothing(
    cloud: OwnCloud, rack: Rack, tmp_path: Path
) -> None:
    member, name, bmc = connection(cloud), rack.name(), rack.bmc()
    before = everything(member)
    probe = asyncio.run(build(CACHE))
    live = {
        "kernel": str(probe.kernel), "initrd": str(probe.initrd),
        "cmdline": command_line(probe.arch, after="reboot"),
    }  # fmt: skip

    def written(size: str) -> str:
        return rack.file(FILE.format(name=name, live=json.dumps(live), size=size) + bmc)

    file = written(SMALL)
    rack.run("up", file, "--yes")
    assert "Nothing to do" in rack.run("plan", file).stdout
    verdicts = rack.json("verify", file, "--timeout", "900")
    assert {each["node"]: (each["verdict"], each["nics"]) for each in verdicts} == {
        "b": ("as declared", 1), "u": ("as declared", 1), "n": ("as declared", 2),
    }  # fmt: skip

    servers = {each.name.removeprefix(f"{name}-"): each for each in member.compute.servers()}
    (group,) = member.compute.server_groups()
    assert {servers[node].id for node in "bu"} <= {*group.member_ids}
    deployed = {
        "b": guests.speaking_disk(),
        "u": disks.uefi_disk(tmp_path / "uefi.raw").read_bytes(),
        "n": guests.speaking_disk(),
    }
    for node, content in deployed.items():
        until(partial(is_, member, servers[node].id, "SHUTOFF"))
        overwrite_disk(cloud, servers[node].id, content)
    boots_the_network_and_reboots_to_its_disk(rack, name)
    rack.power(f"{name}/b", "off")
    until(partial(is_, member, servers["b"].id, "SHUTOFF"))
    overwrite_disk(cloud, servers["b"].id, guests.talking_disk(LINES))
    console_is_whole_over_three_power_cycles(rack, name)

    for node in GREETING:
        rack.power(f"{name}/{node}", "off")
    file = written(LARGE)
    plan = rack.run("plan", file).stdout
    assert "-/+ machine n" in plan, plan
    assert "flavor: metal.tiny -> metal.small  [replace]" in plan, plan
    rack.run("up", file, "--yes")
    assert "Nothing to do" in rack.run("plan", file).stdout
    now = {each.name.removeprefix(f"{name}-"): each for each in member.compute.servers()}
    assert {node: each.flavor.original_name for node, each in now.items()} == {
        "b": "metal.tiny", "u": "metal.tiny", "n": "metal.small",
    }  # fmt: skip
    assert {node for node, each in now.items() if each.id != servers[node].id} == {"n"}
    (verdict,) = rack.json("verify", name, "-n", "n", "--timeout", "900")
    assert verdict["verdict"] == "as declared"
    rack.run("down", name, "--yes")
    assert everything(member) == before


def is_(member: Connection, id_: str, status: str) -> bool:
    return bool(member.compute.get_server(id_).status == status)


def boots_the_network_and_reboots_to_its_disk(rack: Rack, name: str) -> None:
    """Each one once over the network, whose guest reboots by itself, to what was deployed."""
    bmcs = rack.bmcs(name)
    before = {node: said(rack, node).count(HELLO) for node in bmcs}
    rack.ipmitool(bmcs["b"], "chassis", "bootdev", "pxe")
    rack.ipmitool(bmcs["b"], "power", "on")
    for node in ("u", "n"):
        with system_of(bmcs[node]) as system:
            system.set_system_boot_options(
                target=sushy.BootSource.PXE, enabled=sushy.BootSourceOverrideEnabled.ONCE
            )
            system.reset_system(sushy.ResetType.ON)
    for node, greeting in GREETING.items():
        until(partial(says, rack, node, HELLO, before[node] + 1), 900)
        until(partial(says, rack, node, greeting, 1), 900)
        now = said(rack, node)
        assert now.rindex(HELLO) < now.index(greeting)
        assert now[now.rindex(HELLO) :].count("nospoon: boot image for") == 1, "of one reboot"
        with system_of(bmcs[node]) as system:
            assert system.power_state is sushy.PowerState.ON
        assert "is on" in rack.ipmitool(bmcs[node], "power", "status")


def console_is_whole_over_three_power_cycles(rack: Rack, name: str) -> None:
    """Each of its boots says more than Nova shows of one."""
    bmc = rack.bmcs(name)["b"]

    def by_ipmitool(command: str) -> None:
        rack.ipmitool(bmc, "power", command)

    def by_sushy(command: str) -> None:
        kinds = {"off": sushy.ResetType.FORCE_OFF, "on": sushy.ResetType.ON}
        with system_of(bmc) as system:
            system.reset_system(kinds[command])

    ways: tuple[Callable[[str], None], ...] = (by_ipmitool, by_sushy, by_ipmitool)
    before = said(rack, "b").count(BOOTED.decode())
    for times, way in enumerate(ways, 1):
        way("on")
        until(partial(says, rack, "b", BOOTED.decode(), before + times), 600)
        way("off")
        until(lambda: "is off" in rack.ipmitool(bmc, "power", "status"))
    whole = said(rack, "b")
    assert LINES * len(LINE) > 100 << 10
    numbers = [int(each) for each in re.findall(r"LINE-(\d{5}) \.+\r?\n", whole)]
    assert numbers == [*range(LINES)] * 3
    assert "something of this console is missing" not in whole
