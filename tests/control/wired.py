"""Planner, work and controller over simulated hosts, with a store in memory.

No socket is opened: BMCs are put on record and not served, and nothing answers HTTP.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast
from uuid import UUID

from cryptography.fernet import Fernet
from sqlalchemy import Connection, create_engine, event
from sqlalchemy.pool import StaticPool
from tests.control.asking import Asking

from nospoon.control.content.files import Files
from nospoon.control.content.seeds import Seeds
from nospoon.control.controller import Controller
from nospoon.control.fleet.authority import Authority
from nospoon.control.fleet.enrolment import Enrolment
from nospoon.control.fleet.fleet import Fleet
from nospoon.control.fleet.hosts import Hosts
from nospoon.control.labs.known import KnownLabs
from nospoon.control.operations.health import HealthChecks
from nospoon.control.operations.memory import Memory
from nospoon.control.operations.nodes import Nodes
from nospoon.control.operations.operations import Operations
from nospoon.control.operations.services import Services
from nospoon.control.operations.starting import Starting
from nospoon.control.operations.work import Work
from nospoon.control.planning.access import Access
from nospoon.control.planning.exports import Exports
from nospoon.control.planning.logins import Logins
from nospoon.control.planning.pending import Pending
from nospoon.control.planning.planner import Planner
from nospoon.daemon.bmc_state import StoredRuntime
from nospoon.daemon.stored_bmcs import StoredBmcs
from nospoon.engine.looks import Looks
from nospoon.lab.scheduler import Scheduler
from nospoon.model.cluster import Host
from nospoon.model.connections import Simulated
from nospoon.model.machine import MachineEvent
from nospoon.model.principal import ROOT, Administrators
from nospoon.model.resources.bmcs import Bmc
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.base import Driver
from nospoon.providers.simulated.connection import SimulatedConnection
from nospoon.runtime import clock
from nospoon.runtime.reach import ANYWHERE
from nospoon.runtime.tasks import Tasks
from nospoon.services.bmcs.service import BmcService
from nospoon.services.consoles.records import Records
from nospoon.services.consoles.service import ConsoleService
from nospoon.store.crypt import Cipher
from nospoon.store.database import Database, _decoded, _sqlite_pragmas
from nospoon.store.encoded import as_json
from nospoon.store.schema import bring_up_to_date

R = TypeVar("R")
MEMBER_NODES = 1000


class InMemory(Database):
    """SQLite's databases in memory are each of one connection: what reads waits its turn."""

    @classmethod
    def new(cls) -> InMemory:
        engine = create_engine(
            "sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False},
            json_serializer=as_json, json_deserializer=_decoded,
        )  # fmt: skip
        event.listen(engine, "connect", _sqlite_pragmas)
        with engine.begin() as connection:
            bring_up_to_date(connection)
        return cls(engine, "deployment")

    async def _called(self, run: Callable[[Connection], R], *, reads: bool) -> R:
        del reads
        return await super()._called(run, reads=False)


@dataclass(frozen=True)
class OnRecord:
    """A driver of BMCs that serves none."""

    records: StoredBmcs
    kind = Kind.BMC

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        return [Observed(key, bmc, tag) for key, bmc, tag in await self.records.all(cluster)]

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        assert isinstance(resource.shape, Bmc)
        await self.records.put(resource.key, resource.shape, tag)

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        await self.delete(observed)
        await self.create(desired, tag)

    async def delete(self, observed: Observed) -> None:
        assert isinstance(observed.shape, Bmc)
        await self.records.remove(observed.shape.uuid)


@dataclass(kw_only=True, slots=True)
class Wired(Asking):
    """What a user asks of use cases that are wired without a daemon."""

    cipher: Cipher
    files: Files
    fleet: Fleet
    records: Records
    bmcs: OnRecord


@asynccontextmanager
async def wired(directory: Path, *, member_nodes: int = MEMBER_NODES) -> AsyncIterator[Wired]:
    """`directory`: for what is uploaded, and for logs of consoles."""
    database = InMemory.new()
    async with AsyncExitStack() as end:
        end.callback(database.close)
        tasks = await end.enter_async_context(Tasks("test"))
        made = _wired(directory, database, tasks, member_nodes)
        end.callback(made.planner.workers.close)
        end.push_async_callback(made.controller.consoles.close)
        end.push_async_callback(made.controller.hosts.close)
        end.push_async_callback(made.operations.end)
        yield made


