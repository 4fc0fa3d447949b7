"""Former roots of servers of a cloud: kept by an upgrade, back by a rollback, gone with `down`."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

import pytest
from tests.e2e.test_cloud_crashes import dying

from nospoon.testing.cloud_connection import fake_cloud
from nospoon.testing.fake_cloud import FakeCloud
from nospoon.testing.rack import Rack, private_rack

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
    networks: [{{network: external, floating_ip: external, floating_address: {address}}}]
    rollback: {rollback}
{more}"""
ADDRESS = "127.0.7.9"
"""Of the floating IP."""
ROLE = "#!/bin/sh -e\necho one\n"


@dataclass(frozen=True)
class Site:
    """A rack, its cloud, where BMCs of its file are, and the port on which its service answers."""

    rack: Rack
    cloud: FakeCloud
    bmc: str
    port: int = 0

    def file(self, image: str, *, role: str = "", rollback: str = "true") -> str:
        settings = json.dumps({"name": "mine", **self.cloud.settings})
        health = f"{{port: {self.port}, timeout: 20s}}"
        more = f"    role: {json.dumps(role)}\n    unit: web\n    health: {health}\n"
        said = FILE.format(
            settings=settings,
            image=image,
            rollback=rollback,
            address=ADDRESS,
            more=more if role else "",
        )
        return self.rack.file(said + self.bmc)

    def run(self, *command: str, status: int = 0) -> str:
        done = self.rack.run(*command, status=status)
        return " ".join((done.stdout + done.stderr).split())

    def has_nothing_to_do(self, image: str, *, role: str = "") -> bool:
        return "Nothing to do" in self.run("plan", self.file(image, role=role))


def stored(cloud: FakeCloud) -> dict[str, str]:
    """Name -> id of each root that is kept."""
    return {e["name"]: e["id"] for e in cloud.images.values() if "image_type" in e}


def made_of(cloud: FakeCloud) -> str:
    (server,) = cloud.servers.values()
    return str(server["image"]["id"])


def sent(cloud: FakeCloud) -> list[str]:
    return [id_ for id_, each in cloud.images.items() if "image_type" not in each]


async def in_cloud(run: Callable[[Site], None]) -> None:
    async with fake_cloud() as cloud:
        cloud.networks["n0"]["project_id"] = "0" * 32
        with private_rack() as rack, closing(socket.create_server((ADDRESS, 0))) as listener:
            port = listener.getsockname()[1]
            for number, name in enumerate(("a", "b", "c"), 1):
                (rack.directory / f"{name}.raw").write_bytes(bytes([number]) * (1 << 20))
            await asyncio.to_thread(lambda: run(Site(rack, cloud, rack.bmc(), port)))
        assert not cloud.servers
        assert not cloud.images


@pytest.mark.timeout(600, func_only=True)
async def test_a_service_of_a_cloud_is_upgraded_and_rolled_back_to_its_former_root() -> None:
    await in_cloud(_upgraded)


def _upgraded(site: Site) -> None:
    cloud = site.cloud
    site.run("up", "--yes", site.file("a.raw"))
    refused = site.run("service", "rollback", "web", site.file("b.raw"), "--yes", status=1)
    assert "none is of the image and roles" in refused
    assert site.has_nothing_to_do("a.raw")
    planned = site.run("plan", site.file("b.raw"))
    assert "the root that web has now is kept as an image of its cloud" in planned
    assert "what is on its disks is lost" not in planned
    before = made_of(cloud)
    site.run("service", "upgrade", "web", site.file("b.raw"), "--yes")
    assert list(stored(cloud)) == ["nospoon-served-web-former.0"]
    (kept,) = stored(cloud).values()
    assert cloud.images[kept]["base_image_ref"] == before
    assert made_of(cloud) in sent(cloud)
    site.run("up", "--yes", site.file("b.raw"))
    assert before not in cloud.images, "no server is made of it"
    assert list(stored(cloud).values()) == [kept]
    assert site.has_nothing_to_do("b.raw")
    assert site.rack.json("snapshot", "list", "served") == []

    assert site.rack.json("plan", site.file("a.raw"))["returns"] == ["web"]
    site.run("service", "rollback", "web", site.file("a.raw"), "--yes")
    assert made_of(cloud) == kept, "it has the data of its old root"
    assert set(stored(cloud)) == {"nospoon-served-web-former.0", "nospoon-served-web-former.1"}
    site.run("up", "--yes", site.file("a.raw"))
    assert not sent(cloud), "neither image is needed"
    assert site.has_nothing_to_do("a.raw")
    again = site.run("service", "rollback", "web", site.file("a.raw"), "--yes", status=1)
    assert "they have now" in again

    site.run("service", "upgrade", "web", site.file("b.raw"), "--yes")
    assert made_of(cloud) == stored(cloud)["nospoon-served-web-former.1"]
    assert len(stored(cloud)) == 2
    assert site.has_nothing_to_do("b.raw")
    assert "what is on root web.former.2 is lost" in site.run("plan", site.file("c.raw"))
    site.run("service", "upgrade", "web", site.file("c.raw"), "--yes")
    assert list(stored(cloud)) == ["nospoon-served-web-former.3"], "of the last one alone"
    assert site.has_nothing_to_do("c.raw")
    site.run("up", "--yes", site.file("c.raw", rollback="false"))
    assert not stored(cloud)
    site.run("up", "--yes", site.file("a.raw"))
    assert list(stored(cloud)) == ["nospoon-served-web-former.0"]
    site.run("down", "--yes", "served")


