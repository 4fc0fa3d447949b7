"""Looks at services: what counts as an answer, and what a guest may say."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import cast
from uuid import UUID, uuid4

import pytest

from nospoon.clusterfile.load import load
from nospoon.control.fleet.hosts import Hosts
from nospoon.control.operations.health import HealthChecks, look, look_from_here
from nospoon.errors import HostUnreachable
from nospoon.model.cluster import Host
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.networks import FloatingIp
from nospoon.model.resources.resource import Observed
from nospoon.model.resources.tags import OwnerTag
from nospoon.model.service import Health
from nospoon.plan.addresses.addresses import GuestAddress
from nospoon.runtime.reach import ANYWHERE
from nospoon.runtime.runner import LocalRunner


@asynccontextmanager
async def answering(answer: bytes | None, address: str = "127.0.0.1") -> AsyncIterator[int]:
    """A server that says this to whoever connects; None: nothing, and it does not close."""

    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if answer is None:
            await over.wait()
        else:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve, address, 0)
    yield int(server.sockets[0].getsockname()[1])
    over.set()
    server.close()
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others)


async def seen(address: str, health: Health) -> str:
    """What is seen of a guest at an address of this machine, where hosts look at none."""
    return await look(LocalRunner(), GuestAddress(address, "lo"), health, way="")


async def test_a_port_that_answers_is_enough_without_a_path() -> None:
    async with answering(None) as port:
        assert await seen("127.0.0.1", Health(port)) == ""
    why = await seen("127.0.0.1", Health(port))
    assert why == f"127.0.0.1:{port} does not answer"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", ""),
        (b"HTTP/1.0 302 Found\r\nLocation: /x\r\n\r\n", ""),
        (b"HTTP/1.1 503 Not yet\r\n\r\n", "answers HTTP/1.1 503 Not yet"),
        (b"HTTP/1.1 500 \x1b[2Jx\r\n\r\n", "answers HTTP/1.1 500 \\u001b[2Jx"),
        (b"SSH-2.0-x\r\n", "answers something that is not HTTP"),
        (b"\0" * 1_000_000, "answers something that is not HTTP"),
        (b"", "answers something that is not HTTP"),
        (b"\r\nHTTP/1.1 200 OK\r\n\r\n", "answers something that is not HTTP"),
    ],
)
async def test_a_path_has_to_answer_well(answer: bytes, why: str) -> None:
    async with answering(answer) as port:
        said = await seen("127.0.0.1", Health(port, "/v3"))
        from_here = await look_from_here("127.0.0.1", Health(port, "/v3"), ANYWHERE)
    assert said == from_here == (why and f"http://127.0.0.1:{port}/v3 {why}")


async def test_of_a_flood_of_nulls_little_is_read() -> None:
    taken = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal taken
        await reader.readuntil(b"\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(bytes(1 << 16))
                await writer.drain()
                taken += 1 << 16
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = int(server.sockets[0].getsockname()[1])
        said = await seen("127.0.0.1", Health(port, "/"))
    assert said == f"http://127.0.0.1:{port}/ answers something that is not HTTP"
    assert taken < 64 << 20, "it ends as soon as enough is seen, not when its time is over"


async def test_who_answers_a_line_and_stays_is_heard_at_once_and_nothing_is_left() -> None:
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"SSH-2.0-x\r\n")
        assert await reader.read() == b""  # until the other end is closed by all who have it
        writer.close()
        over.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = int(server.sockets[0].getsockname()[1])
        said = await seen("127.0.0.1", Health(port, "/"))
        async with asyncio.timeout(20):
            await over.wait()
    assert said == f"http://127.0.0.1:{port}/ answers something that is not HTTP"


async def test_addresses_of_ipv6_are_looked_at_too() -> None:
    async with answering(b"HTTP/1.1 404 No\r\n\r\n", "::1") as port:
        assert await seen("::1", Health(port)) == ""
        said = await seen("::1", Health(port, "/"))
    assert said == f"http://[::1]:{port}/ answers HTTP/1.1 404 No"


async def test_who_says_nothing_is_left_after_a_while() -> None:
    async with answering(None) as port:
        async with asyncio.timeout(20):
            said = await seen("127.0.0.1", Health(port, "/"))
    assert said == f"127.0.0.1:{port} does not answer"


async def test_where_an_address_is_on_no_network_of_the_host_the_next_one_is_looked_at() -> None:
    """Such as that in a VLAN of which the host has none."""
    way = '[ "$1" = 127.0.0.1 ] || exit 3\n'
    vlan = GuestAddress("198.51.100.9", "br-ex")
    async with answering(None) as port:
        health, here = Health(port), GuestAddress("127.0.0.1", "lo")
        there = replace(vlan, others=(vlan, here))
        assert await look(LocalRunner(), there, health, way=way) == ""
    assert await look(LocalRunner(), there, health, way=way) == f"127.0.0.1:{port} does not answer"
    why = await look(LocalRunner(), replace(vlan, others=(vlan,)), health, way=way)
    assert why == "198.51.100.9 is not on the network of br-ex for its host, which does not look"


async def test_this_machine_looks_at_addresses_of_external_networks() -> None:
    async with answering(None, "::1") as port:
        assert await look_from_here("::1", Health(port), ANYWHERE) == ""
    assert await look_from_here("::1", Health(port), ANYWHERE) == f"[::1]:{port} does not answer"
    async with answering(None) as port:
        said = await look_from_here("127.0.0.1", Health(port, "/"), ANYWHERE, patience=0.2)
    assert said == f"127.0.0.1:{port} does not answer"


CLOUDS = """
cluster: c
hosts:
  here: {}
  one: {openstack: {cloud: {name: c, auth: {auth_url: "http://1"}}, boot_address: 192.0.2.9}}
  two: {openstack: {cloud: {name: c, auth: {auth_url: "http://2"}}, boot_address: 192.0.2.9}}
