"""The daemon dies at each call of a cloud: what was begun is finished, nothing is left.

At a cloud in memory, which carries the call out, and kills the daemon before it answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from uuid import uuid4, uuid5

import pytest

from nospoon.testing.cloud_connection import fake_cloud
from nospoon.testing.fake_cloud import FakeCloud
from nospoon.testing.rack import Rack, private_rack
from nospoon.testing.relay import free_place, relay_machines

CLUSTER = """
cluster: crash
hosts:
  cloud:
    openstack: {{cloud: {settings}, flavors: [metal.512], relay: {relay}}}
    physnets: {{external: external}}
networks: {{external: {{physnet: external, vlan: 101}}, provision: {{nat: true}}}}
nodes:
  - {{name: n, cpus: 1, memory: 512MiB, firmware: bios, disks: [1GiB],
     placement: {{anti_affinity: flavor}},
     nics: [{{network: external, floating_ip: external}}, {{network: provision, trunk: [101]}}]}}
"""
CHANGES = ("POST", "PUT", "DELETE")


@pytest.fixture
async def cloud() -> AsyncIterator[FakeCloud]:
    """Its servers with user data run that."""
    async with fake_cloud() as made:
        made.networks["n0"]["project_id"] = "0" * 32  # its own: MACs may be chosen there
        made.images["stock"] = {"id": "stock", "name": "debian-12", "status": "active"}
        with relay_machines() as machines:
            made.boots, made.ends = machines.boot, machines.end
            yield made


@pytest.fixture
def text(cloud: FakeCloud) -> str:
    """Of the cluster file, but for its BMCs."""
    address, port = free_place()
    made_of = "network: external, image: debian-12, flavor: metal.512"
    return CLUSTER.format(
        settings=json.dumps({"name": "mine", **cloud.settings}),
        relay=f"{{{made_of}, address: {address}, port: {port}}}",
    )


def tunnels(rack: Rack) -> list[str]:
    """Command lines of ssh that a rack's daemons started and that run."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            line = (each / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if line.startswith("ssh ") and str(rack.directory) in line:
                found.append(line)
    return found


def is_change(call: str) -> bool:
    return call.startswith(CHANGES) and "auth/tokens" not in call and "/action" not in call


SAMPLE = 4
"""Of so many looks at the cloud one counts: it is the same before and after each of them."""


class Others:
    """Counts calls that change no resource: actions on servers and logins, all of them, and of
    looks the first one after each change, and each one of a sample.
    """

    def __init__(self) -> None:
        self._looks, self._changed = 0, False

    def __call__(self, call: str) -> bool:
        if is_change(call):
            self._changed = True
            return False
        if not call.startswith("GET"):
            return True
        self._looks += 1
        is_first, self._changed = self._changed, False
        return is_first or self._looks % SAMPLE == 0


async def dying(
    cloud: FakeCloud,
    rack: Rack,
    number: int,
    *command: str,
    counts: Callable[[str], bool] = is_change,
    looks: Callable[[FakeCloud], None] = lambda _: None,
) -> bool:
    """Run a command whose daemon dies at its call number `number`, of those that count; whether
    there was one. `looks`: at the cloud after each call.
    """
    left = number
    wrong = list[AssertionError]()

    def heard(call: str) -> None:
        nonlocal left
        try:
            looks(cloud)
        except AssertionError as error:
            wrong.append(error)
        if counts(call):
            left -= 1
            if left == 0:
                rack.crash()

    cloud.heard = heard
    with contextlib.suppress(AssertionError):  # it fails as its daemon dies
        await asyncio.to_thread(rack.run, *command)
    cloud.heard = None
    for each in wrong:
        raise each
    return left <= 0


