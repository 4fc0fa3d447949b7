"""Servers of a project that others made become nodes, and are again what they were."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import pytest
import requests

from nospoon.testing.bench import free_port
from nospoon.testing.cloud_connection import fake_cloud
from nospoon.testing.fake_cloud import FakeCloud
from nospoon.testing.ironic import until
from nospoon.testing.rack import Rack, private_rack

CLUSTER = """
cluster: {cluster}
hosts: {{cloud: {{openstack: {{cloud: {settings}}}}}}}
nodes: {nodes}
"""


@pytest.fixture
async def cloud() -> AsyncIterator[FakeCloud]:
    async with fake_cloud() as made:
        for name, firmware in {"controller": "bios", "lab-1": "uefi", "lab-2": "bios"}.items():
            made.own_server(name, firmware=firmware)
        yield made


@pytest.fixture
def rack() -> Iterator[Rack]:
    with private_rack() as made:
        yield made


def file(rack: Rack, cloud: FakeCloud, nodes: str, cluster: str = "theirs") -> str:
    settings = json.dumps({"name": "mine", **cloud.settings})
    text = CLUSTER.format(cluster=cluster, settings=settings, nodes=nodes)
    return rack.file(text + rack.bmc(), f"{cluster}.yaml")


def server(cloud: FakeCloud, name: str) -> dict[str, Any]:
    return next(each for each in cloud.servers.values() if each["name"] == name)


def as_they_were(cloud: FakeCloud) -> dict[str, Any]:
    """All but what changes with the power of a server."""
    changing = {"updated", "status", "OS-EXT-STS:task_state"}
    servers = {
        id_: {k: each[k] for k in each.keys() - changing} for id_, each in cloud.servers.items()
    }
    return copy.deepcopy({"servers": servers, "ports": cloud.ports, "all": cloud.everything()})


def asked(bmc: dict[str, str], path: str) -> Any:
    """What Redfish answers, at the end of a redirection."""
    root = bmc["redfish"].partition("/Systems")[0]
    answer = requests.get(f"{root}{path}", auth=(bmc["username"], bmc["password"]), timeout=20)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_servers_of_others_get_bmcs_and_are_released_as_they_were(
    cloud: FakeCloud, rack: Rack
) -> None:
    before = as_they_were(cloud)
    id_ = server(cloud, "controller")["id"]
    nodes = f"[{{adopt: {id_}, name: c}}, {{adopt: {{match: 'lab-*'}}}}]"
    await asyncio.to_thread(_used, rack, cloud, file(rack, cloud, nodes))
    assert as_they_were(cloud) == before
    assert server(cloud, "controller")["status"] == "ACTIVE", "it goes on running"


def _used(rack: Rack, cloud: FakeCloud, path: str) -> None:
    steps = rack.json("plan", path)["steps"]
    claimed = {each["name"] for each in steps if each["kind"] == "machine"}
    assert claimed == {"c", "lab-1", "lab-2"}
    assert {each["kind"] for each in steps} == {"machine", "bmc"}, "no ports and no boot images"
    rack.run("up", "--yes", path)
    assert rack.run("plan", "--detailed-exitcode", path).returncode == 0
    assert as_they_were(cloud)["servers"] != {}, "each has a mark of its own"
    assert all(len(each["metadata"]) == 2 for each in cloud.servers.values())
    assert rack.json("node", "show", "theirs/lab-1")["firmware"] == "uefi"
    bmc = rack.bmcs("theirs")["c"]
    assert "is off" in rack.ipmitool(bmc, "power", "status")
    guid = rack.ipmitool(bmc, "mc", "guid").lower()
    assert server(cloud, "controller")["id"] in guid, "it is known by Nova's id"
    system = f"/Systems/{server(cloud, 'controller')['id']}"
    assert asked(bmc, system)["UUID"] == server(cloud, "controller")["id"]
    rack.ipmitool(bmc, "chassis", "bootdev", "pxe")
    refused = rack.run("node", "power", "theirs/c", "on", status=1).stderr
    assert "server controller is an adopted machine: Nova boots its disk, not network" in refused
    assert "nospoon node boot NODE disk" in refused
    rack.ipmitool(bmc, "chassis", "bootdev", "none")
    rack.ipmitool(bmc, "power", "on")
    rack.power("theirs/c", "on")
    assert server(cloud, "controller")["status"] == "ACTIVE"
    server(cloud, "controller")["status"] = "SHUTOFF"  # by others, and it was not looked at since
    rack.ipmitool(bmc, "power", "on")
    until(lambda: server(cloud, "controller")["status"] == "ACTIVE")
    server(cloud, "lab-1")["status"] = "SHELVED_OFFLOADED"
    rack.power("theirs/lab-1", "on")
    assert server(cloud, "lab-1")["status"] == "ACTIVE"
    disc = rack.file("a disc", "disc.iso")
    refused = rack.run("node", "media", "insert", "theirs/c", disc, status=1).stderr
    assert "it boots no medium, only its disk. Give its host a `boot_address`" in refused
    other = file(rack, cloud, "[{adopt: lab-1}]", "second")
    assert "it is a node of another cluster" in rack.run("plan", other, status=1).stderr
    rack.run("down", "--yes", "theirs")


async def test_servers_of_others_boot_what_their_bmcs_say_and_are_released_from_their_rescue(
    cloud: FakeCloud, rack: Rack
) -> None:
    before = as_they_were(cloud)
    await asyncio.to_thread(_rescued, rack, cloud)
    assert as_they_were(cloud) == before
    assert server(cloud, "lab-1")["status"] == "ACTIVE"


def _rescued(rack: Rack, cloud: FakeCloud) -> None:
    port = free_port(socket.SOCK_STREAM)
    rack.environment["NOSPOON_BOOT_PORT"] = str(port)
    settings = json.dumps({"name": "mine", **cloud.settings})
    nodes = "[{adopt: lab-1}]"
    text = CLUSTER.format(cluster="theirs", settings=settings, nodes=nodes)
    bmcs = rack.bmc()
    rack.run("up", "--yes", rack.file(text + bmcs))
    path = rack.file(text.replace("}}}", "}, boot_address: 127.0.0.1}}") + bmcs)
    steps = rack.json("plan", path)["steps"]
    assert {(each["kind"], each["action"]) for each in steps} == {
        ("machine", "change"), ("boot-image", "create"),
    }, "the file decides whether it asks"  # fmt: skip
    assert "its owner changed" not in rack.run("plan", path).stdout
    rack.run("up", "--yes", path)
    assert rack.run("plan", "--detailed-exitcode", path).returncode == 0
    lab, bmc = server(cloud, "lab-1"), rack.bmcs("theirs")["lab-1"]
    url = f"http://127.0.0.1:{port}/boot/{lab['id']}"

    def asked_at(what: str) -> str:
        answer = requests.get(f"{url}/{what}", timeout=20)
        assert answer.status_code == 200, answer.text
        return answer.text

    def is_(status: str) -> bool:
        return bool(lab["status"] == status and not lab["OS-EXT-STS:task_state"])

    def power(command: str, status: str) -> None:
        rack.power("theirs/lab-1", command)
        until(partial(is_, status))

    power("on", "ACTIVE")
    rack.ipmitool(bmc, "chassis", "bootdev", "pxe")
    power("cycle", "RESCUE")
    assert "autoboot net" in asked_at("ipxe"), "PXE, once"
    said = asked_at("ipxe")
    assert "autoboot" not in said
    assert f"/boot/{lab['id']}/disk" in said
    requests.head(f"{url}/disk", timeout=20)
    assert is_("RESCUE")
    asked_at("disk")
    until(partial(is_, "ACTIVE"))
    rack.run("node", "media", "insert", "theirs/lab-1", rack.file("a disc", "disc.iso"))
    rack.run("node", "boot", "theirs/lab-1", "cdrom", "--persistent")
    power("reset", "RESCUE")
    for _ in range(2):
        assert f"sanboot --no-describe ${{base}}/files/{lab['id']}/medium.iso" in asked_at("ipxe")
    file = f"http://127.0.0.1:{port}/files/{lab['id']}/medium.iso"
    assert requests.get(file, timeout=20).text == "a disc"
    power("off", "SHUTOFF")
    until(lambda: "is off" in rack.ipmitool(bmc, "power", "status"))
    rack.run("node", "boot", "theirs/lab-1", "disk")
    power("on", "ACTIVE")
    power("reset", "ACTIVE")
    rack.power("theirs/lab-1", "diag")  # once that is over: the same command again would join it
    rack.run("node", "boot", "theirs/lab-1", "network")
    power("reset", "RESCUE")
    rack.run("down", "--yes", "theirs")


async def test_sushy_emulators_command_serves_them(cloud: FakeCloud, rack: Rack) -> None:
    auth = {"clouds": {"mine": cloud.settings}}
    clouds = rack.file(json.dumps(auth), "clouds.yaml")
    port = free_port(socket.SOCK_STREAM)
    command = ["nospoon", "sushy", "--os-cloud", "mine", "-i", "127.0.0.1", "-p", str(port)]
    id_ = server(cloud, "lab-1")["id"]

    def answered() -> bool:
        with contextlib.suppress(requests.ConnectionError):
            url = f"http://127.0.0.1:{port}/redfish/v1/Systems/{id_}"
            return bool(requests.get(url, timeout=20).json().get("UUID") == id_)
        return False

    environment = {**rack.environment, "OS_CLIENT_CONFIG_FILE": clouds}
    with subprocess.Popen(  # noqa: ASYNC220  (as its user starts it)
        command, env=environment, cwd=rack.directory
    ) as emulator:
        try:
            await asyncio.to_thread(until, answered, 60)
        finally:
            emulator.send_signal(signal.SIGTERM)
            await asyncio.to_thread(emulator.wait, 60)
    assert all(len(each["metadata"]) == 1 for each in cloud.servers.values())


async def test_nodes_are_made_where_they_can_ask_what_to_boot_alone(
    cloud: FakeCloud, rack: Rack
) -> None:
    path = file(rack, cloud, "[{name: n}]")
    refused = await asyncio.to_thread(lambda: rack.run("plan", path, status=1))
    assert "openstack: mine has no `boot_address`, where nodes ask what to boot" in refused.stderr


async def test_what_its_owner_deletes_is_drift_and_can_be_let_go(
    cloud: FakeCloud, rack: Rack
) -> None:
    path = file(rack, cloud, "[{adopt: lab-1}]")
    await asyncio.to_thread(rack.run, "up", "--yes", path)
    cloud.remove(server(cloud, "lab-1")["id"])
    (row,) = await asyncio.to_thread(rack.json, "status", "theirs")
    assert row["drift"]
    refused = await asyncio.to_thread(lambda: rack.run("plan", path, status=1))
    assert "no such machine on cloud" in refused.stderr
    await asyncio.to_thread(rack.run, "down", "--yes", "theirs")
    assert "nospoon" not in json.dumps([each["metadata"] for each in cloud.servers.values()])


@pytest.mark.parametrize("name", ["../../x", "lab-1\n"])
async def test_a_claim_of_a_name_that_no_node_has_is_none(
    cloud: FakeCloud, rack: Rack, name: str
) -> None:
    path = file(rack, cloud, "[{adopt: {match: 'lab-*'}}]")
    await asyncio.to_thread(rack.run, "up", "--yes", path)
    metadata = server(cloud, "lab-1")["metadata"]
    metadata["nospoon_claim"] = metadata["nospoon_claim"].replace(":lab-1:", f":{name}:")
    steps = (await asyncio.to_thread(rack.json, "plan", path))["steps"]
    assert {each["name"] for each in steps} <= {"lab-1", "lab-2"}
    await asyncio.to_thread(rack.run, "up", "--yes", path)
    again = server(cloud, "lab-1")["metadata"]["nospoon_claim"]
    assert ":lab-1:" in again, "it is claimed again"
    await asyncio.to_thread(rack.run, "down", "--yes", "theirs")


async def test_a_daemon_that_dies_at_a_claim_or_release_leaves_no_mark(
    cloud: FakeCloud, rack: Rack
) -> None:
    before = as_they_were(cloud)
    path = file(rack, cloud, "[{adopt: {match: '*'}}]")
    for command in (("up", "--yes", path), ("down", "--yes", "theirs")):
        deaths = 0

        def heard(call: str) -> None:
            nonlocal deaths
            if "/metadata" in call and not call.startswith("GET") and deaths < 2:
                deaths += 1
                rack.crash()

        cloud.heard = heard
        for _ in range(3):
            done = await asyncio.to_thread(
                subprocess.run, ["nospoon", *command], env=rack.environment, check=False,
                cwd=rack.directory, capture_output=True,
            )  # fmt: skip
            if done.returncode == 0:
                break
        assert done.returncode == 0, done.stderr
        assert deaths == 2
    cloud.heard = None
    assert as_they_were(cloud) == before