networks: {out: {nat: true}}
nodes:
  - {name: "{n}", count: 3, kind: vm, image: i, nics: [{network: out, floating_ip: public}]}
services: {s: {nodes: ["0"], HEALTH}}
"""


@dataclass
class Clouds:
    """As `Hosts`. `away`: those that do not answer; `asked`: those that were asked."""

    away: set[str]
    asked: list[str] = field(default_factory=list)

    def use(self, host: Host) -> SimpleNamespace:
        async def observe(cluster: UUID) -> list[Observed]:
            self.asked.append(host.name)
            if host.name in self.away:
                raise HostUnreachable(f"{host.name} is away")
            shapes = {"0-0": "02:00", "0-1": "02:01", "1-0": ""}
            return [
                Observed(
                    Key(Kind.FLOATING_IP, host.name, name),
                    FloatingIp("public", mac, f"192.0.2.{index}"),
                    OwnerTag("kit", cluster),
                )
                for index, (name, mac) in enumerate(shapes.items())
            ]

        driver = SimpleNamespace(observe=observe)
        return SimpleNamespace(connection=SimpleNamespace(drivers={Kind.FLOATING_IP: driver}))


async def test_floating_ips_are_asked_for_where_services_are_looked_at_and_of_clouds_alone() -> (
    None
):
    async def found(health: str, *used: str, away: str = "") -> tuple[dict[str, str], list[str]]:
        cluster = load(CLOUDS.replace("HEALTH", health), file="x")
        clouds = Clouds({away})
        checks = HealthChecks(cast("Hosts", clouds), ANYWHERE)
        there = await checks.outside(cluster, uuid4(), used)
        assert all(each.is_outside for each in there.values())
        return {node: each.address for node, each in there.items()}, clouds.asked

    assert await found("health: 80", "here", "one") == ({"0": "192.0.2.0"}, ["one"])
    assert await found("health: 80", "two", away="two") == ({}, ["two"])
    assert await found("unit: u", "one", "two") == ({}, [])
