"""An `up` that ends before a node was moved, or got its new account: it is known as it is."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest
import yaml

from nospoon.plan.identity import pool_name
from nospoon.testing.rack import Rack, broken_certificate

TINY = "firmware: bios, memory: 64MiB, disks: [16MiB]"


class Changing:
    """A cluster of one node, that is to get another password, ports or host."""

    def __init__(self, rack: Rack) -> None:
        self.rack, self.name = rack, rack.name()
        self.bmc = yaml.safe_load(rack.bmc())["bmc"]

    def file(self, password: str, host: str = "x", **bmc: object) -> str:
        section = json.dumps({**self.bmc, "password": password, **bmc})
        hosts = "hosts: {x: simulated, y: {libvirt: 'qemu:///system'}}"
        node = f"{{name: a, host: {host}, {TINY}}}"
        text = f"cluster: {self.name}\n{hosts}\nbmc: {section}\nnodes: [{node}]\n"
        return self.rack.file(text, f"{self.name}.yaml")

    def is_known(self, *, host: str, password: str) -> None:
        """By `status` and `bmc list`, and its BMC lets in who has read that there."""
        (row,) = self.rack.json("status", self.name)
        assert row["host"] == host
        bmc = self.rack.bmcs(self.name)["a"]
        assert bmc["password"] == password
        self.rack.ipmitool(bmc, "mc", "info")

    def restart(self) -> None:
        self.rack.run("daemon", "stop")


def test_an_account_that_its_bmc_did_not_get_is_not_told(rack: Rack) -> None:
    cluster = Changing(rack)
    rack.run("up", "--yes", cluster.file("before1"))
    with broken_certificate(rack):
        refused = rack.run("up", "--yes", cluster.file("after12", tls=True), status=1)
        assert "cannot serve Redfish" in refused.stderr
        cluster.is_known(host="x", password="before1")
    cluster.restart()
    cluster.is_known(host="x", password="before1")
    rack.run("up", "--yes", cluster.file("after12"))
    cluster.is_known(host="x", password="after12")
    cluster.restart()
    cluster.is_known(host="x", password="after12")


@pytest.mark.libvirt
def test_a_node_is_known_where_it_is_until_it_was_moved(rack: Rack) -> None:
    cluster = Changing(rack)
    rack.run("up", "--yes", cluster.file("before1"))
    (told,) = rack.json("status")
    pools = Path(rack.environment["NOSPOON_POOL_DIR"])
    pools.mkdir(parents=True, exist_ok=True)
    in_the_way = pools / pool_name(UUID(told["id"]), cluster.name)
    in_the_way.write_text("no directory")
    rack.run("up", "--yes", cluster.file("after12", "y"), status=3)
    cluster.is_known(host="x", password="before1")
    rack.power(f"{cluster.name}/a", "on")
    cluster.restart()
    cluster.is_known(host="x", password="before1")
    in_the_way.unlink()
    rack.run("up", "--yes", cluster.file("after12", "y"))
    cluster.is_known(host="y", password="after12")
    file = cluster.file("after12", "y")
    assert rack.run("plan", "--detailed-exitcode", file).returncode == 0
