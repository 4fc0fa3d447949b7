"""What BMCs keep: logs as rings of rows, and passwords of further users encrypted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from nospoon.bmc import octets
from nospoon.bmc.events import EventSettings, Filter, Subscription
from nospoon.bmc.log import CAPACITY, Kind, Log, Record
from nospoon.bmc.runtime import DEFAULTS, Runtime, Settings
from nospoon.bmc.users import User
from nospoon.daemon import bmc_state
from nospoon.daemon.bmc_state import StoredRuntime, opened
from nospoon.errors import ProviderError
from nospoon.model.boot import BootDevice, BootMethod
from nospoon.model.cluster import Arch, Firmware, Host
from nospoon.model.resources.machines import Machine
from nospoon.model.volumes import AddedVolume
from nospoon.plan.addresses.allocate import Allocations
from nospoon.runtime.tasks import Tasks
from nospoon.store import bmc_log, clusters, event_services
from nospoon.store import nodes as node_rows
from nospoon.store.clusters import ClusterRow
from nospoon.store.crypt import Cipher
from nospoon.store.database import Database
from nospoon.store.nodes import NodeRow

CLUSTER = ClusterRow(uuid4(), "dev", 1, 1, "c.yaml", "cluster: dev", {}, Allocations(), 0.0)
MACHINE = Machine(
    uuid=uuid4(),
    cpus=1,
    memory=1 << 30,
    arch=Arch.X86_64,
    firmware=Firmware.BIOS,
    tpm=False,
    disks=(),
    nics=(),
    boot_order=(BootDevice.DISK,),
    boot=BootMethod.NATIVE,
)


async def kept_log(database: Database, machine: UUID) -> Sequence[Record]:
    return (await database.call(bmc_log.records, [machine]))[machine]


async def test_a_log_survives_and_stays_a_ring(database: Database, tmp_path: Path) -> None:
    await database.call(clusters.save, CLUSTER)
    row = NodeRow(CLUSTER.id, "n0", Host("here"), MACHINE, "", "admin", b"secret")
    await database.call(node_rows.put_nodes, [row])
    log, stranger = Log(), uuid4()
    async with Tasks("test") as tasks:
        store = StoredRuntime(database, Cipher.from_file(tmp_path / "key"), tasks)
        for number in range(CAPACITY + 9):
            record = log.add(Kind.POWER_ON, 1.5 + number, text="why", raw=bytes(16))
            store.append(row.uuid, record)
            store.append(stranger, record)
        await store.flush()
        assert await kept_log(database, row.uuid) == list(log.records)
        store.erase(row.uuid, log.records[0].number)
        await store.flush()
        assert await kept_log(database, row.uuid) == list(log.records[1:])
        store.erase(row.uuid, None)
        store.append(row.uuid, log.records[-1])
        await store.flush()
        assert await kept_log(database, row.uuid) == [log.records[-1]]
    await database.call(clusters.remove, CLUSTER.id)
    assert await kept_log(database, row.uuid) == []


class Silent:
    """A store that does not answer, until it does."""

    def __init__(self, database: Database) -> None:
        self.database, self.answers = database, False

    async def call(self, *given: Any) -> Any:
        if not self.answers:
            raise ProviderError("the database does not work")
        return await self.database.call(*given)


async def test_a_log_survives_a_store_that_does_not_answer_for_a_while(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was to be written at that moment was lost, erasures too."""
    monkeypatch.setattr(bmc_state, "AGAIN", 0.0)
    await database.call(clusters.save, CLUSTER)
    row = NodeRow(CLUSTER.id, "n0", Host("here"), MACHINE, "", "admin", b"secret")
    await database.call(node_rows.put_nodes, [row])
    log, silent = Log(), Silent(database)
    async with Tasks("test") as tasks:
        cipher = Cipher.from_file(tmp_path / "key")
        store = StoredRuntime(cast("Database", silent), cipher, tasks)
        store.append(row.uuid, log.add(Kind.POWER_ON, 1.5, text="why", raw=bytes(16)))
        await store.flush()  # it does not wait for the store
        store.append(row.uuid, log.add(Kind.POWER_ON, 2.5, text="why", raw=bytes(16)))
        silent.answers = True
        async with asyncio.timeout(20):
            while await kept_log(database, row.uuid) != list(log.records):
                await store.flush()


