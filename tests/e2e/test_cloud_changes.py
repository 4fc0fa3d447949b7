"""Changes of a host that is a project of a cloud: what stays, what is replaced, what is refused."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sqlite3
from contextlib import closing
from typing import Any

from nospoon.testing.cloud_connection import fake_cloud
from nospoon.testing.fake_cloud import FakeCloud
from nospoon.testing.rack import Rack, private_rack

CLUSTER = """
cluster: changing
hosts:
  cloud:
    openstack:
      cloud: {settings}
      flavors: [{flavor}]
      boot_address: {address}
{more}
    physnets: {{external: external}}
networks: {{external: {{physnet: external}}}}
nodes: [{{name: n, cpus: 1, memory: 512MiB, firmware: bios, disks: [1GiB],
  nics: [{{network: external{nic}}}]}}]
"""


APART = "placement: {anti_affinity: flavor}, cpus: 1"


def text(cloud: FakeCloud, **changes: str) -> str:
    settings = json.dumps({"name": "mine", **cloud.settings})
    usual = {"settings": settings, "flavor": "metal.512", "address": "127.0.0.1", "more": ""}
    usual["nic"] = ""
    return CLUSTER.format(**{**usual, **changes})


def renewed(content: str) -> str:
    """With the login of another user."""
    for before, now in (("username", "v"), ("password", "q")):
        content = re.sub(rf'"{before}": "\w"', f'"{before}": "{now}"', content)
    return content


async def asks_elsewhere(rack: Rack, cloud: FakeCloud, bmc: str) -> None:
    """A node that runs is made again of the image for another address, and then back."""

    async def run(*command: str) -> str:
        done = await asyncio.to_thread(rack.run, *command)
        return done.stdout

    def urls() -> list[str]:
        found = [each["nospoon_url"] for each in cloud.images.values()]
        return [each.removeprefix("http://").partition(":")[0] for each in found]

    await run("node", "power", "n", "on")
    for address in ("127.0.0.2", "127.0.0.1"):
        file = rack.file(text(cloud, address=address) + bmc)
        found: Any = await asyncio.to_thread(rack.json, "plan", file)
        steps = sorted((each["kind"], each["action"]) for each in found["steps"])
        assert steps == [
            ("boot-image", "create"), ("boot-image", "delete"), ("machine", "replace"),
        ]  # fmt: skip
        lost = "what is on its disks is lost"
        runs = "it runs, and is powered off; " if address == "127.0.0.2" else ""
        before = set(cloud.servers)
        shown = await run("plan", file)
        assert f"(asks_at differs; {runs}{lost})" in shown
        assert re.search(rf"asks_at: http://127.* -> http://{address}:\d+  \[replace\]", shown)
        await run("up", file, "--yes")
        assert "Nothing to do" in await run("plan", file)
        assert urls() == [address]
        (server,) = cloud.servers.values()
        assert server["id"] not in before
        assert server["image"]["id"] in cloud.images


def own(cloud: FakeCloud) -> None:
    cloud.networks["n0"]["project_id"] = "0" * 32


async def test_changes_of_a_cloud_follow_their_rules() -> None:
    async with fake_cloud() as cloud, fake_cloud() as other:
        own(cloud)
        own(other)
        cloud.regions["RegionTwo"] = other.url
        with private_rack() as rack:
            bmc = rack.bmc()

            async def plan(**changes: str) -> dict[str, str]:
                """Kind -> action."""
                file = rack.file(text(cloud, **changes) + bmc, "changed.yaml")
                told: Any = await asyncio.to_thread(rack.json, "plan", file)
                return {each["kind"]: each["action"] for each in told["steps"]}

            async def refused(content: str) -> str:
                file = rack.file(content + bmc, "changed.yaml")
                done = await asyncio.to_thread(lambda: rack.run("plan", file, status=1))
                return done.stderr

            file = rack.file(text(cloud) + bmc)
            await asyncio.to_thread(rack.run, "up", file, "--yes")
            checked: Any = await asyncio.to_thread(rack.json, "host", "check", file)
            billed = {each["what"]: each["detail"] for each in checked}["billed"]
            assert billed == "1 server (1 of metal.512), 1 CPU and 512 MiB of memory for nodes"
            assert await plan() == {}
            assert await plan(flavor="metal.2048") == {}, "nodes keep the flavor that they have"
            await asks_elsewhere(rack, cloud, bmc)
            stops = rack.file(text(cloud, more="      off: shelve") + bmc, "changed.yaml")
            told = await asyncio.to_thread(rack.run, "plan", stops)
            assert "host cloud: a power-off stops n, because a cloud keeps" in told.stdout
            assert await plan(more="      off: shelve") == {}, "it is bare metal"
            grouped = rack.file(text(cloud).replace("cpus: 1", APART) + bmc, "changed.yaml")
            shown: Any = await asyncio.to_thread(rack.json, "plan", grouped)
            assert [(each["kind"], each["name"], each["action"]) for each in shown["steps"]] == [
                ("server-group", "anti-affinity-flavor=default", "create"),
                ("machine", "n", "replace"),
            ]  # fmt: skip
            for more in ("server_groups: soft", "per_compute_host: 2"):
                assert await plan(more=f"      {more}") == {}, "no rule binds a node"
            named = text(cloud, more="      key_pair: me")
            assert "the user of its login has no key pair 'me'" in await refused(named)
            cloud.key_pairs["me"] = {"name": "me", "public_key": "ssh-rsa AAAA"}
            assert await plan(more="      key_pair: me") == {}, "it is bare metal"
            zone = await plan(more="      availability_zone: other")
            assert zone == {"machine": "replace"}
            assert await plan(nic=", floating_ip: external") == {"floating-ip": "create"}
            chosen = ", floating_ip: external, floating_address: 203.0.113.9"
            ssh = rack.directory / "ssh"
            ssh.write_text('#!/bin/sh\necho "$@"\n')
            ssh.chmod(0o755)
            rack.environment["PATH"] = f"{rack.directory}:{rack.environment['PATH']}"
            line = ["node", "exec", "changing/n", "--", "true"]
            done = await asyncio.to_thread(lambda: rack.run(*line, status=2))
            assert "no address of node changing/n is known" in done.stderr
            floating = rack.file(text(cloud, nic=", floating_ip: external") + bmc)
            await asyncio.to_thread(rack.run, "up", floating, "--yes")
            done = await asyncio.to_thread(lambda: rack.run(*line))
            assert await plan(nic=chosen) == {"floating-ip": "replace"}
            (address,) = (each["floating_ip_address"] for each in cloud.floatingips.values())
            assert done.stdout.split()[-3:] == ["--", address, "true"]
            vlan = text(cloud, nic=", floating_ip: external").replace(
                "networks: {", "networks: {lan: {provider: racks, vlan: 101}, "
            )
            cloud.networks["n0"]["provider:network_type"] = "flat"  # an administrator sees that
            file = rack.file(vlan + bmc)
            await asyncio.to_thread(rack.run, "up", file, "--yes")
            for other_one in ("vlan: 102", "provider: more"):
                old = other_one.partition(":")[0]
                changed = re.sub(rf"{old}: \w+", other_one, vlan, count=1)
                named = rack.file(changed + bmc, "changed.yaml")
                found: Any = await asyncio.to_thread(rack.json, "plan", named)
                steps = [(each["kind"], each["action"]) for each in found["steps"]]
                assert steps == [("network", "replace")]
            tunnel = vlan.replace("provider: racks, vlan: 101", "segment: vxlan, segment_id: 9")
            for content, action in (
                (tunnel, "replace"), (tunnel.replace("id: 9", "id: 10"), "replace"),
                (tunnel.replace("vxlan", "geneve"), "replace"),
            ):  # fmt: skip
                found = await asyncio.to_thread(
                    rack.json, "plan", rack.file(content + bmc, "changed.yaml")
                )
                assert [e["action"] for e in found["steps"] if e["kind"] == "network"] == [action]
                await asyncio.to_thread(rack.run, "up", rack.file(content + bmc), "--yes")
                assert "Nothing to do" in (await asyncio.to_thread(rack.run, "plan", file)).stdout
            await asyncio.to_thread(rack.run, "up", rack.file(vlan + bmc), "--yes")
            leafs = vlan.replace("networks: {", "networks: {a: {nat: true}, b: {nat: true}, ")
            leafs = leafs.replace("nics: [", "nics: [{network: a, floating_ip: external}, ")
            file = rack.file(leafs + bmc)
            await asyncio.to_thread(rack.run, "up", file, "--yes")
            spine = leafs.replace("nat: true", "nat: true, router: spine")
            file = rack.file(spine + bmc)
            found = await asyncio.to_thread(rack.json, "plan", file)
            named_steps = [(each["name"], each["kind"], each["action"]) for each in found["steps"]]
            assert sorted(named_steps) == [
                ("a", "router", "delete"), ("b", "router", "delete"),
                ("n-0", "floating-ip", "change"), ("spine", "router", "create"),
            ]  # fmt: skip
            await asyncio.to_thread(rack.run, "up", file, "--yes")
            assert "Nothing to do" in (await asyncio.to_thread(rack.run, "plan", file)).stdout
            assert len(cloud.routers) == 1
            silent = spine.replace("nat: true", "nat: true, dhcp: false")
            file = rack.file(silent + bmc)
            found = await asyncio.to_thread(rack.json, "plan", file)
            named_steps = [(each["name"], each["kind"], each["action"]) for each in found["steps"]]
            assert sorted(named_steps) == [("a", "network", "change"), ("b", "network", "change")]
            await asyncio.to_thread(rack.run, "up", file, "--yes")
            assert "Nothing to do" in (await asyncio.to_thread(rack.run, "plan", file)).stdout
            assert not any(each["enable_dhcp"] for each in cloud.subnets.values())
            left = "there is still what is the cluster's"
            assert left in await refused(text(other))
            assert left in await refused(text(cloud, more="      region: RegionTwo"))
            cloud.revoked.add("p")  # such as an application credential that expired
            here, there = (renewed(each) for each in (vlan, text(other)))
            assert "it is not known what is left" in await refused(there)
            file = rack.file(here + bmc)
            await asyncio.to_thread(rack.run, "up", file, "--yes")
            await asyncio.to_thread(rack.run, "down", "changing", "--yes")
            assert not cloud.servers


SHAPE = "nospoon_shape_"
FLAVORS = "flavors: [metal.512, metal.2048]\n      availability_zone: [one, two]"


async def test_a_server_without_a_compute_host_is_created_once_more_elsewhere() -> None:
    """And what was begun when the daemon died, before or after that was deleted, converges."""
    async with fake_cloud() as cloud:
        own(cloud)
        with private_rack() as rack:
            content = text(cloud).replace("flavors: [metal.512]", FLAVORS)
            content = content.replace("networks:", "  here: {simulated: true}\nnetworks:")
            file = rack.file(content + rack.bmc())

            async def run(*command: str, status: int = 0) -> str:
                done = await asyncio.to_thread(lambda: rack.run(*command, status=status))
                return done.stdout + done.stderr

            async def made() -> tuple[str, str]:
                """Its flavor and its zone; nothing is to be done, and no other is there."""
                assert "Nothing to do" in await run("plan", file)
                (server,) = cloud.servers.values()
                pieces = [v for k, v in server["metadata"].items() if k.startswith(SHAPE)]
                zone = json.loads("".join(pieces))["zone"]
                return server["flavor"]["original_name"], zone

            plan = await run("plan", file)
            assert "flavor metal.512; else in availability zone two; else with flavor" in plan
            cloud.full = {"metal.512", "metal.2048"}
            told = await run("up", file, "--yes", status=3)
            assert "No valid host was found" in told
            assert "here can have node n: write `host: here` for it" in told
            assert not cloud.servers
            cloud.full = {"one"}
            told = await run("up", file, "--yes")
            assert "No valid host was found. It is created once more in availability" in told
            assert await made() == ("metal.512", "two")
            cloud.full = set()
            assert await made() == ("metal.512", "two"), "it stays where it is"
            await run("down", "changing", "--yes")
            for call in ("POST /compute/v2.1/servers", "DELETE /compute/v2.1/servers/"):
                cloud.full = {"metal.512"}
                await dying_at(cloud, rack, call, "up", file, "--yes")
                told = await run("up", file, "--yes")
                assert "It is created once more with flavor metal.2048" in told
                assert await made() == ("metal.2048", "one")
                rows = await asyncio.to_thread(stored_machines, rack)
                assert [(each["flavor"], each["cpus"]) for each in rows] == [("metal.2048", 2)]
                await run("down", "changing", "--yes")
                assert not cloud.servers


async def dying_at(cloud: FakeCloud, rack: Rack, call: str, *command: str) -> None:
    """Run a command whose daemon dies at the first such call, which is carried out."""
    calls: list[str] = []

    def heard(said: str) -> None:
        if said.startswith(call) and not calls and not said.endswith("/action"):
            calls.append(said)
            rack.crash()

    cloud.heard = heard
    with contextlib.suppress(AssertionError):  # it fails as its daemon dies
        await asyncio.to_thread(rack.run, *command)
    cloud.heard = None
    assert calls


def stored_machines(rack: Rack) -> list[Any]:
    path = rack.directory / "state" / "nospoon.db"
    with closing(sqlite3.connect(path)) as store:
        return [json.loads(text) for (text,) in store.execute("select machine from nodes")]


TRUNK = """
cluster: tagged
hosts:
  cloud:
    openstack: {{cloud: {settings}, flavors: [metal.512], boot_address: 127.0.0.1}}
    physnets: {{external: external}}
