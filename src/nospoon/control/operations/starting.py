"""Starts what runs its own image: nodes in the order of their services, which are looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from nospoon.control.operations.health import HealthChecks, RoleOf
from nospoon.control.operations.roles import ConsoleLogs, Roles, RoleSeen
from nospoon.control.planning.prepared import Prepared
from nospoon.errors import NospoonError
from nospoon.model.node_kind import NodeKind
from nospoon.model.resources.machines import Machine
from nospoon.model.service import Health, Service
from nospoon.plan.addresses.addresses import GuestAddress, looked_at
from nospoon.plan.order.services import StartOrder, start_order
from nospoon.runtime.few import few_at_once
from nospoon.runtime.paced import paced
from nospoon.runtime.tasks import Tasks
from nospoon.runtime.workers import Workers

AT_ONCE = 32
"""VMs and containers of one `up` that are switched on at a time: each is a few steps of its BMC."""
Start = Callable[[UUID], Awaitable[str]]
"""Powers a machine on through its BMC; why it does not run then, "" where it does."""
Wait = Callable[[int, UUID, GuestAddress | None, Health, RoleOf], Awaitable[str]]
"""As `HealthChecks.wait`."""


class Starting:
    """Switches on what an `up` made."""

    def __init__(
        self, start: Start, checks: HealthChecks, logs: ConsoleLogs, workers: Workers
    ) -> None:
        self._start, self._checks, self._logs, self._workers = start, checks, logs, workers

    async def roles_of(self, prepared: Prepared) -> Roles:
        """To be looked at, before anything is made: there, where machines run as soon as they are,
        what they write begins.
        """
        seen = prepared.seen
        roles, hosts = Roles(self._logs, seen.owner), {e.name: e for e in seen.cluster.hosts}
        with_role = {node for each in seen.cluster.services if each.role for node in each.nodes}
        async for each in paced(prepared.desired.values() if with_role else ()):
            host = hosts.get(each.key.place)
            if not isinstance(each.shape, Machine) or each.node not in with_role or host is None:
                continue
            if host.declares.runs_made:
                await roles.begin(each.shape.uuid)
        return roles

    async def switch_on(self, prepared: Prepared, made: Collection[str], roles: Roles) -> list[str]:
        """Start those of these nodes that run their own image, and wait until their services are
        healthy; says of which that failed, and why. Bare metal waits for its deployer.
        """
        machines = {
            each.node: each.shape.uuid
            async for each in paced(prepared.desired.values())
            if isinstance(each.shape, Machine) and each.shape.kind is not NodeKind.BAREMETAL
        }
        starting = [node for node in machines if node in made]
        if not starting:
            return []
        cluster, user = prepared.seen.cluster, prepared.seen.owner
        order = await self._workers.run(user, start_order, cluster.services)
        addresses = await self._workers.run(
            user, looked_at, cluster, prepared.seen.id, prepared.allocations
        )
        used = prepared.allocations.hosts.values()
        addresses |= await self._checks.outside(cluster, prepared.seen.id, used)
        place = Places(machines, addresses)
        run = StartRun(user, order, place, self._start, self._checks.wait, roles)
        return await run.all(starting)


@dataclass(frozen=True, slots=True)
class Places:
    """By node: its machine, and the address at which services are looked at."""

    machines: Mapping[str, UUID]
    addresses: Mapping[str, GuestAddress]


class StartRun:
    """Nodes start `AT_ONCE` at a time, in an order in which each comes after those that it waits
    for, so that they never wait for one whose turn has not come.
    """

    def __init__(
        self, user: int, order: StartOrder, places: Places, start: Start, wait: Wait, roles: Roles
    ) -> None:
        self._user, self._roles = user, roles
        self._with_role = {node for each in order.services if each.role for node in each.nodes}
        self._order, self._places, self._start, self._wait = order, places, start, wait
        self._services = {each.name: each for each in order.services}
        self._over: dict[str, asyncio.Future[str]] = {}
        self._health: dict[str, asyncio.Task[str]] = {}
        self._tasks = Tasks("services")

    async def all(self, starting: Sequence[str]) -> list[str]:
        """Start these; what failed."""
        wanted, known = set(starting), set(self._order.nodes)
        nodes = [node for node in starting if node not in known]
        nodes += [node for node in self._order.nodes if node in wanted]
        loop = asyncio.get_running_loop()
        self._over = {node: loop.create_future() for node in nodes}
        async with self._tasks:
            try:
                said = await few_at_once(nodes, self._node, at_once=AT_ONCE)
            finally:
                for each in self._over.values():
                    each.cancel()
            begun = [each for each in self._order.services if wanted.intersection(each.nodes)]
            said += [await self._healthy(each.name) for each in begun if each.health is not None]
        return list(dict.fromkeys(filter(None, said)))

    async def _node(self, node: str) -> str:
        """Start one when what it needs is healthy; why it does not run."""
        said = await self._held(node)
        if not said and (why := await self._started(node)):
            said = f"node {node} was made and does not start: {why.rstrip('.')}"
        hint = f"start it with `nospoon node power {node} on`"
        self._over[node].set_result(said)
        return said and f"{said}; {hint}"

    async def _held(self, node: str) -> str:
        """What it waits for in vain."""
        for name in self._order.needs.get(node, ()):
            if why := await self._healthy(name):
                return f"node {node} was made and waits for service {name}: {why}"
        return ""

    async def _started(self, node: str) -> str:
        machine = self._places.machines[node]
        try:
            if node in self._with_role:
                await self._roles.begin(machine)
            return await self._start(machine)
        except NospoonError as error:
            return str(error)

    async def _healthy(self, name: str) -> str:
        """Why a service is not healthy, once that is known. All who ask wait for one answer."""
        if name not in self._health:
            look = self._look(self._services[name])
            self._health[name] = self._tasks.start(look, name=f"look at {name}")
        return await asyncio.shield(self._health[name])

    async def _look(self, service: Service) -> str:
        whys = await few_at_once(
            [node for node in service.nodes if node in self._places.machines],
            partial(self._look_at, service),
            at_once=AT_ONCE,
        )
        why = next(filter(None, whys), "")
        return why and f"service {service.name} is not healthy: {why}"

    async def _look_at(self, service: Service, node: str) -> str:
        if node in self._over and await self._over[node]:
            return f"node {node} does not run"
        if service.health is None:
            return ""
        machine, there = self._places.machines[node], self._places.addresses.get(node)
        role = partial(self._roles.seen, service, machine) if service.role else _no_role
        why = await self._wait(self._user, machine, there, service.health, role)
        if why and service.role:
            why += f"; `nospoon service logs {service.name} --node {node}` shows its role"
        return why and f"node {node}: {why}"


async def _no_role() -> RoleSeen:
    return RoleSeen()
