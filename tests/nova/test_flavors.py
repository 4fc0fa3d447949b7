"""Flavors of a cluster file, in a real Nova."""

from __future__ import annotations

import json
from typing import Any

from nospoon.testing.openstack import Cloud
from nospoon.testing.rack import Rack


def specs(cloud: Cloud, name: str) -> dict[str, str]:
    """Without those that tell whose it is."""
    told = cloud.flavors()[name]["extra_specs"]
    return {key: value for key, value in told.items() if not key.startswith("nospoon:")}


def cluster_file(rack: Rack, name: str, flavors: dict[str, Any]) -> str:
    text = f"cluster: {name}\nhosts: {{sim: simulated}}\n{rack.bmc()}ironic: {{cloud: test,"
    text += " name: '{cluster}-{node}', state: enroll, resource_class: gold-1}\n"
    text += f"nova: {json.dumps({'flavors': flavors})}\n" if flavors else ""
    text += "nodes: [{count: 1, cpus: 2, memory: 4GiB, disks: [20GiB]}]\n"
    return rack.file(text, f"{name}.yaml")


def test_flavors_are_made_changed_in_place_and_removed(rack: Rack, cloud: Cloud) -> None:
    name = rack.name()
    wanted = {"resource_class": "gold-1", "traits": {"CUSTOM_GOLD": "required"}}
    file = cluster_file(rack, name, {f"{name}-gold": wanted})
    assert f"+ nova-flavor {name}-gold" in rack.run("plan", file).stdout
    rack.run("up", "--yes", file)
    made = cloud.flavors()[f"{name}-gold"]
    assert (made["vcpus"], made["ram"], made["disk"]) == (2, 4096, 20)
    assert specs(cloud, f"{name}-gold") == {
        "resources:CUSTOM_GOLD_1": "1", "resources:VCPU": "0", "resources:MEMORY_MB": "0",
        "resources:DISK_GB": "0", "trait:CUSTOM_GOLD": "required",
    }  # fmt: skip
    assert "Nothing to do" in rack.run("up", "--yes", file).stderr
    changed = {**wanted, "traits": {"CUSTOM_SLOW": "forbidden"}}
    file = cluster_file(rack, name, {f"{name}-gold": changed})
    plan = rack.run("plan", file).stdout
    assert "trait:CUSTOM_SLOW" in plan
    assert "0 to replace" in plan
    rack.run("up", "--yes", file)
    assert cloud.flavors()[f"{name}-gold"]["id"] == made["id"]
    told = specs(cloud, f"{name}-gold")
    assert told["trait:CUSTOM_SLOW"] == "forbidden"
    assert "trait:CUSTOM_GOLD" not in told
    rack.run("up", "--yes", cluster_file(rack, name, {f"{name}-gold": {**changed, "vcpus": 8}}))
    assert cloud.flavors()[f"{name}-gold"]["vcpus"] == 8
    rack.run("up", "--yes", cluster_file(rack, name, {}))
    assert f"{name}-gold" not in cloud.flavors()


def test_a_flavor_that_is_not_ours_is_let_be(rack: Rack, cloud: Cloud) -> None:
    name = rack.name()
    body = {"name": f"{name}-a", "vcpus": 1, "ram": 1, "disk": 1}
    theirs = cloud.nova("POST", "/flavors", {"flavor": body})["flavor"]
    flavors = {f"{name}-{each}": {"resource_class": "gold-1"} for each in ("a", "b")}
    refused = rack.run("up", "--yes", cluster_file(rack, name, flavors), status=3).stderr
    assert "that nospoon does not manage" in refused
    assert f"{name}-b" in cloud.flavors()
    rack.run("down", "--yes", name)
    assert {n for n in cloud.flavors() if n.startswith(name)} == {f"{name}-a"}
    cloud.nova("DELETE", f"/flavors/{theirs['id']}")


def test_a_drifted_flavor_is_told_and_put_right(rack: Rack, cloud: Cloud) -> None:
    name = rack.name()
    file = cluster_file(rack, name, {f"{name}-a": {"resource_class": "gold-1"}})
    rack.run("up", "--yes", file)
    flavor = cloud.flavors()[f"{name}-a"]
    cloud.nova("DELETE", f"/flavors/{flavor['id']}/os-extra_specs/resources:VCPU")
    assert "resources:VCPU" in rack.run("plan", file).stdout
    rack.run("up", "--yes", file)
    assert specs(cloud, f"{name}-a")["resources:VCPU"] == "0"


def instance_of(cloud: Cloud, name: str) -> str:
    """An instance that has the flavor of this name; its id."""
    blank = {
        "boot_index": 0, "source_type": "blank", "destination_type": "volume", "volume_size": 1,
    }  # fmt: skip
    server = {
        "name": name, "flavorRef": cloud.flavors()[name]["id"], "imageRef": "", "networks": "none",
        "block_device_mapping_v2": [blank],
    }  # fmt: skip
    made: str = cloud.nova("POST", "/servers", {"server": server})["server"]["id"]
    return made


def test_a_flavor_that_an_instance_has_is_not_removed(rack: Rack, cloud: Cloud) -> None:
    name = rack.name()
    rack.run("up", "--yes", cluster_file(rack, name, {f"{name}-a": {"resource_class": "gold-1"}}))
    instance = instance_of(cloud, f"{name}-a")
    refused = rack.run("down", "--yes", name, status=3).stderr
    assert f"instance {instance} has it" in refused
    assert f"{name}-a" in cloud.flavors()
    cloud.nova("DELETE", f"/servers/{instance}")
    rack.run("down", "--yes", name)
    assert f"{name}-a" not in cloud.flavors()


def test_by_force_a_flavor_goes_that_an_instance_has(rack: Rack, cloud: Cloud) -> None:
    name = rack.name()
    rack.run("up", "--yes", cluster_file(rack, name, {f"{name}-a": {"resource_class": "gold-1"}}))
    instance = instance_of(cloud, f"{name}-a")
    rack.run("down", "--yes", "--force", name)
    assert f"{name}-a" not in cloud.flavors()
    assert instance in {each["id"] for each in cloud.nova("GET", "/servers")["servers"]}
    cloud.nova("DELETE", f"/servers/{instance}")
