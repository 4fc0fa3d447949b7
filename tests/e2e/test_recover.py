"""A lost database is made again from what is on the hosts, and no node is replaced."""

from __future__ import annotations

import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from nospoon.runtime import running
from nospoon.store.crypt import Cipher
from nospoon.testing.rack import Rack

SIMULATED = "hosts: {a: simulated, b: simulated}\n"
NODES = "nodes: [{count: 3, bmc: [ipmi, redfish, pdu]}]\n"


def lose(rack: Rack, *more: str) -> None:
    """The database, and what else is named, is gone."""
    rack.run("daemon", "stop")
    state = rack.directory / "state"
    for path in [*state.glob("nospoon.db*"), *(state / each for each in more)]:
        path.unlink()


def up(rack: Rack, body: str) -> tuple[str, str]:
    name = rack.name()
    file = rack.file(f"cluster: {name}\n{rack.bmc()}{body}", f"{name}.yaml")
    rack.run("up", "--yes", file)
    return name, file


def places(rack: Rack, name: str) -> dict[str, tuple[str, str]]:
    """What is to be as it was: a BMC's places and its machine."""
    keep = ("uuid", "ipmi", "redfish", "pdu")
    return {node: tuple(row[k] for k in keep) for node, row in rack.bmcs(name).items()}  # type: ignore[misc]


@pytest.mark.parametrize("lost", [(), ("nospoon.key",)])
def test_a_lost_database_is_recovered_and_up_replaces_no_node(
    rack: Rack, lost: tuple[str, ...]
) -> None:
    name, file = up(rack, SIMULATED + NODES)
    other, other_file = up(rack, SIMULATED + "nodes: [{count: 2}]\n")
    before, hosts = places(rack, name), {r["node"]: r["host"] for r in rack.json("status", name)}
    passwords = {node: row["password"] for node, row in rack.bmcs(name).items()}
    lose(rack, *lost)
    assert rack.json("status") == []
    told = rack.run("recover", file)
    assert "new passwords" in told.stderr
    assert other not in told.stdout
    assert {r["node"]: r["host"] for r in rack.json("status", name)} == hosts
    plan = rack.json("plan", file)
    assert {step["kind"] for step in plan["steps"]} == {"bmc"}
    rack.run("up", "--yes", file)
    assert places(rack, name) == before
    assert {row["state"] for row in rack.json("status", name)} == {"present"}
    after = rack.bmcs(name)
    assert all(after[node]["password"] != passwords[node] for node in after)
    rack.ipmitool(after["node-0"], "mc", "info")
    rack.run("recover", other_file)
    rack.run("up", "--yes", other_file)
    assert rack.json("orphans", file) == []


def test_plan_and_up_make_no_node_twice_that_is_only_forgotten(rack: Rack) -> None:
    name, file = up(rack, SIMULATED + NODES)
    before = places(rack, name)
    lose(rack)
    for words in (["plan"], ["up", "--yes"]):
        refused = rack.run(*words, file, status=1).stderr
        assert f"cluster {name} has 3 machines on a, b" in refused
        assert "Run `nospoon recover`" in refused
        assert "`nospoon orphans --reap`" in refused
    stranger = rack.file(f"cluster: {rack.name()}\n{SIMULATED}nodes: [{{count: 1}}]\n", "new.yaml")
    rack.run("plan", stranger)
    rack.run("recover", file)
    rack.run("up", "--yes", file)
    assert places(rack, name) == before


def test_up_and_recover_at_once_end_or_say_who_was_first(rack: Rack) -> None:
    name, file = up(rack, "hosts: {a: simulated}\n" + NODES)
    before = places(rack, name)
    lose(rack)
    rack.run("daemon", "start")
    argv = [[*rack.prefix, "nospoon", *words, file] for words in (("up", "--yes"), ("recover",))]
    both = [subprocess.Popen(each, env=rack.environment, stderr=subprocess.PIPE) for each in argv]
    said = [each.communicate(timeout=240)[1].decode() for each in both]
    for each, told in zip(both, said, strict=True):
        refused = "under way" in told or "Run `nospoon recover`" in told
        assert each.returncode == 0 or refused, told
    rack.run("recover", file)
    rack.run("up", "--yes", file)
    assert places(rack, name) == before