async def _started(_: UUID) -> str:
    """No machine is switched on: its BMC would do it."""
    return ""


async def _fetched(_: object) -> None:
    """Logs of consoles are here already."""


def _none(*_: object, **__: object) -> tuple[()]:
    return ()


def _wired(directory: Path, database: Database, tasks: Tasks, member_nodes: int) -> Wired:
    unused = cast("Any", None)
    cipher = Cipher(Fernet.generate_key())
    files, records = Files.at(directory / "files"), Records(directory / "consoles")
    connections = dict[str, SimulatedConnection]()

    def connect(host: Host) -> SimulatedConnection:
        assert isinstance(host.connection, Simulated)
        known = connections.get(host.name)
        connections[host.name] = SimulatedConnection(
            host.name, database.deployment, clock.unix,
            world=known.world if known is not None else None,
            simulation=host.connection.simulation, records=records.directory,
        )  # fmt: skip
        return connections[host.name]

    def observed(event: MachineEvent) -> None:
        bmcs.machine_event(event)

    hosts = Hosts(connect, tasks, observed, sockets=directory)
    bmcs = BmcService(hosts, StoredRuntime(database, cipher, tasks), tasks)
    consoles = ConsoleService(hosts.driver, records)
    authority = Authority(unused, lambda _: "", bmcs.boot_observed)
    fleet, pending = Fleet(hosts, authority, bmcs.reshape), Pending()
    on_record = OnRecord(StoredBmcs(database, cipher, fleet, pending))

    def drivers_of(host: Host) -> Mapping[Kind, Driver]:
        return {**hosts.use(host).connection.drivers, Kind.BMC: on_record}

    admins = Administrators(frozenset({ROOT, os.getuid()}))
    planner = Planner(
        database=database,
        cipher=cipher,
        files=files,
        seeds=Seeds(),
        hosts=hosts,
        looks=Looks(tasks),
        drivers_of=drivers_of,
        ports_in_use=frozenset,
        listening=frozenset,
        holder_of_port=lambda _: "",
        labs=_none,
        check_sockets=_none,
        fleet=fleet,
        boot_port=lambda: 0,
        enrolment=Enrolment(cipher, unused, unused, database, unused),
        logins=Logins(cipher),
        access=Access(admins),
        pool_root="/pools",
        default_uri="qemu:///system",
        member_nodes=member_nodes,
    )
    labs = KnownLabs(Scheduler(), lambda: None)
    memory = Memory(
        database=database,
        cipher=cipher,
        files=files,
        planner=planner,
        fleet=fleet,
        consoles=consoles,
        publish=unused,
        give=unused,
        labs=labs,
        clock=clock.unix,
    )
    operations = Operations(database, tasks, clock.unix, after=lambda: None)
    health = HealthChecks(hosts, ANYWHERE)
    work = Work(
        database=database,
        memory=memory,
        planner=planner,
        hosts=hosts,
        fleet=fleet,
        records=records,
        fetch_records=_fetched,
        pending=pending,
        starting=Starting(_started, health, consoles, planner.workers),
        clock=clock.unix,
    )
    nodes = Nodes(database, cipher, hosts, fleet, bmcs, consoles, unused)
    controller = Controller(
        database=database,
        files=files,
        library=unused,
        hosts=hosts,
        fleet=fleet,
        nodes=nodes,
        planner=planner,
        work=work,
        verifier=unused,
        operations=operations,
        survey=unused,
        orphans=unused,
        recovery=unused,
        snapshots=unused,
        services=Services(
            database=database, planner=planner, fleet=fleet, nodes=nodes, checks=health
        ),
        exports=Exports(database=database, cipher=cipher, planner=planner, fleet=fleet, bmcs=bmcs),
        labs=cast("Any", SimpleNamespace(board=SimpleNamespace(labs=labs))),
        consoles=consoles,
        clock=clock.unix,
        stop=unused,
        log_file=unused,
        started=clock.unix(),
    )
    return Wired(
        admins=admins,
        database=database,
        planner=planner,
        memory=memory,
        operations=operations,
        controller=controller,
        connection=connections.__getitem__,
        cipher=cipher,
        files=files,
        fleet=fleet,
        records=records,
        bmcs=on_record,
    )
