"""In which order an `up` starts nodes, and what waits when a service is not healthy."""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

import pytest

from nospoon.control.operations.health import RoleOf
from nospoon.control.operations.roles import Roles, RoleSeen, role_seen
from nospoon.control.operations.starting import AT_ONCE, Places, StartRun
from nospoon.errors import ProviderError
from nospoon.model.service import Health, Service
from nospoon.plan.addresses.addresses import GuestAddress
from nospoon.plan.order.services import start_order


class World:
    """Machines that start, and services that are healthy when all that they need is."""

    def __init__(self, services: list[Service], *more: str) -> None:
        nodes = dict.fromkeys([*(n for each in services for n in each.nodes), *more])
        self.services = services
        self.machines = {node: uuid4() for node in nodes}
        self.names = {uuid: node for node, uuid in self.machines.items()}
        self.said: list[str] = []
        self.broken: set[str] = set()
        self.ill: set[str] = set()
        self.running = self.most = 0
        self.consoles: dict[str, bytes] = {}
        self.says: dict[str, bytes] = {}

    async def size(self, machine: UUID, *, user: int = 0) -> int:
        del user
        return len(self.consoles.get(self.names[machine], b""))

    async def tail(self, machine: UUID, most: int, *, user: int = 0) -> bytes:
        del user
        return self.consoles.get(self.names[machine], b"")[-most:]

    async def start(self, machine: UUID) -> str:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        node = self.names[machine]
        self.said.append(f"start {node}")
        self.consoles[node] = self.consoles.get(node, b"") + self.says.get(node, b"")
        if node in self.broken:
            raise ProviderError("no memory")
        return ""

    async def wait(
        self, user: int, machine: UUID, there: GuestAddress | None, health: Health, role: RoleOf
    ) -> str:
        assert there is not None
        del user, health
        self.said.append(f"look {there.address}")
        if (seen := await role()).status:
            return f"status {seen.status}"
        return "nothing answers" if self.names[machine] in self.ill else ""

    async def up(self, *starting: str) -> list[str]:
        places = Places(
            self.machines, {node: GuestAddress(f"at-{node}", "br0") for node in self.machines}
        )
        run = StartRun(7, start_order(self.services), places, self.start, self.wait, Roles(self, 7))
        async with asyncio.timeout(20):
            return await run.all(list(starting) or list(self.machines))


def chain() -> World:
    services = [
        Service("api", ("api-0", "api-1"), "api", ("db", "mq"), health=Health(80)),
        Service("db", ("db",), "db", health=Health(3306)),
        Service("mq", ("db",), "mq", ("db",)),
        Service("web", ("web",), "web", ("api",)),
    ]
    return World(services, "other")


async def test_nodes_start_after_what_their_services_need() -> None:
    world = chain()
    assert await world.up() == []
    order = [each for each in world.said if each != "start other"]
    assert order[:2] == ["start db", "look at-db"]
    assert set(order[2:4]) == {"start api-0", "start api-1"}
    assert set(order[4:6]) == {"look at-api-0", "look at-api-1"}
    assert order[6:] == ["start web"]


async def test_what_needs_a_service_that_is_not_healthy_is_not_started() -> None:
    world = chain()
    world.ill = {"db"}
    said = await world.up()
    assert "start api-0" not in world.said
    assert "start web" not in world.said
    assert "start other" in world.said
    assert (
        "node api-0 was made and waits for service db: service db is not healthy: node db: nothing "
        "answers; start it with `nospoon node power api-0 on`"
    ) in said
    assert "service db is not healthy: node db: nothing answers" in said
    assert world.said.count("look at-db") == 1, "all wait for one answer"


async def test_a_node_that_does_not_start_holds_up_what_needs_it() -> None:
    world = chain()
    world.broken = {"api-1"}
    said = await world.up()
    assert "start web" not in world.said
    assert any(
        each.startswith("node api-1 was made and does not start: no memory") for each in said
    )
    assert any("node web was made and waits for service api" in each for each in said)


async def test_what_runs_already_is_looked_at_and_not_started() -> None:
    world = chain()
    assert await world.up("web") == []
    assert world.said == ["look at-api-0", "look at-api-1", "start web"]


@pytest.mark.parametrize("depth", [3, 40])
async def test_many_nodes_start_a_few_at_a_time_and_never_wait_for_ever(depth: int) -> None:
    services = [
        Service(
            f"s{n}", tuple(f"n{n}-{i}" for i in range(AT_ONCE)), "u", (f"s{n - 1}",) if n else ()
        )
        for n in range(depth)
    ]
    world = World(services)
    assert await world.up() == []
    assert len(world.said) == depth * AT_ONCE
    assert world.most <= AT_ONCE
    first = [int(each.split()[1][1:].split("-")[0]) for each in world.said]
    assert first == sorted(first)


ROLE = Service("db", ("db",), "db", health=Health(3306), role="#!/bin/sh\n")
LINE = ROLE.role_line.encode()


@pytest.mark.parametrize(
    ("log", "wanted"),
    [
        (b"", RoleSeen()),
        (LINE + b"begins\r\n", RoleSeen(why="its role has not ended")),
        (LINE + b"begins\r\n[ OK ]\r\n" + LINE + b"exit status 0\r\n", RoleSeen()),
        (LINE + b"exit status 0\r\n" + LINE + b"exit status 203\r\n", RoleSeen(203)),
        (LINE + b"exit status 99999", RoleSeen()),
        (LINE.replace(b"db", b"dbs") + b"exit status 3", RoleSeen()),
        (b"\0\xff" + LINE[:-3], RoleSeen()),
    ],
)
def test_the_last_line_of_a_console_says_how_a_role_goes(log: bytes, wanted: RoleSeen) -> None:
    assert role_seen(log, ROLE) == wanted


async def test_a_role_that_fails_is_named_and_what_an_earlier_boot_wrote_is_not_read() -> None:
    world = World([ROLE, Service("api", ("api",), "api", ("db",))])
    world.consoles["db"] = LINE + b"exit status 7\n"
    world.says["db"] = LINE + b"exit status 0\n"
    assert await world.up() == []
    world.says["db"] = LINE + b"exit status 3\n"
    why = "service db is not healthy: node db: status 3; `nospoon service logs db --node db` shows "
    said = await world.up()
    assert f"{why}its role" in said
    assert world.said.count("start api") == 1, "it is not started the second time"
    (waits,) = await world.up("api")
    assert f"{why}its role" in waits, "the role of what runs is looked at, too"