@pytest.mark.parametrize("verb", ["up", "down"])
def test_a_remembered_file_that_can_be_read_no_more_stops_nobody(rack: Rack, verb: str) -> None:
    """An earlier version took it."""
    name, file = up(rack, "hosts: {a: simulated}\n" + NODES)
    before = places(rack, name)
    rack.run("daemon", "stop")
    state = rack.directory / "state"
    unread = Cipher.from_file(state / "nospoon.key").encrypt(f"cluster: {name}\nnodes: [7]\n")
    with closing(sqlite3.connect(state / "nospoon.db")) as database, database:
        database.execute("UPDATE clusters SET text = ?, desired = NULL", (unread.decode(),))
    assert places(rack, name) == before
    rack.run(verb, "--yes", file if verb == "up" else name)
    assert places(rack, name) == (before if verb == "up" else {})


def test_without_its_file_a_cluster_is_recovered_from_the_hosts_alone(rack: Rack) -> None:
    name, file = up(rack, "hosts: {a: simulated}\n" + NODES)
    before = places(rack, name)
    lose(rack)
    (row,) = rack.json("recover", "--host", "a=simulated")
    assert (row["cluster"], row["owner"], row["nodes"], row["bmcs"]) == (name, "root", 3, 3)
    again = rack.run("recover", "--host", "a=simulated", "--format", "json")
    assert (again.stdout, again.stderr) == (
        "[]\n",
        "Nothing to recover: no cluster was found that the store lacks.\n",
    )
    states = rack.json("status", name)
    assert {(r["node"], r["state"]) for r in states} == {(f"node-{n}", "drifted") for n in range(3)}
    assert all(", recovered as " in r["drift"] for r in states)
    rack.run("up", "--yes", file)
    assert places(rack, name) == before


def test_a_cluster_whose_state_is_all_gone_is_recovered_by_naming_its_deployment(
    rack: Rack,
) -> None:
    name, file = up(rack, "hosts: {a: simulated}\n" + NODES)
    before = places(rack, name)
    deployment = (rack.directory / "state" / "deployment").read_text().strip()
    lose(rack, "deployment", "nospoon.key")
    told = rack.run("recover", file)
    assert name not in told.stdout
    assert f"recover --deployment {deployment}" in told.stderr
    with running.hold(deployment):
        told = rack.run("recover", file)
        assert f"deployment {deployment}, whose daemon runs on this machine" in told.stderr
        refused = rack.run("recover", "--deployment", deployment, file, status=5)
        assert "its state is not lost" in refused.stderr
    assert name in rack.run("recover", "--deployment", deployment, file).stdout
    rack.run("up", "--yes", file)
    assert places(rack, name) == before
    refused = rack.run("recover", "--deployment", "0" * 32, file, status=5)
    assert "this daemon has clusters" in refused.stderr


def test_a_recovered_cluster_goes_down_without_its_file(rack: Rack) -> None:
    name, file = up(rack, SIMULATED + NODES)
    lose(rack)
    rack.run("recover", "--host", "a=simulated", "--host", "b=simulated")
    assert "`nospoon orphans`" in rack.run("down", "--yes", name).stderr
    assert rack.json("orphans", file) == []
    rack.run("daemon", "stop")
    assert not list((rack.directory / "state" / "simulated").glob("*"))


@pytest.mark.parametrize("remembered", ["a part", "nothing"])
def test_nodes_that_were_not_recovered_stay_where_they_are(rack: Rack, remembered: str) -> None:
    """The file would place them elsewhere, had they to be placed."""
    name = rack.name()
    head = f"cluster: {name}\nid: {uuid4()}\n{rack.bmc()}"
    body = head + SIMULATED + "nodes: [{count: 4, placement: %s, bmc: [ipmi, redfish, pdu]}]\n"
    rack.run("up", "--yes", rack.file(body % "spread", f"{name}.yaml"))
    before, hosts = places(rack, name), {r["node"]: r["host"] for r in rack.json("status", name)}
    assert {*hosts.values()} == {"a", "b"}
    lose(rack)
    if remembered == "a part":
        (row,) = rack.json("recover", "--host", "a=simulated")
        assert row["nodes"] == 2
    packed = rack.file(body % "pack", f"{name}.yaml")
    assert {step["kind"] for step in rack.json("plan", packed)["steps"]} == {"bmc"}
    rack.run("up", "--yes", packed)
    assert {r["node"]: r["host"] for r in rack.json("status", name)} == hosts
    assert places(rack, name) == before


