"""The Ansible role, and the jobs of Zuul that are made of it, run by ansible-playbook."""

from __future__ import annotations

import asyncio
import copy
import json
import socket
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from tests.contrib.conftest import CONTRIB, NOSPOON, OFFLINE, play

from nospoon.testing.bench import free_port
from nospoon.testing.cloud_connection import fake_cloud
from nospoon.testing.fake_cloud import FakeCloud
from nospoon.testing.rack import Rack

ROLES = CONTRIB.parent / "roles"


def cluster(rack: Rack, name: str, count: int) -> dict[str, Any]:
    bmc = yaml.safe_load(rack.bmc())
    return {"cluster": name, "hosts": {"sim": "simulated"}, **bmc, "nodes": [{"count": count}]}


def test_the_role_installs_brings_up_and_takes_down(rack: Rack, wheel: Path) -> None:
    name = rack.name()
    told = rack.directory / "bmcs.json"
    playbook = rack.directory / "site.yaml"
    keep = {"dest": str(told), "content": "{{ nospoon_bmcs | default([]) | to_json }}"}
    tasks = [{"name": "Keep what it tells", "ansible.builtin.copy": {**keep, "mode": "0600"}}]
    playbook.write_text(json.dumps([
        {"hosts": "all", "gather_facts": False, "roles": [str(ROLES / "nospoon")], "tasks": tasks}
    ]))  # fmt: skip
    given = {
        "nospoon_package": str(wheel),
        "nospoon_packages": [],
        "nospoon_venv": str(rack.directory / "venv"),
        "nospoon_file": str(rack.directory / "etc" / "rack.yaml"),
        "nospoon_environment": OFFLINE,
        "nospoon_cluster": f"# mine\n{json.dumps(cluster(rack, name, 2))}",
    }
    play(rack, playbook, given)
    assert (rack.directory / "venv/bin/nospoon").exists()
    assert {each["node"] for each in json.loads(told.read_text())} == set(rack.bmcs(name))
    assert len(rack.bmcs(name)) == 2
    assert "changed=0 " in play(rack, playbook, given), "a second run changes nothing"
    absent = {"nospoon_state": "absent", "nospoon_purge": True}
    play(rack, playbook, {**given, **absent})
    assert "no cluster" in rack.run("status", name, status=2).stderr
    assert not (rack.directory / "etc" / "rack.yaml").exists()
    assert "changed=0 " in play(rack, playbook, {**given, **absent})


def test_the_role_installs_what_set_up_installs() -> None:
    told = yaml.safe_load((ROLES / "nospoon/defaults/main.yml").read_text())
    needed = (CONTRIB.parent / "scripts/packages-run.txt").read_text().split()
    assert told["nospoon_packages"] == needed


def test_a_file_that_is_wrong_fails_the_role_with_what_is_wrong(rack: Rack) -> None:
    playbook = rack.directory / "wrong.yaml"
    playbook.write_text(json.dumps([
        {"hosts": "all", "gather_facts": False, "roles": [str(ROLES / "nospoon")]}
    ]))  # fmt: skip
    given = {
        "nospoon_install": False,
        "nospoon_command": NOSPOON,
        "nospoon_file": str(rack.directory / "wrong" / "rack.yaml"),
        "nospoon_cluster": {"cluster": "x", "nodes": [{"memory": "lots"}]},
    }
    said = play(rack, playbook, given, status=2)
    assert "nodes[0].memory: expected a size" in said


def zuul(rack: Rack, part: str, **variables: Any) -> str:
    """Run a playbook of the job as Zuul does: with its variables, and our roles on the path."""
    (job,) = (each["job"] for each in yaml.safe_load((CONTRIB / "zuul/zuul.yaml").read_text()))
    path = CONTRIB.parent / job[part]
    project = {"short_name": "nospoon", "src_dir": "src/nospoon"}
    given = {
        **job["vars"],
        "zuul": {"projects": {"example.org/nospoon": project}},
        "zuul_output_dir": str(rack.directory / "zuul-output"),
        **variables,
    }
    return play(rack, path, given, roles=ROLES)


