"""Bifrost's test machines and its inventory, made by nospoon."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest
import yaml
from tests.contrib.conftest import CONTRIB, NOSPOON, play

from nospoon.testing.rack import Rack

BIFROST = CONTRIB / "bifrost"


def variables(rack: Rack, name: str) -> dict[str, Any]:
    """What `bifrost-cli testenv` says, and where this test's machines are."""
    return {
        "test_vm_num_nodes": "2",
        "test_vm_memory_size": "2048",
        "test_vm_disk_gib": "8",
        "test_vm_node_driver": "redfish",
        "default_boot_mode": "bios",
        "test_vm_groups": {"testvm2": ["nova"]},
        "baremetal_json_file": str(rack.directory / "baremetal.json"),
        "baremetal_nodes_json": str(rack.directory / "nodes.json"),
        "nospoon_name": name,
        "nospoon_file": str(rack.directory / f"{name}.nospoon.yaml"),
        "nospoon_command": NOSPOON,
        "nospoon_hosts": {"sim": "simulated"},
        "nospoon_bmc": yaml.safe_load(rack.bmc())["bmc"],
    }


def inventory(rack: Rack, cluster: str, *argv: str) -> Any:
    """What Ansible makes of the dynamic inventory."""
    env = {**rack.environment, "NOSPOON": NOSPOON, "NOSPOON_CLUSTER": cluster}
    done = subprocess.run(
        ["/usr/bin/ansible-inventory", "-i", str(BIFROST / "inventory.py"), *argv], env=env,
        text=True, capture_output=True, check=True, timeout=120,
    )  # fmt: skip
    assert "Unable to parse" not in done.stderr, done.stderr
    return json.loads(done.stdout)


def test_bifrosts_test_machines_are_made_described_and_removed(rack: Rack) -> None:
    name = rack.name()
    given = variables(rack, name)
    play(rack, BIFROST / "create-vm-nodes.yaml", given)
    bmcs = rack.bmcs(name)
    described = rack.directory / "baremetal.json"
    told = json.loads(described.read_text())
    assert described.stat().st_mode & 0o777 == 0o600
    assert list(told) == list(bmcs) == ["testvm1", "testvm2"]
    assert told["testvm1"]["host_groups"] == ["baremetal"]
    assert told["testvm2"]["host_groups"] == ["baremetal", "nova"]
    machine = told["testvm1"]
    assert machine["driver"] == "redfish"
    assert machine["driver_info"]["redfish_password"] == bmcs["testvm1"]["password"]
    assert machine["properties"]["ram"] == "2048"
    assert machine["properties"]["disk_size"] == "8"
    nodes = json.loads((rack.directory / "nodes.json").read_text())["nodes"]
    assert [node["uuid"] for node in nodes] == [each["uuid"] for each in told.values()]
    assert nodes[0]["ports"][0]["address"] == machine["nics"][0]["mac"]
    assert "changed=0 " in play(rack, BIFROST / "create-vm-nodes.yaml", given)
    play(rack, BIFROST / "create-vm-nodes.yaml", {**given, "nospoon_state": "absent"})
    assert "no cluster" in rack.run("status", name, status=2).stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's files are made by root")
def test_files_that_another_user_put_where_they_are_written_are_replaced(rack: Rack) -> None:
    """As into /tmp: Ansible's copy leaves a file to who has it, with passwords or not."""
    name, shared = rack.name(), rack.directory / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    planted = [shared / each for each in ("baremetal.json", "nodes.json")]
    for each in planted:
        each.write_text("theirs")
        each.chmod(0o666)
        os.chown(each, 65534, 65534)
    described, nodes = map(str, planted)
    files = {"baremetal_json_file": described, "baremetal_nodes_json": nodes}
    play(rack, BIFROST / "create-vm-nodes.yaml", {**variables(rack, name), **files})
    for each in planted:
        assert (each.stat().st_uid, each.stat().st_mode & 0o777) == (0, 0o600), each
    assert list(json.loads(planted[0].read_text())) == ["testvm1", "testvm2"]
    assert sorted(shared.iterdir()) == planted, "the cluster's file is elsewhere"


def test_the_inventory_is_that_of_the_cluster_as_it_is_now(rack: Rack) -> None:
    name = rack.name()
    text = f"cluster: {name}\nhosts: {{sim: simulated}}\n{rack.bmc()}nodes: [{{name: near}}"
    rack.run("up", "--yes", rack.file(f"{text}]\n", f"{name}.yaml"))
    told = inventory(rack, name, "--list")
    assert told["baremetal"]["hosts"] == ["near"]
    near = told["_meta"]["hostvars"]["near"]
    assert near["driver_info"]["ipmi_password"] == rack.bmcs(name)["near"]["password"]
    rack.run("up", "--yes", rack.file(f"{text}, {{name: far}}]\n", f"{name}.yaml"))
    assert inventory(rack, name, "--list")["baremetal"]["hosts"] == ["near", "far"]
    assert inventory(rack, name, "--host", "near")["uuid"] == near["uuid"]


def test_an_inventory_of_no_cluster_says_so(rack: Rack) -> None:
    def refused(**environment: str) -> str:
        argv = ["/usr/bin/python3", str(BIFROST / "inventory.py"), "--list"]
        env = {**rack.environment, "NOSPOON": NOSPOON, **environment}
        done = subprocess.run(argv, env=env, text=True, capture_output=True, check=False)
        assert done.returncode == 1
        return done.stderr

    assert "NOSPOON_CLUSTER is not set" in refused()
    assert "no cluster 'nowhere'" in refused(NOSPOON_CLUSTER="nowhere")
    missing = refused(NOSPOON_CLUSTER="nowhere", NOSPOON="/nowhere/nospoon")
    assert "No such file" in missing