def test_a_cluster_that_was_recovered_in_part_is_completed(rack: Rack) -> None:
    name, file = up(rack, SIMULATED + "nodes: [{count: 4, bmc: [ipmi, redfish, pdu]}]\n")
    before, hosts = places(rack, name), {r["node"]: r["host"] for r in rack.json("status", name)}
    rack.run("snapshot", "create", name, "first")
    lose(rack)
    told = rack.run("recover", "--host", "a=simulated")
    assert "Without FILE, other hosts of a cluster are not known" in told.stderr
    assert {row["node"] for row in rack.json("status", name)} == {"node-0", "node-2"}
    (row,) = rack.json("recover", "--host", "b=simulated")
    assert (row["nodes"], row["hosts"], row["bmcs"]) == (4, "a, b", 4)
    assert (row["said"], row["snapshots"]) == ("completed", 1)
    assert {r["node"]: r["host"] for r in rack.json("status", name)} == hosts
    (found,) = rack.json("snapshot", "list", name)
    assert (found["state"], found["nodes"]) == ("partly", 4), "without FILE nobody can tell"
    refused = rack.run("snapshot", "restore", "--yes", name, "first", status=5).stderr
    assert "may be of more nodes than are known" in refused
    (row,) = rack.json("recover", file)
    assert (row["said"], row["snapshots"]) == ("completed", 1)
    assert rack.json("recover", file) == []
    (found,) = rack.json("snapshot", "list", name)
    assert (found["state"], found["nodes"]) == ("complete", 4)
    assert rack.json("orphans", file) == []
    rack.run("up", "--yes", file)
    assert places(rack, name) == before
    rack.run("snapshot", "restore", "--yes", name, "first")


def test_the_file_completes_what_was_recovered_of_one_of_its_hosts(rack: Rack) -> None:
    name, file = up(rack, SIMULATED + "nodes: [{count: 3}]\n")
    lose(rack)
    rack.run("recover", "--host", "a=simulated")
    (row,) = rack.json("recover", file)
    assert (row["said"], row["nodes"], row["hosts"]) == ("completed", 3, "a, b")
    assert {step["kind"] for step in rack.json("plan", file)["steps"]} == {"bmc"}
    assert len(rack.json("status", name)) == 3


def test_a_snapshot_of_nodes_that_were_not_recovered_with_it_is_not_restored(rack: Rack) -> None:
    name, file = up(rack, SIMULATED + "nodes: [{count: 4}]\n")
    rack.run("snapshot", "create", name, "first")
    lose(rack)
    rack.run("recover", "--host", "a=simulated")
    rack.run("up", "--yes", file)
    refused = rack.run("snapshot", "restore", "--yes", name, "first", status=5).stderr
    assert "is of more nodes than are known: node-1, node-3" in refused
    assert "nospoon recover FILE" in refused
    (row,) = rack.json("recover", file)
    assert (row["said"], row["nodes"], row["snapshots"]) == ("completed", 4, 1)
    rack.run("snapshot", "restore", "--yes", name, "first")