def test_a_job_of_zuul_has_its_rack_and_keeps_what_it_said(rack: Rack) -> None:
    name = rack.name()
    given = {
        "ansible_become": False,
        "nospoon_install": False,
        "nospoon_command": NOSPOON,
        "nospoon_file": str(rack.directory / "zuul.yaml"),
        "nospoon_cluster": cluster(rack, name, 2),
        "ansible_user_dir": str(rack.directory),
    }
    (rack.directory / "src").mkdir()
    (rack.directory / "src/nospoon").symlink_to(CONTRIB.parent)
    zuul(rack, "pre-run", **given)
    assert len(rack.bmcs(name)) == 2
    logs, elsewhere = rack.directory / "zuul-output/logs/nospoon", rack.directory / "elsewhere"
    for each in (logs, elsewhere):
        each.mkdir(parents=True)
    (logs / "nospoon-support").symlink_to(elsewhere)  # by a user whose directory it is
    zuul(rack, "post-run", **given)
    assert list(elsewhere.iterdir()) == []
    assert (logs / "nospoon-support.tar.gz").stat().st_size > 0
    (file,) = logs.rglob("cluster.yaml")
    assert name in file.read_text()
    assert "no cluster" in rack.run("status", name, status=2).stderr


@pytest.mark.parametrize(
    ("projects", "package"),
    [
        ({}, "nospoon[libvirt,ironic]"),
        (
            {"a/b": {"short_name": "b", "src_dir": "src/b"},
             "a/nospoon": {"short_name": "nospoon", "src_dir": "src/a/nospoon"}},
            "/home/zuul/src/a/nospoon[libvirt,ironic]",
        ),
    ],
)  # fmt: skip
def test_a_job_of_zuul_takes_the_checkout_that_zuul_prepared(
    rack: Rack, projects: dict[str, Any], package: str
) -> None:
    (told,) = yaml.safe_load((CONTRIB / "zuul/pre.yaml").read_text())
    (role,) = told["roles"]
    task = {"ansible.builtin.debug": {"msg": f"<{role['nospoon_package']}>"}}
    playbook = rack.directory / "package.yaml"
    asked = {"hosts": "all", "gather_facts": False, "vars": told["vars"], "tasks": [task]}
    playbook.write_text(json.dumps([asked]))
    given = {"zuul": {"projects": projects}, "ansible_user_dir": "/home/zuul"}
    assert f'"<{package}>"' in play(rack, playbook, given)


def test_a_job_that_failed_before_nospoon_was_there_fails_no_more(rack: Rack) -> None:
    given = {
        "ansible_become": False,
        "nospoon_command": "/nowhere/nospoon",
        "zuul_output_dir": str(rack.directory / "nothing"),
    }
    assert "failed=0" in zuul(rack, "post-run", **given)
    assert not (rack.directory / "nothing/logs").exists()


async def test_instances_get_bmcs_by_the_variables_of_hotstack(rack: Rack) -> None:
    """Its role of this name deploys sushy-emulator with the OpenStack driver."""
    async with fake_cloud() as cloud:
        for name in ("ocp-0", "ocp-1", "controller"):
            cloud.own_server(name, firmware="uefi")
        await asyncio.to_thread(hotstack, rack, cloud)


def hotstack(rack: Rack, cloud: FakeCloud) -> None:
    before = copy.deepcopy(cloud.servers)
    uuids = [id_ for id_, each in before.items() if each["name"] != "controller"]
    places = rack.directory / ".config/openstack"
    places.mkdir(parents=True)
    (places / "clouds.yaml").write_text(json.dumps({"clouds": {"default": cloud.settings}}))
    playbook = rack.directory / "bmcs.yaml"
    playbook.write_text(json.dumps([
        {"hosts": "all", "gather_facts": False, "roles": ["redfish_virtual_bmc"]}
    ]))  # fmt: skip
    port = free_port(socket.SOCK_STREAM)
    given = {
        "instances_uuids": uuids,
        "cloud_config_dir": str(places),
        "redfish_password": "hot",
        "redfish_virtual_bmc_port": port,
        "nospoon_install": False,
        "nospoon_command": NOSPOON,
        "nospoon_file": str(rack.directory / "bmcs-cluster.yaml"),
    }
    play(rack, playbook, given, roles=ROLES)
    systems = f"http://127.0.0.1:{port}/redfish/v1/Systems"
    found = requests.get(systems, auth=("admin", "hot"), timeout=20).json()["Members"]
    assert len(found) == 2
    for id_ in uuids:
        system = requests.get(f"{systems}/{id_}", auth=("admin", "hot"), timeout=20).json()
        assert (system["UUID"], system["Name"]) == (id_, before[id_]["name"])
    assert "changed=0 " in play(rack, playbook, given, roles=ROLES)
    play(rack, playbook, {**given, "instances_uuids": uuids[:1]}, roles=ROLES)
    found = requests.get(systems, auth=("admin", "hot"), timeout=20).json()["Members"]
    assert len(found) == 1
    play(rack, playbook, {**given, "instances_uuids": []}, roles=ROLES)
    assert {id_: each["metadata"] for id_, each in cloud.servers.items()} == {
        id_: each["metadata"] for id_, each in before.items()
    }
