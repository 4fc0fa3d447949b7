"""What the store lost is listed and, when asked, removed; what others made is left alone."""

from __future__ import annotations

import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from nospoon.testing.rack import Rack


def forget(rack: Rack, name: str) -> None:
    """The store, put back from a copy that is older than the cluster."""
    rack.run("daemon", "stop")
    with closing(sqlite3.connect(rack.directory / "state" / "nospoon.db")) as database, database:
        database.execute("PRAGMA foreign_keys=ON")  # what belongs to these rows goes with them
        database.execute("DELETE FROM bmcs")
        database.execute("DELETE FROM nodes")
        database.execute("DELETE FROM clusters WHERE name = ?", (name,))
    rack.names.remove(name)


def simulated(rack: Rack, host: str = "sim", count: int = 2) -> tuple[str, str]:
    name = rack.name()
    text = f"cluster: {name}\nhosts: {{{host}: simulated}}\n{rack.bmc()}nodes: [{{count: {count}}}]"
    return name, rack.file(text, f"{name}.yaml")


def test_of_a_cluster_in_the_store_nothing_is_an_orphan(rack: Rack) -> None:
    _, file = simulated(rack)
    rack.run("up", "--yes", file)
    assert rack.json("orphans", file) == []
    assert rack.json("orphans", "--host", "sim=simulated") == []


def test_what_no_cluster_knows_is_listed_with_whose_it_was_and_reaped(rack: Rack) -> None:
    name, file = simulated(rack)
    rack.run("up", "--yes", file)
    forget(rack, name)
    rows = rack.json("orphans", file)
    assert {(row["cluster"], row["owner"], row["host"]) for row in rows} == {(name, "root", "sim")}
    assert {row["name"] for row in rows if row["kind"] == "machine"} == {"node-0", "node-1"}
    other, kept = simulated(rack)
    rack.run("up", "--yes", kept)
    told = rack.run("orphans", "--reap", "--yes", "--grace", "0.2", kept).stderr
    assert f"{len(rows)} orphans are removed" in told
    assert rack.json("orphans", kept) == []
    assert {row["state"] for row in rack.json("status", other)} == {"present"}


def test_orphans_are_kept_when_somebody_cancels_within_the_time_of_grace(rack: Rack) -> None:
    name, file = simulated(rack)
    rack.run("up", "--yes", file)
    forget(rack, name)
    before = rack.json("orphans", file)
    command = ["nospoon", "orphans", "--reap", "--yes", "--grace", "600", file]
    with subprocess.Popen(command, env=rack.environment, stderr=subprocess.PIPE, text=True) as reap:
        assert reap.stderr is not None
        line = next(line for line in reap.stderr if "operation cancel" in line)
        rack.run("operation", "cancel", line.split("operation cancel ")[1].split("`")[0])
        assert reap.wait(60) == 1
    assert rack.json("orphans", file) == before


def test_a_cluster_that_is_made_again_within_the_time_of_grace_is_kept(rack: Rack) -> None:
    name, file = simulated(rack)
    rack.run("up", "--yes", file)
    forget(rack, name)
    id_ = rack.json("orphans", file)[0]["cluster_id"]
    command = ["nospoon", "orphans", "--reap", "--yes", "--grace", "20", file]
    with subprocess.Popen(command, env=rack.environment, stderr=subprocess.PIPE, text=True) as reap:
        assert reap.stderr is not None
        next(line for line in reap.stderr if "operation cancel" in line)
        pinned = rack.file(f"id: {id_}\n{Path(file).read_text()}", "pinned.yaml")
        rack.names.append(name)
        rack.run("up", "--yes", pinned)
        assert reap.wait(60) == 0
    assert {row["state"] for row in rack.json("status", name)} == {"present"}


@pytest.mark.libvirt
def test_orphans_of_libvirt_are_reaped_and_another_deployments_things_are_not(rack: Rack) -> None:
    name = rack.name()
    networks = "networks: {lan: {netboot: builtin}}"
    nodes = "nodes: [{count: 1, firmware: bios, memory: 64MiB, disks: [16MiB]}]"
    text = f"cluster: {name}\n{networks}\n{rack.bmc()}{nodes}\n"
    rack.run("up", "--yes", rack.file(text))
    place = rack.directory / "other"
    place.mkdir(mode=0o711)
    other = Rack.at(place)
    try:
        told = other.run("orphans")
        assert "left unchanged" in told.stderr
        assert name not in told.stdout
        other.run("orphans", "--reap", "--yes", "--grace", "0")
        other.run("daemon", "stop")
    finally:
        other.kill()
    assert {row["state"] for row in rack.json("status", name)} == {"present"}
    forget(rack, name)
    rows = [row for row in rack.json("orphans") if row["cluster"] == name]
    assert {row["kind"] for row in rows} == {"pool", "network", "volume", "netboot", "machine"}
    rack.run("orphans", "--reap", "--yes", "--grace", "0")
    assert [row for row in rack.json("orphans") if row["cluster"] == name] == []
    assert not list((rack.directory / "pool").iterdir())


def test_a_daemon_killed_while_it_reaps_reaps_the_rest_when_asked_again(rack: Rack) -> None:
    name, file = simulated(rack, count=300)
    rack.run("up", "--yes", file)
    forget(rack, name)
    command = ["nospoon", "orphans", "--reap", "--yes", "--grace", "0", file]
    with subprocess.Popen(command, env=rack.environment, stderr=subprocess.PIPE, text=True) as reap:
        assert reap.stderr is not None
        next(line for line in reap.stderr if line.startswith("[1"))
        rack.crash()
        reap.communicate(timeout=240)
    rack.run("orphans", "--reap", "--yes", "--grace", "0", file)
    assert rack.json("orphans", file) == []
