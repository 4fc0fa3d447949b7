"""A cluster over three hosts that are reached over ssh: placed, booted, read, and gone again."""

from __future__ import annotations

import pytest
from tests.fleet.conftest import Farm

pytestmark = [pytest.mark.libvirt, pytest.mark.xdist_group("fleet"), pytest.mark.timeout(300)]

NODES = """
networks: {provision: {netboot: builtin}}
nodes: [{name: "n{n}", count: 3, firmware: bios, memory: 256MiB, disks: [64MiB]}]
"""


@pytest.mark.boots
def test_nodes_on_three_hosts_boot_the_probe_and_leave_nothing(farm: Farm) -> None:
    rack, name = farm.rack, farm.rack.name()
    rack.run("up", "--yes", farm.file(name, NODES))
    rows = rack.json("status", name)
    assert {row["host"] for row in rows} == set(farm.hosts)
    assert {row["verdict"] for row in rack.json("verify", name)} == {"as declared"}
    assert "nospoon-probe" in rack.run("node", "console", "n0", "--log").stdout
    rack.run("down", "--yes", "--purge", name)
    for host in farm.hosts.values():
        assert host.run("find", "/var/lib/nospoon", "-type", "f") == ""
        assert host.run("virsh", "list", "--all", "--name").split() == []
        assert "nospoon" not in host.run("virsh", "net-list", "--all", "--name")
        assert host.run("ip", "-o", "link").count("\n") == 1