def test_while_a_host_is_away_a_cluster_is_recovered_in_part_and_not_taken_for_down(
    rack: Rack,
) -> None:
    here = "hosts: {a: simulated, b: {libvirt: 'qemu+ssh://nowhere.invalid/system'}}\n"
    name, file = up(rack, "hosts: {a: simulated}\nnodes: [{count: 2}]\n")
    rack.run("snapshot", "create", name, "first")
    lose(rack)
    wide = Path(file).read_text().replace("hosts: {a: simulated}\n", here)
    told = rack.run("recover", rack.file(wide, "wide.yaml"), status=3)
    assert "recovered in part: no answer from b" in told.stdout
    assert "host b is not looked at" in told.stderr
    assert rack.json("snapshot", "list", name)[0]["state"] == "partly"
    refused = rack.run("snapshot", "restore", "--yes", name, "first", status=5).stderr
    assert "may be of more nodes than are known" in refused
    assert "host b:" in rack.run("down", "--yes", name, status=3).stderr
    lose(rack)  # nobody will find that host


@pytest.mark.libvirt
def test_running_machines_of_libvirt_are_recovered_and_go_on(rack: Rack) -> None:
    body = (
        "hosts: {rack1: {libvirt: 'qemu:///system'}}\nnetworks: {lan: {netboot: builtin}}\n"
        "nodes: [{count: 2, firmware: bios, memory: 64MiB, disks: [16MiB]}]\n"
    )
    name, file = up(rack, body)
    before = places(rack, name)
    rack.ipmitool(rack.bmcs(name)["node-0"], "power", "on")
    pids = started(name)
    address = network_address(name)
    rack.run("snapshot", "create", name, "first")
    kept = rack.json("snapshot", "list", name)
    lose(rack, "nospoon.key")
    (row,) = [row for row in rack.json("recover") if row["cluster"] == name]
    assert (row["nodes"], row["hosts"], row["said"]) == (2, "rack1", "recovered")
    assert row["snapshots"] == 1
    (found,) = rack.json("snapshot", "list", name)
    assert (found["name"], found["state"], found["nodes"], found["on"]) == (
        "first", "partly", 2, kept[0]["on"]
    )  # fmt: skip
    (row,) = rack.json("recover", file)
    assert (row["said"], row["snapshots"]) == ("completed", 1)
    assert rack.json("snapshot", "list", name)[0]["state"] == "complete"
    assert kept[0]["on"] == 1
    plan = rack.json("plan", file)
    assert {(step["kind"], step["action"]) for step in plan["steps"]} == {("bmc", "create")}
    rack.run("up", "--yes", file)
    assert places(rack, name) == before
    assert "is on" in rack.ipmitool(rack.bmcs(name)["node-0"], "power", "status")
    assert qemu(name) == pids
    assert network_address(name) == address
    rack.run("snapshot", "restore", "--yes", name, "first")
    rack.run("snapshot", "delete", name, "first")


def test_a_database_without_its_key_is_refused_until_the_key_is_back(rack: Rack) -> None:
    name, _ = up(rack, SIMULATED + NODES)
    before = rack.bmcs(name)
    rack.run("daemon", "stop")
    key = rack.directory / "state" / "nospoon.key"
    kept = key.read_bytes()
    key.unlink()
    said = rack.run("status", status=1).stderr
    assert f"the key {key} is not the one that encrypted the database. Restore it" in said
    assert "Traceback" not in said
    key.write_bytes(kept)
    assert rack.bmcs(name) == before


def started(name: str) -> list[str]:
    """The pids of its QEMUs, once there are some: a BMC acknowledges power-on before it is done."""
    deadline = time.monotonic() + 240
    while not (pids := qemu(name)):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return pids


def qemu(name: str) -> list[str]:
    """The pids of the cluster's QEMUs."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"qemu-system-x86_64") and any(
            word.startswith(f"guest={name}-".encode()) for word in words
        ):
            found.append(path.parent.name)
    return sorted(found)


def network_address(name: str) -> str:
    """The addresses of libvirt's networks of which this cluster is the owner."""
    virsh = ["virsh", "-c", "qemu:///system"]
    run = [*virsh, "net-list", "--name"]
    names = subprocess.run(run, text=True, capture_output=True, check=True).stdout.split()
    dumps = [
        subprocess.run([*virsh, "net-dumpxml", n], text=True, capture_output=True, check=False)
        for n in names
    ]
    (ours,) = [d.stdout for d in dumps if f'cluster-name="{name}"' in d.stdout]
    return next(line for line in ours.splitlines() if "<ip" in line)