async def test_passwords_of_further_users_are_encrypted_at_rest(tmp_path: Path) -> None:
    database = Database.open(f"sqlite:///{tmp_path}/store.db")
    cipher = Cipher.from_file(tmp_path / "key")
    await database.call(clusters.save, CLUSTER)
    row = NodeRow(CLUSTER.id, "n0", Host("here"), MACHINE, "", "admin", b"secret")
    await database.call(node_rows.put_nodes, [row])
    users = (User(3, "bob", "hush-hush", 3, enabled=True), User(4, "eve"))
    runtime = replace(Runtime(), settings=Settings(users=users, asset_tag="T-1"))
    async with Tasks("test") as tasks:
        await StoredRuntime(database, cipher, tasks).save(row.uuid, runtime)
    found = await database.call(node_rows.node, row.uuid)
    assert found is not None
    assert "hush-hush" not in str(found.runtime.settings.users[0].password)
    assert opened(found.runtime, cipher) == runtime
    database.close()
    assert b"hush-hush" not in (tmp_path / "store.db").read_bytes()


async def test_event_services_survive_with_their_headers_encrypted(
    database: Database, tmp_path: Path
) -> None:
    made = Subscription("1", "http://h/", headers=(("X-Token", "s3cret"),), filter=Filter(("A",)))
    settings = EventSettings("127.0.0.1 80", "ab", interval=5, subscriptions=(made,))
    async with Tasks("test") as tasks:
        store = StoredRuntime(database, Cipher.from_file(tmp_path / "key"), tasks)
        await store.save_events(settings)
        await store.save_events(EventSettings("127.0.0.1 80", "cd", interval=5))
        assert settings in await store.events()
        (kept, _) = await database.call(event_services.everything)
        assert "s3cret" not in repr(kept.subscriptions[0].headers)
        await store.save_events(EventSettings("127.0.0.1 80", "cd"))
        assert await store.events() == [settings]


async def test_names_of_any_bytes_survive_and_those_of_earlier_versions_are_read(
    database: Database,
) -> None:
    await database.call(clusters.save, CLUSTER)
    row = NodeRow(CLUSTER.id, "n0", Host("here"), MACHINE, "", "admin", b"s")
    await database.call(node_rows.put_nodes, [row])
    for tag in (b"\xff" * 63, b"abc\xc3", "Löffel 7".encode()):
        settings = Settings(asset_tag=octets.kept(tag), controller_id=octets.kept(tag[::-1]))
        await database.call(node_rows.save_runtimes, [(row.uuid, Runtime(settings=settings))])
        found = await database.call(node_rows.node, row.uuid)
        assert found is not None
        assert found.runtime.settings == settings
        assert octets.octets(found.runtime.settings.asset_tag) == tag
    assert octets.kept("Löffel 7".encode()) == "Löffel 7", "as it was always stored"


async def test_volumes_survive_and_what_nobody_set_is_shared(database: Database) -> None:
    await database.call(clusters.save, CLUSTER)
    rows = [
        NodeRow(CLUSTER.id, name, Host("here"), replace(MACHINE, uuid=uuid4()), "", "admin", b"s")
        for name in ("n0", "n1")
    ]
    await database.call(node_rows.put_nodes, rows)
    volumes = (AddedVolume("0badcafe", 1 << 30, "data", "RAID1", (0, 1)),)
    runtime = Runtime(volumes=volumes)
    await database.call(node_rows.save_runtimes, [(rows[0].uuid, runtime)])
    found = [await database.call(node_rows.node, row.uuid) for row in rows]
    first, second = (row.runtime for row in found if row is not None)
    assert first == runtime
    assert second == Runtime()
    assert first.settings is second.settings is DEFAULTS
    assert first.bios is second.bios
