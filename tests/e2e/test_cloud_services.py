"""Services on servers of a cloud: what they get, and how it is seen that they are healthy."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import closing
from typing import Any

import pytest

from nospoon.model.service import Service
from nospoon.testing.cloud_connection import fake_cloud
from nospoon.testing.fake_cloud import FakeCloud
from nospoon.testing.rack import Rack, private_rack

SECRET, LATER = "s3cret-of-a-service", "l4ter-secret"
ROLE = "#!/bin/sh -e\necho setting up with r0le-secret\n"
FILE = """
cluster: served
hosts:
  cloud:
    openstack: {{cloud: {settings}}}
    physnets: {{external: external}}
networks: {{external: {{physnet: external}}}}
services:
  web:
    kind: vm
    cpus: 1
    memory: 512MiB
    firmware: bios
    disks: [{{image: {image}, size: 1GiB}}]
    networks: [{{network: external{nic}}}]
    unit: nginx
    user_data: {user_data}
    environment: {{TOKEN: {secret}}}
    role: {role}
    health: {{port: {port}, timeout: {timeout}}}
"""
ADDRESS = "127.0.7.7"
"""Of the floating IP, where a service of this test is."""
LED = f", floating_ip: external, floating_address: {ADDRESS}"


def file(rack: Rack, cloud: FakeCloud, port: int, **changes: str) -> str:
    usual = {
        "settings": json.dumps({"name": "mine", **cloud.settings}), "nic": LED, "secret": SECRET,
        "user_data": json.dumps("#cloud-config\npackages: [nginx]\n"), "role": json.dumps(ROLE),
        "timeout": "20s", "image": "root.raw", "port": str(port),
    }  # fmt: skip
    return rack.file(FILE.format(**{**usual, **changes}) + rack.bmc())


@pytest.mark.timeout(600, func_only=True)
async def test_services_of_a_cloud_get_their_role_and_are_looked_at_by_their_floating_ip() -> None:
    async with fake_cloud() as cloud:
        cloud.networks["n0"]["project_id"] = "0" * 32
        with private_rack() as rack, closing(socket.socket()) as listener:
            listener.bind((ADDRESS, 0))
            (rack.directory / "root.raw").write_bytes(b"\1" * (1 << 20))
            await asyncio.to_thread(_used, rack, cloud, listener)
        assert not cloud.servers
        assert not cloud.floatingips


def _used(rack: Rack, cloud: FakeCloud, listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    said = list[str]()

    def run(*command: str, status: int = 0) -> str:
        done = rack.run(*command, status=status)
        said.append(done.stdout + done.stderr)
        return said[-1]

    assert "in a cloud a `floating_ip`" in run("plan", file(rack, cloud, port, nic=""), status=2)
    _refused_for_its_length(rack, cloud, port)
    given = list[str]()
    cloud.boots = lambda _, data: given.append(data)
    own = file(rack, cloud, port, timeout="2s")
    silent = run("up", "--yes", own, status=3)
    assert f"service web is not healthy: node web: {ADDRESS}:{port} does not answer" in silent
    assert [ROLE in each and SECRET in each and "[nginx]" in each for each in given] == [True]
    listener.listen()
    run("up", "--yes", own)
    (row,) = rack.json("service", "list")
    assert (row["health"], row["address"]) == ("healthy", ADDRESS)
    assert "Nothing to do" in run("plan", own)
    another = file(rack, cloud, port, secret=LATER)
    (step,) = [each for each in rack.json("plan", another)["steps"] if each["kind"] == "machine"]
    assert step["action"] == "replace"
    planned = run("plan", another)
    assert "seed" in planned
    assert "what is on its disks is lost" in planned
    (first,) = cloud.servers
    run("up", "--yes", another)
    assert first not in cloud.servers
    assert LATER in given[-1]
    run("status", "served", "-f", "json")
    former = file(rack, cloud, port)
    refused = run("service", "rollback", "web", former, "--yes", status=1)
    assert "web would not return to a former root: none is of the image and roles" in refused
    run("node", "show", "web")
    listener.close()  # healthy at once, it would be done before its console is looked at
    _names_how_a_role_ended(rack, cloud, port)
    shown = "".join(said) + (rack.directory / "state/nospoond.log").read_text()
    for secret in (SECRET, LATER, "r0le-secret"):
        assert secret not in shown
    run("down", "--yes", "served")


def _refused_for_its_length(rack: Rack, cloud: FakeCloud, port: int) -> None:
    long, role = f"#!/bin/sh\n: {'x' * 30_000}\n", f"#!/bin/sh\n: {'y' * 20_000}\n"
    texts = {"user_data": json.dumps(long), "role": json.dumps(role)}
    refused = rack.run("plan", file(rack, cloud, port, **texts), status=1).stderr
    assert "node web on host cloud: its `user_data` of 30013 bytes" in " ".join(refused.split())
    assert "and a cloud takes 49149" in " ".join(refused.split())
    assert not cloud.servers


def _names_how_a_role_ended(rack: Rack, cloud: FakeCloud, port: int) -> None:
    """By the console of a server that ran before `up` could look."""
    role = "#!/bin/sh\nexit 7\n"
    line = Service("web", ("web",), "nginx", role=role).role_line

    def boots(id_: str, data: str) -> None:
        assert role in data
        cloud.consoles[id_] = f"{line}begins\n{line}exit status 7\n"

    cloud.boots = boots
    changed = file(rack, cloud, port, role=json.dumps(role), timeout="60s")
    failed: Any = rack.run("up", "--yes", changed, status=3)
    assert "its role ended with exit status 7" in failed.stdout + failed.stderr
