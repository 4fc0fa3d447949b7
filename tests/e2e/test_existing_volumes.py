"""Volumes that somebody else made, as disks of nodes: looked at only, they outlive everything."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from tests.e2e.standing import virsh
from tests.e2e.test_orphans import forget

from nospoon.providers.libvirt.storage_xml import disk_file
from nospoon.testing.rack import Rack

pytestmark = [pytest.mark.libvirt]
SIZE = 4 << 20


class Pool:
    """A storage pool of somebody's, of a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.name = directory, f"nsp{uuid4().hex[:8]}"
        directory.mkdir(mode=0o711)
        virsh("pool-create-as", self.name, "dir", "--target", str(directory))

    def volume(self, name: str, kind: str = "raw") -> str:
        """A new one with something in it, as the cluster file calls it."""
        virsh("vol-create-as", self.name, name, str(SIZE), "--format", kind)
        if kind == "raw":
            (self.directory / name).write_bytes(os.urandom(SIZE))
        return f"{self.name}/{name}"

    def digest(self, name: str) -> str:
        return hashlib.sha256((self.directory / name).read_bytes()).hexdigest()


@pytest.fixture
def pool(rack: Rack) -> Iterator[Pool]:
    made = Pool(rack.directory / f"theirs-{uuid4().hex[:8]}")
    yield made
    virsh("pool-destroy", made.name)


def cluster(rack: Rack, *disks: object, count: int = 1, name: str = "") -> tuple[str, str]:
    name = name or rack.name()
    body = {"firmware": "bios", "memory": "64MiB", "disks": disks, "count": count, "name": "n{n}"}
    text = f"cluster: {name}\n{rack.bmc()}networks: {{lan: {{}}}}\n"
    return name, rack.file(f"{text}nodes: [{json.dumps(body)}]\n", f"{name}.yaml")


def domain_of(rack: Rack, name: str) -> str:
    return virsh("domname", rack.json("node", "show", f"{name}/n0")["uuid"])


def test_an_existing_volume_is_a_disk_and_outlives_replacement_down_and_orphans(
    rack: Rack, pool: Pool
) -> None:
    wanted = pool.volume("data")
    before = pool.digest("data")
    name, file = cluster(rack, "16MiB", {"volume": wanted, "bus": "scsi"})
    assert pool.name not in {step["name"] for step in rack.json("plan", file)["steps"]}
    rack.run("up", "--yes", file)
    domain = domain_of(rack, name)
    rack.power(f"{name}/n0", "on")
    assert f"Capacity:       {SIZE}" in virsh("domblkinfo", domain, "sda")
    assert rack.json("plan", file)["steps"] == [], "it is what was wanted, while it runs, too"

    _, smaller = cluster(rack, "8MiB", {"volume": wanted, "bus": "scsi"}, name=name)
    steps = rack.json("plan", smaller)["steps"]
    actions = {step["kind"]: step["action"] for step in steps}
    assert actions["machine"] == actions["volume"] == "replace"
    rack.run("up", "--yes", smaller)
    rack.run("down", "--yes", "--purge", name)
    assert pool.digest("data") == before

    rack.run("up", "--yes", smaller)
    forget(rack, name)
    kinds = {row["kind"] for row in rack.json("orphans", smaller)}
    assert "machine" in kinds
    rack.run("orphans", "--reap", "--yes", "--grace", "0.2", smaller)
    assert pool.digest("data") == before
    assert virsh("vol-list", pool.name).count("data") == 2, "its name and its path"


def test_a_volume_that_cannot_be_had_is_refused_in_the_plan(rack: Rack, pool: Pool) -> None:
    def refusal(*disks: object, count: int = 1) -> str:
        _, file = cluster(rack, *disks, count=count)
        return rack.run("plan", file, status=1).stderr

    raw, qcow2 = pool.volume("raw"), pool.volume("grown", "qcow2")
    missing = f"{pool.name}/missing"
    assert f"no volume {missing} in an active storage pool" in refusal({"volume": missing})
    assert "no volume nowhere/x in an active" in refusal({"volume": "nowhere/x"})
    assert "Write `format: qcow2`" in refusal({"volume": qcow2})
    assert f"both want volume {raw}" in refusal({"volume": raw}, count=2)

    name, file = cluster(rack, "16MiB", {"volume": raw})
    rack.run("up", "--yes", file)
    domain = domain_of(rack, name)
    assert f"volume {raw} is a disk of domain {domain}. Detach" in refusal({"volume": raw})
    (ours,) = (line.split()[0] for line in virsh("pool-list").splitlines() if name in line)
    assert "is nospoon's own" in refusal({"volume": f"{ours}/{disk_file(ours, 'n0-0')}"})