@pytest.mark.timeout(600, func_only=True)
async def test_another_role_is_another_root_in_a_cloud() -> None:
    await in_cloud(_with_roles)


def _with_roles(site: Site) -> None:
    site.run("up", "--yes", site.file("a.raw"))
    site.run("up", "--yes", site.file("a.raw", role=ROLE))
    (kept,) = stored(site.cloud).values()
    assert site.has_nothing_to_do("a.raw", role=ROLE)
    (server,) = site.cloud.servers.values()
    image = server["image"]
    other = site.rack.json("plan", site.file("a.raw", role=ROLE + "echo two\n"))
    assert (other["returns"], made_of(site.cloud)) == ([], image["id"])
    site.run("up", "--yes", site.file("a.raw"))
    assert made_of(site.cloud) == kept
    assert site.has_nothing_to_do("a.raw")
    _recovered(site)
    site.run("down", "--yes", "served")


def _recovered(site: Site) -> None:
    """A store that was lost: roots are known again, and the service goes on to its other one."""
    rack, before = site.rack, stored(site.cloud)
    rack.run("daemon", "stop")
    for path in (rack.directory / "state").glob("nospoon.db*"):
        path.unlink()
    assert "served" in site.run("recover", site.file("a.raw"))
    assert rack.json("snapshot", "list", "served") == []
    site.run("up", "--yes", site.file("a.raw"))
    assert stored(site.cloud) == before
    site.run("up", "--yes", site.file("a.raw", role=ROLE))
    assert made_of(site.cloud) == before["nospoon-served-web-former.1"]
    assert site.has_nothing_to_do("a.raw", role=ROLE)
    site.run("up", "--yes", site.file("a.raw"))


@pytest.mark.timeout(1000, func_only=True)
async def test_the_daemon_dies_at_each_call_of_an_upgrade() -> None:
    async with fake_cloud() as cloud:
        cloud.networks["n0"]["project_id"] = "0" * 32
        with private_rack() as rack:
            site = Site(rack, cloud, rack.bmc())
            for number, name in enumerate("ab"):
                (rack.directory / f"{name}.raw").write_bytes(bytes([number]) * (1 << 20))
            await asyncio.to_thread(site.run, "up", "--yes", site.file("a.raw"))
            killed, at = 0, 1
            while True:
                name = "ba"[killed % 2]
                died = await dying(
                    cloud, rack, at, "up", "--yes", site.file(f"{name}.raw"), counts=_changes,
                    looks=_keeps,
                )  # fmt: skip
                if not died:
                    break
                at, killed = at + 1, killed + 1
                _keeps(cloud)
                await asyncio.to_thread(site.run, "up", "--yes", site.file(f"{name}.raw"))
                assert await asyncio.to_thread(site.has_nothing_to_do, f"{name}.raw")
                assert len(stored(cloud)) <= 2, "that of which it was made, and the former one"
                (server,) = cloud.servers.values()
                assert server["status"] == "ACTIVE"
            assert killed >= 6, "a stop, an image, a removal, a server, its tag, an image that goes"
            await asyncio.to_thread(site.run, "down", "--yes", "served")
        assert not cloud.servers
        assert not cloud.images


def _changes(call: str) -> bool:
    return call.startswith(("POST", "PUT", "DELETE")) and "auth/tokens" not in call


def _keeps(cloud: FakeCloud) -> None:
    """Whenever there is no server, its root is stored; and the image of each server is there."""
    whole = {id_ for id_, each in cloud.images.items() if each["status"] == "active"}
    assert cloud.servers or any("image_type" in cloud.images[each] for each in whole)
    assert {each["image"]["id"] for each in cloud.servers.values()} <= set(cloud.images)