networks: {{ext: {{physnet: external}}, lan: {{{lan}}}, red: {{{red}}}, blue: {{{blue}}}}}
nodes: [{{name: n, cpus: 1, memory: 512MiB, firmware: bios, disks: [1GiB],
  nics: [ext, {{network: lan{trunk}}}]}}]
"""


async def test_trunks_of_nics_follow_the_file() -> None:
    async with fake_cloud() as cloud:
        own(cloud)
        settings = json.dumps({"name": "mine", **cloud.settings})
        with private_rack() as rack:
            bmc = rack.bmc()

            def written(trunk: str, lan: str = "") -> str:
                named = f", trunk: [{trunk}]" if trunk else ""
                red, blue = (f"vlan: {id_}" if id_ in trunk else "" for id_ in ("101", "102"))
                text = TRUNK.format(settings=settings, trunk=named, lan=lan, red=red, blue=blue)
                return rack.file(text + bmc)

            async def run(*command: str, status: int = 0) -> str:
                done = await asyncio.to_thread(lambda: rack.run(*command, status=status))
                return done.stdout + done.stderr

            async def up(file: str) -> list[tuple[str, str, str]]:
                """The steps of the plan, which is carried out."""
                found: Any = await asyncio.to_thread(rack.json, "plan", file)
                await run("up", file, "--yes")
                assert "Nothing to do" in await run("plan", file)
                assert {each["name"] for each in plugged(cloud)} == {"tagged-n-0", "tagged-n-1"}
                return sorted((e["action"], e["kind"], e["name"]) for e in found["steps"])

            file = written("101, 102")
            assert ("create", "trunk", "n-1") in await up(file)
            one = written("102")
            assert await up(one) == [("change", "trunk", "n-1"), ("delete", "port", "n-1.101")]
            (trunk,) = cloud.trunks.values()
            trunk["sub_ports"] = []  # another user did
            assert await up(one) == [("change", "trunk", "n-1")]
            guarded = written("102", "anti_spoofing: true")
            assert await up(guarded) == [
                ("change", "machine", "n"), ("replace", "port", "n-1"), ("replace", "trunk", "n-1"),
            ]  # fmt: skip
            none = written("", "anti_spoofing: true")
            await run("node", "power", "n", "on")
            assert "Power the node off" in await run("up", none, "--yes", status=1)
            stopped = asyncio.Event()
            cloud.heard = lambda _: stopped.set() if cloud.acted[-1] == "os-stop" else None
            await run("node", "power", "n", "off")
            await stopped.wait()  # it is given to Nova once the node is on
            assert await up(none) == [("delete", "port", "n-1.102"), ("delete", "trunk", "n-1")]
            assert ("create", "trunk", "n-1") in await up(written("101"))
            cloud.has_trunks = False
            assert "has no extension `trunk`" in await run("plan", written("102"), status=1)
            cloud.has_trunks = True
            await run("down", "tagged", "--yes")
            assert not any((cloud.servers, cloud.trunks, cloud.ports))
            assert set(cloud.networks) == {"n0"}


def plugged(cloud: FakeCloud) -> list[dict[str, Any]]:
    return [each for each in cloud.ports.values() if each["device_id"] in cloud.servers]
