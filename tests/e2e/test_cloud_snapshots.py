"""Snapshots of servers of a cloud by the command line: kept, restored, gone with their nodes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from nospoon.testing.cloud_connection import fake_cloud
from nospoon.testing.fake_cloud import FakeCloud
from nospoon.testing.ironic import until
from nospoon.testing.rack import Rack, private_rack

VM = (
    "name: {name}, kind: vm, cpus: 1, memory: 512MiB, firmware: uefi, nics: [{{network: external}}]"
)
FILE = """
cluster: kept
hosts:
  cloud:
    openstack: {{cloud: {settings}, boot_address: 127.0.0.1}}
    physnets: {{external: external}}
networks: {{external: {{physnet: external}}}}
nodes: [{nodes}]
"""


def vm(name: str) -> str:
    return "{" + VM.format(name=name) + ", disks: [{image: cloud.raw, size: 1GiB}]}"


METAL = "{name: m, memory: 512MiB, disks: [1GiB], nics: [{network: external}]}"


def file(rack: Rack, cloud: FakeCloud, bmc: str, *nodes: str) -> str:
    settings = json.dumps({"name": "mine", **cloud.settings})
    return rack.file(FILE.format(settings=settings, nodes=", ".join(nodes)) + bmc)


@pytest.mark.timeout(240)
async def test_roots_of_a_cloud_are_kept_restored_and_removed() -> None:
    async with fake_cloud() as cloud:
        cloud.networks["n0"]["project_id"] = "0" * 32
        with private_rack() as rack:
            (rack.directory / "cloud.raw").write_bytes(bytes(1 << 20))
            await asyncio.to_thread(_kept, rack, cloud)
            await asyncio.to_thread(_refused, rack, cloud)
        assert not cloud.servers
        assert not cloud.images


def _states(cloud: FakeCloud) -> dict[str, tuple[str, dict[str, str]]]:
    return {each["name"]: (each["status"], each["image"]) for each in cloud.servers.values()}


def _kept(rack: Rack, cloud: FakeCloud) -> None:
    bmc = rack.bmc()
    rack.run("up", "--yes", file(rack, cloud, bmc, vm("a"), vm("b")))
    rack.power("kept/b", "off")
    rack.run("snapshot", "create", "kept", "first")
    (row,) = rack.json("snapshot", "list", "kept")
    assert (row["state"], row["nodes"], row["on"]) == ("complete", 2, 1)
    both = {each["name"]: each["id"] for each in cloud.images.values() if "image_type" in each}
    assert set(both) == {"nospoon-kept-a-first", "nospoon-kept-b-first"}
    _next_one(rack, cloud, both)
    rack.power("kept/b", "on")
    rack.run("snapshot", "restore", "--yes", "kept", "first")
    restored = {
        "kept-a": ("ACTIVE", {"id": both["nospoon-kept-a-first"]}),
        "kept-b": ("SHUTOFF", {"id": both["nospoon-kept-b-first"]}),
    }
    until(lambda: _states(cloud) == restored)  # a power command is accepted before it is done
    assert "Nothing to do" in rack.run("plan", file(rack, cloud, bmc, vm("a"), vm("b"))).stdout
    fewer = file(rack, cloud, bmc, vm("a"))
    plan = rack.json("plan", fewer)
    assert ("delete", "snapshot") in {(each["action"], each["kind"]) for each in plan["steps"]}
    assert "snapshot first is lost: it cannot be restored without b" in plan["notes"]
    rack.run("up", "--yes", fewer)
    kept = [each["name"] for each in cloud.images.values() if "image_type" in each]
    assert kept == ["nospoon-kept-a-first"]
    shelving = Path(fewer).read_text().replace("127.0.0.1}", "127.0.0.1, off: shelve}", 1)
    plan = rack.json("plan", rack.file(shelving))
    assert [(e["action"], e["kind"], e["name"]) for e in plan["steps"]] == [
        ("change", "machine", "a")
    ]
    assert any("a power-off shelves a:" in note for note in plan["notes"])
    rack.run("up", "--yes", rack.file(shelving))
    assert power(rack, "a") == "on"
    rack.run("node", "power", "kept/a", "off")
    until(lambda: [each["status"] for each in cloud.servers.values()] == ["SHELVED_OFFLOADED"])
    assert power(rack, "a") == "off"
    assert "Nothing to do" in rack.run("plan", rack.file(shelving)).stdout
    refused = rack.run("snapshot", "create", "kept", "second", status=5).stderr
    assert "power it on first" in refused
    rack.run("down", "--yes", "kept")
    assert not cloud.images


def _next_one(rack: Rack, cloud: FakeCloud, roots: dict[str, str]) -> None:
    """A rack that starts from what was kept of the first one, and then needs it no more."""
    bmc = rack.bmc()

    def next_file(*names: str, image: str = "snapshot:kept/first") -> str:
        nodes = (vm(name).replace("cloud.raw", f"'{image}'") for name in names)
        text = Path(file(rack, cloud, bmc, *nodes)).read_text()
        return rack.file(text.replace("cluster: kept", "cluster: next"), "next.yaml")

    rack.run("up", "--yes", next_file("a", "b"))
    made = {each["name"]: each for each in cloud.requested if each["name"].startswith("next-")}
    assert {name: each["imageRef"] for name, each in made.items()} == {
        "next-a": roots["nospoon-kept-a-first"], "next-b": roots["nospoon-kept-b-first"],
    }  # fmt: skip
    assert "Nothing to do" in rack.run("plan", next_file("a", "b")).stdout
    refused = rack.run("plan", next_file("a", "b", "c"), status=1).stderr
    assert "node c: snapshot first of cluster kept has no root of a node of this name" in refused
    gone = rack.run("plan", next_file("a", "b", image="snapshot:kept/other"), status=1).stderr
    assert "node a: snapshot other of cluster kept has no root" in gone
    rack.run("snapshot", "create", "next", "first")
    rack.run("snapshot", "create", "kept", "another")
    rack.run("up", "--yes", next_file("a", image="snapshot:kept/another"))
    rack.run("snapshot", "delete", "kept", "another")
    assert (
        "Nothing to do" in rack.run("plan", next_file("a", image="snapshot:kept/another")).stdout
    ), "a node that is there needs its snapshot no more"
    rack.run("down", "--yes", "next")
    there = {each["id"] for each in cloud.images.values() if "image_type" in each}
    assert there == set(roots.values())


def power(rack: Rack, node: str) -> str:
    return next(str(each["power"]) for each in rack.json("status", "kept") if each["node"] == node)


def _refused(rack: Rack, cloud: FakeCloud) -> None:
    """All nodes of a cluster, or none."""
    bmc = rack.bmc()
    rack.run("up", "--yes", file(rack, cloud, bmc, vm("a"), METAL))
    refused = rack.run("snapshot", "create", "kept", "first", status=5).stderr
    assert "m (Nova keeps roots alone, and its root is the boot image)" in refused
    assert "of all nodes of a cluster, or of none" in refused
    assert rack.json("snapshot", "list", "kept") == []
    assert not [each for each in cloud.images.values() if "image_type" in each]
    rack.run("down", "--yes", "kept")
