"""Servers of a cloud that do nothing: what watching them costs, in API calls and in CPU time.

The cloud is one in memory, in a process of its own. Beside it stands the bare limit: one list of
what has changed in each period, by the same HTTP client, decoded and thrown away.

usage: cloud_idle.py [--count N] [--seconds N]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import requests

from nospoon.model.resources.keys import Kind
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.storage import Image
from nospoon.plan import identity
from nospoon.providers.openstack.looks import RESTLESS, SOON
from nospoon.providers.openstack.records import LONGEST_SILENCE
from nospoon.providers.openstack.roster import metadata, read
from nospoon.providers.openstack.shown import ServerShown
from nospoon.providers.openstack.watched import SELDOM
from nospoon.runtime.tasks import Tasks
from nospoon.testing.cloud_connection import AT, connected, fake_cloud
from nospoon.testing.fake_cloud import FakeCloud
from nospoon.testing.racks import Bench, any_rack, make

PAUSE = 0.5
"""Of the connection, as a daemon has it: seconds."""
PERIOD = SELDOM * PAUSE


@dataclass(slots=True)
class Remote:
    """The cloud in the other process, as far as a connection needs it."""

    settings: dict[str, Any]
    pipe: Connection

    def ask(self, command: str) -> Any:
        self.pipe.send(command)
        return self.pipe.recv()


def serve(pipe: Connection, count: int) -> None:
    """The other process."""
    asyncio.run(_serve(pipe, count))


async def _serve(pipe: Connection, count: int) -> None:
    async with fake_cloud() as cloud:
        pipe.send(cloud.settings)
        while command := await asyncio.to_thread(pipe.recv):
            if command == "multiply":
                _multiply(cloud, count)
            elif command in ("ACTIVE", "SHUTOFF"):
                for server in cloud.servers.values():
                    server |= {"status": command, "updated": cloud.now()}
            pipe.send(dict(cloud.calls))
            cloud.calls = Counter()


def _multiply(cloud: FakeCloud, count: int) -> None:
    """As many servers as the one that is there, each of a node of its own."""
    (first,) = cloud.servers.values()
    known = read(cast("ServerShown", first), lambda server: server)
    assert known is not None, "it was made by nospoon"
    for number in range(1, count):
        id_, name = str(uuid4()), f"m{number}"
        uuid = identity.node_uuid(known.tagged.tag.cluster, name)
        more = metadata(name, replace(known.shape, uuid=uuid), known.tagged.tag)
        own = {"id": id_, "name": name, "metadata": {**first["metadata"], **more}}
        cloud.servers[id_] = {**first, **own, "updated": cloud.now()}


@contextlib.contextmanager
def other_process(count: int) -> Iterator[Remote]:
    """A cloud there; it ends with the context."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, count), daemon=True)
    process.start()
    try:
        yield Remote(ours.recv(), ours)
    finally:
        ours.send("")
        process.join()


@dataclass(frozen=True, slots=True)
class Cost:
    """In a minute."""

    calls: float
    cpu: float


async def watched(connection: Any, remote: Remote, seconds: float) -> Cost:
    """What the connection's watch costs once it has begun."""

    async def watch() -> None:
        async for _ in connection.machine_driver.watch():
            pass

    tasks = Tasks("benchmark")
    watching = tasks.start(watch(), name="watch")
    await asyncio.sleep(
        RESTLESS + LONGEST_SILENCE * SOON * PAUSE
    )  # what was done here is looked after more often
    remote.ask("begin")
    began = time.process_time()
    await asyncio.sleep(seconds)
    cpu, calls = time.process_time() - began, remote.ask("end")
    watching.cancel()
    await asyncio.wait([watching])
    await tasks.close()
    return Cost(sum(calls.values()) * 60 / seconds, cpu * 60 / seconds)


def bare(remote: Remote, looks: int) -> Cost:
    """A list in each period, and nothing else."""
    url = remote.settings["auth"]["auth_url"].partition("/identity")[0]
    began = time.process_time()
    with requests.Session() as session:
        for _ in range(looks):
            answer = session.get(f"{url}/compute/v2.1/servers/detail", timeout=30)
            answer.json()
    cpu = (time.process_time() - began) / looks
    return Cost(60 / PERIOD, cpu * 60 / PERIOD)


async def nothing(_: Resource) -> None:
    """Benchmarks have no strangers."""


@contextlib.asynccontextmanager
async def with_servers(remote: Remote) -> AsyncIterator[Any]:
    """A connection to the cloud in which they are."""
    with tempfile.TemporaryDirectory() as directory:
        async with connected(remote, Path(directory), pause=PAUSE) as connection:  # type: ignore[arg-type]
            image = Image("", "ab" * 32, "raw", 1 << 20)
            bench = Bench(connection, AT, "kit", "", image, nothing, nothing, flavor="metal.512")
            await make(bench, *any_rack(bench).all)
            remote.ask("multiply")
            yield connection


async def main(count: int, seconds: float) -> None:
    with other_process(count) as remote:
        async with with_servers(remote) as connection:
            found = await connection.drivers[Kind.MACHINE].observe(None)
            print(f"{len(found)} servers, a look in {PERIOD:g} s")
            for state in ("SHUTOFF", "ACTIVE"):
                remote.ask(state)
                cost = await watched(connection, remote, seconds)
                limit = bare(remote, 3)
                print(
                    f"{state:<8} {cost.calls:7.0f} API calls a minute "
                    f"({cost.calls / limit.calls:.1f} x one list in each period), "
                    f"{cost.cpu:.2f} CPU s a minute ({cost.cpu / limit.cpu:.2f} x bare lists)",
                    flush=True,
                )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60)
    given = parser.parse_args()
    asyncio.run(main(given.count, given.seconds))
