"""Clusters on one host share its images, also while they come and go at once."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.e2e.standing import virsh

from nospoon.testing.rack import Rack

pytestmark = [pytest.mark.libvirt]
SIZE = 4 << 20


def cluster(rack: Rack) -> tuple[str, str]:
    name = rack.name()
    node = "{firmware: bios, memory: 64MiB, nics: [], disks: [{image: shared.raw}]}"
    return name, rack.file(f"cluster: {name}\n{rack.bmc()}nodes: [{node}]\n", f"{name}.yaml")


def copies(rack: Rack) -> list[Path]:
    return list((rack.directory / "pool").rglob("*.raw"))


def test_clusters_that_come_and_go_at_once_share_an_image(rack: Rack) -> None:
    content = os.urandom(SIZE)
    (rack.directory / "shared.raw").write_bytes(content)
    (first, file), (second, other), (third, another) = (cluster(rack) for _ in range(3))
    rack.run("up", "--yes", file)
    (copy,) = copies(rack)
    with ThreadPoolExecutor() as threads:
        goes = threads.submit(rack.run, "down", "--yes", first)
        come = [threads.submit(rack.run, "up", "--yes", each) for each in (other, another)]
        for each in (goes, *come):
            each.result()
    assert copies(rack) == [copy]
    assert copy.read_bytes() == content
    for name in (second, third):
        assert {row["state"] for row in rack.json("status", name)} == {"present"}
        rack.power(f"{name}/node-0", "on")
    assert rack.json("orphans", other) == []
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda name: rack.run("down", "--yes", name), (second, third)))
    assert not list((rack.directory / "pool").iterdir())
    deployment = (rack.directory / "state" / "deployment").read_text().strip()
    assert deployment not in virsh("pool-list", "--all", "--name")
