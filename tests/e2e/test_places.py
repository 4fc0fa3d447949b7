"""Hosts that a cluster leaves, and hosts that lead elsewhere: nothing is left behind unseen."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from nospoon.api.client import Client
from nospoon.testing.ironic import until
from nospoon.testing.rack import Rack

TWO = "hosts: {here: simulated, there: simulated}\n"
ONE = "hosts: {here: simulated}\n"


class Changing:
    """A cluster whose file changes."""

    def __init__(self, rack: Rack) -> None:
        self.rack, self.name, self.bmc = rack, rack.name(), rack.bmc()

    def file(self, text: str) -> str:
        return self.rack.file(f"cluster: {self.name}\n{self.bmc}{text}", f"{self.name}.yaml")

    def begin_and_cancel(self, text: str) -> None:
        """An `up` that ends at once, after it was remembered. No command is as quick."""
        client = Client(self.rack.directory / "runtime" / "nospoond.sock")
        file = Path(self.file(text))
        began = client.post("/v1/clusters", {"file": file.name, "text": file.read_text()})
        client.post(f"/v1/operations/{began['operation']['id']}/cancel")

    def left_on(self, host: str) -> bool:
        """Whether anything is on a simulated host, once the daemon has written it down."""
        self.rack.run("daemon", "stop")
        return (self.rack.directory / "state" / "simulated" / f"{host}.json").exists()


@pytest.mark.parametrize("nodes", ["[{host: here}]", "[{host: here, count: 1}, {host: here}]"])
def test_the_next_up_goes_on_where_the_last_left_a_host(rack: Rack, nodes: str) -> None:
    cluster = Changing(rack)
    rack.run(
        "up", "--yes", cluster.file(f"{TWO}nodes: [{{host: here}}, {{host: there, count: 450}}]")
    )
    cluster.begin_and_cancel(f"{ONE}nodes: {nodes}")
    file = cluster.file(f"{ONE}nodes: {nodes}")
    assert " on there  (not in the file any more)" in rack.run("plan", file).stdout
    assert len(rack.run("up", "--yes", file).stdout.splitlines()) < 10, "who left is not listed"
    assert rack.run("plan", "--detailed-exitcode", file).returncode == 0
    assert "Nothing to do" in rack.run("up", "--yes", file).stderr
    assert cluster.left_on("here")
    assert not cluster.left_on("there")


def test_down_removes_what_an_interrupted_up_left_on_another_host(rack: Rack) -> None:
    cluster = Changing(rack)
    rack.run("up", "--yes", cluster.file(f"{TWO}nodes: [{{host: there, count: 450}}]"))
    cluster.begin_and_cancel(f"{ONE}nodes: [{{}}]")
    rack.run("down", "--yes", cluster.name)
    assert not cluster.left_on("there")
    assert not cluster.left_on("here")


def test_nodes_that_left_are_forgotten_though_nothing_is_to_be_made(rack: Rack) -> None:
    cluster = Changing(rack)
    rack.run("up", "--yes", cluster.file(f"{TWO}nodes: [{{host: here}}]"))
    cluster.begin_and_cancel(f"{TWO}nodes: [{{host: here, count: 150}}]")
    rack.run("up", "--yes", cluster.file(f"{TWO}nodes: [{{host: here}}]"))
    assert list(rack.bmcs(cluster.name)) == ["node-0"]


def test_a_cluster_without_nodes_is_remembered(shared: Rack) -> None:
    cluster = Changing(shared)
    shared.run("up", "--yes", cluster.file(f"{ONE}nodes: [{{count: 0}}]"))
    assert [row["name"] for row in shared.json("status")] == [cluster.name]


@pytest.mark.libvirt
def test_a_host_that_leads_elsewhere_is_refused_while_it_holds_something(rack: Rack) -> None:
    cluster = Changing(rack)
    nodes = "nodes: [{firmware: bios, memory: 64MiB}]"
    rack.run("up", "--yes", cluster.file(nodes))
    refused = rack.run("up", "--yes", cluster.file(f"{ONE}{nodes}"), status=1)
    assert (
        "host here was qemu:///system, and there is still what is the cluster's" in refused.stderr
    )
    rack.run("down", "--yes", cluster.name)
    rack.run("up", "--yes", cluster.file(f"{ONE}{nodes}"))
    assert cluster.left_on("here")


@pytest.mark.libvirt
def test_a_disk_does_not_grow_past_what_its_host_has(shared: Rack) -> None:
    cluster = Changing(shared)
    node = "firmware: bios, memory: 64MiB, disks: [{}]"
    shared.run("up", "--yes", cluster.file(f"nodes: [{{{node.format('1GiB')}}}]"))
    refused = shared.run("plan", cluster.file(f"nodes: [{{{node.format('2048TiB')}}}]"), status=1)
    assert (
        "node node-0 cannot grow where it is. here: not enough disk space left "
        "(`overcommit.disk` is 10)"
    ) in refused.stderr


@pytest.mark.libvirt
def test_disks_of_another_cluster_take_their_room(shared: Rack) -> None:
    one, other = Changing(shared), Changing(shared)
    size = shutil.disk_usage(shared.directory).free * 6 >> 30  # of ten times as much
    nodes = f"nodes: [{{firmware: bios, memory: 64MiB, disks: [{size}GiB]}}]"
    shared.run("up", "--yes", one.file(nodes))
    refused = shared.run("plan", other.file(nodes), status=1).stderr
    assert "not enough disk space left (`overcommit.disk` is 10)" in refused
    shared.run("down", "--yes", one.name)
    assert "machine node-0" in shared.run("plan", other.file(nodes)).stdout


def test_a_node_that_moves_is_shown_as_that_and_keeps_its_bmc(shared: Rack) -> None:
    cluster = Changing(shared)
    shared.run("up", "--yes", cluster.file(f"{TWO}nodes: [{{name: a, host: here}}]"))
    before = shared.bmcs(cluster.name)["a"]

    def is_(power: str) -> bool:
        return shared.bmcs(cluster.name)["a"] == before | {"power": power}

    shared.ipmitool(before, "power", "on")
    until(lambda: is_("on"))
    file = cluster.file(f"{TWO}nodes: [{{name: a, host: there}}]")
    planned = shared.run("plan", file).stdout
    moves = "-/+ machine a moves from here to there  (pinned; it runs, and is powered off)"
    assert moves in planned
    shared.run("up", "--yes", file)
    assert is_("off")
    shared.ipmitool(before, "power", "on")
    until(lambda: is_("on"))
    assert [row["host"] for row in shared.json("status", cluster.name)] == ["there"]
    assert shared.run("plan", "--detailed-exitcode", file).returncode == 0


def test_the_hosts_of_ones_clusters_are_listed(shared: Rack) -> None:
    name = shared.name()
    hosts = "{a: simulated, b: {simulated: {}, drained: true}}"
    nodes = "[{count: 2, host: a, cpus: 2, memory: 3GiB}]"
    text = f"cluster: {name}\nhosts: {hosts}\n{shared.bmc()}nodes: {nodes}\n"
    shared.run("up", "--yes", shared.file(text, f"{name}.yaml"))
    rows = {r["host"]: r for r in shared.json("host", "list") if r["cluster"] == name}
    assert [rows["a"][of] for of in ("nodes", "cpus", "memory")] == [2, 4, 6 << 30]
    assert [rows[host]["drained"] for host in ("a", "b")] == [False, True]
    assert (rows["a"]["away"], rows["b"]["away"]) == ("", "")
    assert "6 GiB" in shared.run("host", "list").stdout
