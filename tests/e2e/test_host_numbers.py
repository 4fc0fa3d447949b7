"""Hosts keep their addresses on overlays when others come before them in the file."""

from __future__ import annotations

import sqlite3

import pytest

from nospoon.testing.rack import Rack

OVERLAY = "networks: {lan: {overlay: vxlan, netboot: builtin, cidr: 10.99.3.0/24}}\n"


def forget_numbers_of_hosts(rack: Rack) -> None:
    """What is remembered is what earlier versions did."""
    rack.run("daemon", "stop")
    with sqlite3.connect(rack.directory / "state" / "nospoon.db") as database:
        database.execute("UPDATE clusters SET allocations = json_remove(allocations, '$.ends')")
    database.close()


@pytest.mark.parametrize("version", ["this", "an earlier"])
def test_a_new_host_before_it_changes_nothing_of_one_that_is_up(rack: Rack, version: str) -> None:
    name, bmc = rack.name(), rack.bmc()

    def file(hosts: str) -> str:
        text = f"cluster: {name}\n{bmc}hosts: {{{hosts}}}\n{OVERLAY}nodes: [{{count: 2}}]\n"
        return rack.file(text, f"{name}.yaml")

    rack.run("up", "--yes", file("a: simulated"))
    if version != "this":
        forget_numbers_of_hosts(rack)
    more = file("d: {simulated: true, drained: true}, a: simulated")
    assert rack.json("plan", more)["steps"] == []
    rack.run("up", "--yes", more)
    assert rack.json("plan", more)["steps"] == []