@pytest.mark.timeout(1000, func_only=True)
async def test_the_daemon_dies_at_each_change_of_a_cloud(cloud: FakeCloud, text: str) -> None:
    before = cloud.everything()
    with private_rack() as rack:
        file = rack.file(text + rack.bmc())
        killed, number = 0, 1
        while await dying(cloud, rack, number, "up", file, "--yes"):
            number, killed = number + 1, killed + 1
            await asyncio.to_thread(rack.run, "up", file, "--yes")
            plan = await asyncio.to_thread(rack.run, "plan", file)
            assert "Nothing to do" in plan.stdout
            assert {kind: len(ids) for kind, ids in cloud.everything().items()} == {
                "servers": 2, "networks": 2, "subnets": 1, "ports": 5, "floatingips": 1,
                "volumes": 0, "trunks": 1,
                "routers": 1, "images": 2, "server_groups": 1, "key_pairs": 0,
            }  # fmt: skip
            states = {each["name"]: each["status"] for each in cloud.servers.values()}
            assert states == {"crash-n": "SHUTOFF", "crash-relay": "ACTIVE"}
            assert len(tunnels(rack)) == 1, "that of a daemon that died ended"
            await asyncio.to_thread(rack.run, "down", "crash", "--yes")
            assert cloud.everything() == before
        assert killed >= 14, (
            "a server group, an image and its data, a network, a subnet, a router and its way, "
            "four ports, a trunk, an IP, two servers"
        )
        number = 1
        await asyncio.to_thread(rack.run, "up", file, "--yes")
        while await dying(cloud, rack, number, "down", "crash", "--yes"):
            number, killed = number + 1, killed + 1
            await asyncio.to_thread(rack.run, "down", "crash", "--yes")
            assert cloud.everything() == before
            await asyncio.to_thread(rack.run, "up", file, "--yes")
        await asyncio.to_thread(rack.run, "down", "crash", "--yes")
        assert cloud.everything() == before
        assert killed >= 23


ASKING = """
cluster: moving
hosts:
  cloud:
    openstack: {{cloud: {settings}, flavors: [metal.512], boot_address: {address}}}
    physnets: {{external: external}}
networks: {{external: {{physnet: external}}}}
nodes:
  - {{name: n, cpus: 1, memory: 512MiB, firmware: bios, disks: [1GiB], nics: [external]}}
  - {{name: o, adopt: theirs}}
"""


@pytest.mark.timeout(600, func_only=True)
async def test_a_boot_image_for_another_url_is_there_before_the_first_one_goes() -> None:
    """Wherever the daemon dies: what servers were made of is there, and what rescues one of others,
    and nothing else is left once it was carried out.
    """
    async with fake_cloud() as cloud:
        cloud.networks["n0"]["project_id"] = "0" * 32
        cloud.own_server("theirs")
        known = set(cloud.images)
        settings = json.dumps({"name": "mine", **cloud.settings})
        with private_rack() as rack:
            bmc = rack.bmc()
            files = [
                rack.file(ASKING.format(settings=settings, address=each) + bmc, f"{each}.yaml")
                for each in ("127.0.0.1", "127.0.0.2")
            ]

            def boot_images() -> list[str]:
                """Statuses of those that are whole, and of what is not."""
                return [e["status"] for e in cloud.images.values() if e["id"] not in known]

            async def up(file: str) -> None:
                await asyncio.to_thread(rack.run, "up", file, "--yes")
                assert "Nothing to do" in (await asyncio.to_thread(rack.run, "plan", file)).stdout
                assert boot_images() == ["active"]
                assert {each["image"]["id"] for each in cloud.servers.values()} <= set(cloud.images)
                assert len(cloud.servers) == 2

            await up(files[0])
            number, killed = 1, 0
            while True:
                file = files[number % 2]
                died = await dying(cloud, rack, number, "up", file, "--yes", looks=usable)
                if not died:
                    break
                usable(cloud)
                number, killed = number + 1, killed + 1
                await up(file)
            assert killed == 6, "an image and its data, a server, another one and its tag, an image"
            await asyncio.to_thread(rack.run, "down", "moving", "--yes")
            assert set(cloud.images) == known


def usable(cloud: FakeCloud) -> None:
    """The image of each server is there, and one by which a server of others can be rescued."""
    whole = {id_ for id_, each in cloud.images.items() if each["status"] == "active"}
    assert {each["image"]["id"] for each in cloud.servers.values()} <= whole
    assert any(cloud.images[each].get("hw_rescue_device") for each in whole)


@pytest.mark.timeout(200, func_only=True)
async def test_a_lost_store_is_recovered_from_the_cloud(cloud: FakeCloud, text: str) -> None:
    """And who has other things there, as their tags say, is believed of none of them."""
    with private_rack() as rack:
        file = rack.file(text + rack.bmc())

        async def run(*command: str) -> str:
            done = await asyncio.to_thread(rack.run, *command)
            return done.stdout + done.stderr

        await run("up", file, "--yes")
        server = next(id_ for id_, each in cloud.servers.items() if each["name"] == "crash-n")
        both = set(cloud.servers)
        await run("daemon", "stop")
        for path in (rack.directory / "state").glob("nospoon.db*"):
            path.unlink()
        assert "crash" in await run("recover", file)
        await run("daemon", "stop")
        with closing(sqlite3.connect(rack.directory / "state" / "nospoon.db")) as store:
            assert store.execute("select count(*) from cloud_logins").fetchone() == (1,)
        (row,) = await asyncio.to_thread(rack.json, "status", "crash")
        assert row["power"] == "off", "its login is known after a restart"
        plan = await asyncio.to_thread(rack.json, "plan", file)
        assert {each["kind"] for each in plan["steps"]} == {"bmc"}
        await run("up", file, "--yes")
        assert set(cloud.servers) == both
        forged = {**cloud.servers[server], "id": str(uuid4())}
        cluster = uuid4()
        machine = uuid5(cluster, "n")
        forged["metadata"] = {
            **forged["metadata"],
            "nospoon_uid": "4711",
            "nospoon_cluster": str(cluster),
            "nospoon_owner": "planted",
            "nospoon_uuid": str(machine),
            **{
                key: value.replace(uuid_in(value), str(machine))
                for key, value in forged["metadata"].items()
                if key.startswith("nospoon_shape") and uuid_in(value)
            },
        }
        cloud.servers[forged["id"]] = forged
        assert "planted" not in await run("recover")
        assert "planted" not in await run("status")
        del cloud.servers[forged["id"]]
        await run("down", "crash", "--yes")
        assert not cloud.servers


def uuid_in(text: str) -> str:
    """The first UUID in a text, "" for none."""
    found = re.search(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", text)
    return found.group() if found is not None else ""


@pytest.mark.timeout(1000, func_only=True)
async def test_the_daemon_dies_at_calls_that_change_nothing(cloud: FakeCloud, text: str) -> None:
    """With the test of changes, at each action on a server, and wherever a look can find the cloud
    otherwise than the one before.
    """
    before = cloud.everything()
    with private_rack() as rack:
        file = rack.file(text + rack.bmc())
        made = dict[str, int]()
        killed = {"up": 0, "down": 0}

        async def dies(name: str, *command: str) -> bool:
            number = killed[name] + 1
            died = await dying(cloud, rack, number, name, *command, counts=Others())
            killed[name] += died
            return died

        is_killed = True
        while is_killed:
            is_killed = await dies("up", file, "--yes")
            if is_killed:
                await asyncio.to_thread(rack.run, "up", file, "--yes")
            plan = await asyncio.to_thread(rack.run, "plan", file)
            assert "Nothing to do" in plan.stdout
            now = {kind: len(ids) for kind, ids in cloud.everything().items()}
            assert (made := made or now) == now
            if await dies("down", "crash", "--yes"):
                is_killed = True
                await asyncio.to_thread(rack.run, "down", "crash", "--yes")
            assert cloud.everything() == before
            assert len(tunnels(rack)) == 0
        assert killed["up"] >= 20, "a login, an action, a look after each of 15 changes, and others"
        assert killed["down"] >= 15, "a look after each of 10 changes, and others"
