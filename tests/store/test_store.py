"""The store: migrations, clusters and nodes, accounts at rest, operations, journal."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Text, cast, create_engine, func, inspect, select, text
from sqlalchemy.exc import IntegrityError

from nospoon.bmc.runtime import Runtime
from nospoon.control.planning.saved import save
from nospoon.errors import Conflict, HostUnreachable, MissingTool, Stale, UsageError
from nospoon.model.boot import BootDevice, BootMethod, BootOverride, OverrideEnabled
from nospoon.model.cluster import Arch, Firmware, Host
from nospoon.model.connections import Simulated, Simulation
from nospoon.model.resources.bmcs import Bmc
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.tags import MOST_GENERATION, MOST_UID, OwnerTag
from nospoon.plan.addresses.allocate import Allocations, Endpoint
from nospoon.runtime.tasks import Tasks
from nospoon.store import bmcs, clusters, operations, tables
from nospoon.store import nodes as node_rows
from nospoon.store.clusters import ClusterRow
from nospoon.store.crypt import Cipher
from nospoon.store.database import AT_ONCE, BATCH, Database
from nospoon.store.encoded import Encoded
from nospoon.store.migrations.run import config, upgrade
from nospoon.store.nodes import NodeRow
from nospoon.store.operations import Conclusion, Intent, OperationRow, OperationState
from nospoon.store.schema import bring_up_to_date
from nospoon.store.tables import nodes

CLUSTER = ClusterRow(
    id=uuid4(),
    name="dev",
    owner=1000,
    generation=1,
    file="c.yaml",
    text="cluster: dev",
    uploads={"a.qcow2": "ab" * 32},
    allocations=Allocations(
        cidrs={"provision": "172.30.0.0/24"},
        hosts={"n0": "here"},
        endpoints={"n0": Endpoint("127.0.0.1", 6230, 8000)},
    ),
    created=1.5,
)


def node_row(uuid: UUID, name: str = "n0") -> NodeRow:
    machine = Machine(
        uuid=uuid,
        cpus=1,
        memory=1 << 30,
        arch=Arch.X86_64,
        firmware=Firmware.UEFI,
        tpm=False,
        disks=(),
        nics=(),
        boot_order=(BootDevice.DISK,),
        boot=BootMethod.NATIVE,
    )
    return NodeRow(
        cluster_id=CLUSTER.id,
        name=name,
        host=Host("here"),
        machine=machine,
        profile="",
        username="admin",
        password=b"secret",
    )


async def test_a_cluster_is_kept_as_it_was(database: Database) -> None:
    await database.call(clusters.save, CLUSTER)
    assert await database.call(clusters.find, owner=1000, name="dev") == CLUSTER
    await database.call(clusters.save, replace(CLUSTER, generation=2))
    found = await database.call(clusters.get, CLUSTER.id)
    assert found is not None
    assert found.generation == 2


async def test_clusters_belong_to_their_user(database: Database) -> None:
    await database.call(clusters.save, CLUSTER)
    theirs = replace(CLUSTER, id=uuid4(), owner=1001, allocations=Allocations())
    await database.call(clusters.save, theirs)
    assert await database.call(clusters.find, owner=1002, name="dev") is None
    assert len(await database.call(clusters.outlines, owner=1001)) == 1
    with pytest.raises(IntegrityError):
        await database.call(clusters.save, replace(CLUSTER, id=uuid4()))


@pytest.mark.parametrize("other", [{"owner": 1001}, {"name": "prod"}])
async def test_an_id_stays_with_its_cluster(database: Database, other: dict[str, Any]) -> None:
    await database.call(clusters.save, CLUSTER)
    with pytest.raises(IntegrityError):
        await database.call(clusters.save, replace(CLUSTER, **other))
    assert await database.call(clusters.get, CLUSTER.id) == CLUSTER


async def test_a_machine_that_another_cluster_took_meanwhile_makes_a_plan_stale(
    database: Database,
) -> None:
    """Two users adopt one at the same moment."""
    mine = replace(CLUSTER, id=uuid4(), owner=1001, allocations=Allocations())
    taken = node_row(uuid4())
    await database.call(save, CLUSTER, [taken], [], limited=False)
    with pytest.raises(Stale, match="another cluster took the same machine"):
        await database.call(save, mine, [replace(taken, cluster_id=mine.id)], [], limited=False)
    assert await database.read(clusters.get, mine.id) is None
    (kept,) = await database.read(node_rows.all_nodes)
    assert kept.cluster_id == CLUSTER.id


async def test_a_second_up_keeps_runtime_state_and_renews_the_rest(database: Database) -> None:
    await database.call(clusters.save, CLUSTER)
    row = node_row(uuid4())
    await database.call(node_rows.put_nodes, [row])
    runtime = Runtime(override=BootOverride(BootDevice.NETWORK, OverrideEnabled.ONCE))
    await database.call(node_rows.save_runtimes, [(row.uuid, runtime)])
    await database.call(node_rows.put_nodes, [replace(row, username="root")])
    (found,) = await database.call(node_rows.nodes_of, CLUSTER.id)
    assert (found.username, found.runtime) == ("root", runtime)


async def test_secrets_of_the_file_are_kept_and_taken_away_again(database: Database) -> None:
    await database.call(clusters.save, CLUSTER)
    row = node_row(uuid4())
    told = []
    for secret in (b"sealed", b""):
        changed = replace(row, k_g=secret, pdu_secret=secret)
        await database.call(node_rows.put_nodes, [changed])
        (found,) = await database.call(node_rows.nodes_of, CLUSTER.id)
        told.append((found.k_g, found.pdu_secret))
    assert told == [(b"sealed", b"sealed"), (b"", b"")]


async def test_a_cluster_takes_its_nodes_along(database: Database) -> None:
    await database.call(clusters.save, CLUSTER)
    await database.call(node_rows.put_nodes, [node_row(uuid4())])
    await database.call(clusters.remove, CLUSTER.id)
    assert await database.call(node_rows.all_nodes) == []


async def test_bmc_records_come_back(database: Database) -> None:
    bmc = Bmc(uuid4(), (), "127.0.0.1", 6230, 8000, "admin", "key")
    key, tag = Key(Kind.BMC, "here", "n0"), OwnerTag("d", CLUSTER.id, 3, "t")
    await database.call(bmcs.put, [(key, bmc, tag)])
    await database.call(bmcs.put, [(key, bmc, tag)])
    assert await database.call(bmcs.records, CLUSTER.id) == [(key, bmc, tag)]
    await database.call(bmcs.remove, [bmc.uuid])
    assert await database.call(bmcs.records) == []


async def test_what_one_cluster_has_is_read_without_that_of_others(database: Database) -> None:
    await database.call(clusters.save, CLUSTER)
    row, bare = node_row(uuid4()), node_row(uuid4(), "n1")
    await database.call(node_rows.put_nodes, [row, bare])
    bmc = Bmc(row.uuid, (), "127.0.0.1", 6230, 8000, "admin", disk_sizes=(1 << 40, 7))
    key, tag = Key(Kind.BMC, "here", "n0"), OwnerTag("d", CLUSTER.id, 3, "t")
    await database.call(bmcs.put, [(key, bmc, tag)])
    assert [each.id for each in await database.read(clusters.holdings)] == [CLUSTER.id]
    assert await database.read(clusters.count) == (1, 2)
    assert set(await database.read(node_rows.accounts, owner=1000)) == {row.uuid, bare.uuid}
    assert await database.read(node_rows.accounts, owner=1000, cluster="prod") == {}
    assert await database.read(clusters.listed, owner=1000) == [(CLUSTER.id, "dev", "c.yaml")]


def operation() -> OperationRow:
    return OperationRow(uuid4(), "up", CLUSTER.id, "dev", 1000, OperationState.RUNNING, 1.0)


async def test_what_ran_when_the_daemon_ended_is_interrupted(database: Database) -> None:
    row = operation()
    await database.call(operations.begin, row)
    key = Key(Kind.VOLUME, "here", "n0-0")
    await database.call(operations.intend, [Intent(row.id, CLUSTER.id, key, "make", "t", 2.0)])
    assert [each.id for each in await database.call(operations.interrupt_running, now=3.0)] == [
        row.id
    ]
    found = await database.call(operations.get, row.id)
    assert found is not None
    assert found.state is OperationState.INTERRUPTED
    assert await database.call(operations.open_intents) == [(CLUSTER.id, key)]
    await database.call(operations.close_intents, CLUSTER.id)
    assert await database.call(operations.open_intents) == []


async def test_machines_of_an_up_that_did_not_end_well_are_known_until_one_does(
    database: Database,
) -> None:
    async def begun(name: str, created: float, state: OperationState, kind: str = "up") -> set[str]:
        row = replace(operation(), kind=kind, created=created)
        await database.call(operations.begin, row)
        for key in (Key(Kind.MACHINE, "here", name), Key(Kind.VOLUME, "here", f"{name}-0")):
            intent = Intent(row.id, CLUSTER.id, key, "make", "t", created)
            (entry,) = await database.call(operations.intend, [intent])
            await database.call(operations.conclude, [Conclusion(entry, "", created)])
        if state is not OperationState.RUNNING:
            await database.call(operations.finish, row.id, state=state, message="", now=created)
        return await database.read(operations.begun_machines, CLUSTER.id)

    assert await begun("a", 1.0, OperationState.FAILED) == {"a"}
    assert await begun("b", 2.0, OperationState.DONE) == set()
    assert await begun("c", 3.0, OperationState.PARTLY) == {"c"}
    assert await begun("d", 4.0, OperationState.INTERRUPTED) == {"c", "d"}
    assert await begun("e", 5.0, OperationState.PARTLY, kind="down") == {"c", "d"}
    assert await begun("f", 6.0, OperationState.RUNNING) == {"c", "d"}
    assert await database.read(operations.begun_machines, uuid4()) == set()
    assert await begun("g", 7.0, OperationState.DONE) == set()


async def test_a_result_comes_encoded(database: Database) -> None:
    row, names = operation(), ["n-0", "é", "\udcff"]
    await database.call(operations.begin, row)
    await database.call(
        operations.finish, row.id, state=OperationState.DONE, message="",
        result=Encoded(json.dumps({"nodes": names})), now=1.0,
    )  # fmt: skip
    kept = await database.read(operations.get, row.id)
    assert kept is not None
    assert kept.result == {"nodes": names}
    assert json.loads(await database.read(operations.result_text, row.id)) == {"nodes": names}


@pytest.mark.parametrize("words", ["\0", "\ud800"])
async def test_an_operation_ends_whatever_its_message_has_from_others(
    database: Database, words: str
) -> None:
    """PostgreSQL takes no U+0000, and no encoding takes half of a surrogate pair."""
    row = operation()
    await database.call(operations.begin, row)
    intent = Intent(row.id, CLUSTER.id, Key(Kind.MACHINE, "here", "n0"), "make", "t", 2.0)
    (entry,) = await database.call(operations.intend, [intent])
    await database.call(operations.conclude, [Conclusion(entry, f"Nova said {words}", 2.0)])
    await database.call(
        operations.finish,
        row.id,
        state=OperationState.FAILED,
        message=f"Nova said {words}",
        now=3.0,
    )
    kept = await database.read(operations.get, row.id)
    assert kept is not None
    assert kept.state is OperationState.FAILED
    assert kept.message == f"Nova said \\u{ord(words):04x}"


async def test_old_operations_are_forgotten(database: Database) -> None:
    rows = [
        replace(operation(), created=float(number))
        for number in range(operations.KEPT_OPERATIONS + 5)
    ]

    def fill(connection: Connection) -> None:
        for row in rows:
            operations.begin(connection, row)
            operations.finish(connection, row.id, state=OperationState.DONE, message="", now=1.0)

    await database.call(fill)
    while await database.call(operations.forget_some, rows[0].owner):
        pass
    kept = {row.id for row in await database.call(operations.all_operations)}
    assert kept == {row.id for row in rows[5:]}


def test_the_deployment_is_the_same_after_a_restart(url: str) -> None:
    first = Database.open(url)
    first.close()
    second = Database.open(url)
    second.close()
    assert first.deployment == second.deployment


def described(connection: Connection) -> dict[str, object]:
    """All that the database itself says of its tables."""
    found = inspect(connection)
    return {
        name: (
            [(c["name"], str(c["type"]), c["nullable"]) for c in found.get_columns(name)],
            found.get_pk_constraint(name)["constrained_columns"],
            sorted(map(str, found.get_foreign_keys(name))),
            sorted(map(_index, found.get_indexes(name))),
            sorted(map(str, found.get_unique_constraints(name))),
        )
        for name in tables.metadata.tables
    }


def _index(found: Any) -> str:
    """With the text of what it is of, which is an object."""
    options = {name: str(each) for name, each in found.get("dialect_options", {}).items()}
    return str({**found, "dialect_options": options})


def test_a_new_database_has_what_all_migrations_make(url: str) -> None:
    engine = create_engine(url)
    with engine.connect() as connection:
        upgrade(connection)
        migrated = described(connection)
        head = ScriptDirectory.from_config(config(connection)).get_current_head()
        connection.commit()
    with engine.begin() as connection:
        for each in reversed(tables.metadata.sorted_tables):
            each.drop(connection)
        connection.execute(text("DROP TABLE alembic_version"))
    with engine.begin() as connection:
        bring_up_to_date(connection)
        assert described(connection) == migrated
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar() == head
    engine.dispose()


def test_a_database_of_an_older_version_is_upgraded(url: str) -> None:
    engine = create_engine(url)
    with engine.connect() as connection:
        upgrade(connection, "0013")
        connection.commit()
    engine.dispose()
    Database.open(url).close()
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM images")).scalar() == 0
    engine.dispose()


async def test_the_largest_user_ids_and_generations_are_kept(url: str) -> None:
    """Tags may have them, of which `recover` makes rows; an older store is made to hold them."""
    engine = create_engine(url)
    with engine.connect() as connection:
        upgrade(connection, "0017")
        connection.commit()
    engine.dispose()
    database = Database.open(url)
    largest = replace(CLUSTER, owner=MOST_UID - 1, generation=MOST_GENERATION)
    await database.call(clusters.save, largest)
    assert await database.call(clusters.get, CLUSTER.id) == largest
    await database.call(operations.begin, replace(operation(), owner=largest.owner))
    (row,) = await database.call(operations.all_operations)
    assert row.owner == largest.owner
    database.close()


def test_a_new_database_is_whole_or_not_there(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = create_engine(url)
    monkeypatch.setattr("nospoon.store.schema.HEAD", None)  # the last step breaks a rule
    with pytest.raises(IntegrityError), engine.begin() as connection:
        bring_up_to_date(connection)
    with engine.connect() as connection:
        assert inspect(connection).get_table_names() == []
    engine.dispose()


def test_a_start_does_without_alembic(tmp_path: Path) -> None:
    code = f"""
import sys
from nospoon.store.database import Database
for _ in range(2):
    Database.open("sqlite:///{tmp_path}/store.db").close()
sys.exit("alembic" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_passwords_are_encrypted_with_a_key_that_only_its_owner_reads(tmp_path: Path) -> None:
    path = tmp_path / "key"
    cipher = Cipher.from_file(path)
    sealed = cipher.encrypt("s3cret")
    assert b"s3cret" not in sealed
    assert Cipher.from_file(path).decrypt(sealed) == "s3cret"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert cipher.digest("a") == cipher.digest("a") != cipher.digest("b")


def test_the_database_is_in_wal_mode(tmp_path: Path) -> None:
    Database.open(f"sqlite:///{tmp_path}/store.db").close()
    with sqlite3.connect(tmp_path / "store.db") as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_a_database_that_does_not_answer_is_told_without_its_password(tmp_path: Path) -> None:
    url = f"postgresql+psycopg://me:s3cret@/db?host={tmp_path}"
    with pytest.raises(HostUnreachable, match="cannot open the database") as caught:
        Database.open(url)
    assert "s3cret" not in str(caught.value)
    with pytest.raises(UsageError, match="not a URL of a database"):
        Database.open("store.db")
    with pytest.raises(MissingTool, match="asyncmy"):
        Database.open("mysql+asyncmy://me:s3cret@h/db")


async def test_a_long_read_holds_up_no_change_and_sees_one_moment(database: Database) -> None:
    begun, gate = Event(), Event()

    def look(connection: Connection) -> list[int]:
        counts = [clusters.count(connection)[0]]
        begun.set()
        gate.wait()
        return [*counts, clusters.count(connection)[0]]

    async with Tasks("test") as tasks:
        long = tasks.start(database.read(look), name="read")
        await asyncio.to_thread(begun.wait)
        try:
            await database.call(clusters.save, CLUSTER)
            assert not long.done()
        finally:
            gate.set()
        assert await long == [0, 0]
    assert (await database.read(clusters.count))[0] == 1


async def test_many_whose_work_was_done_at_once_go_on_a_few_at_a_time(database: Database) -> None:
    begun, gate = Event(), Event()
    ended: list[int] = []

    def hold(_: object) -> None:
        begun.set()
        gate.wait()

    async def one(number: int) -> None:
        await database.call(lambda _: number)
        ended.append(number)

    async with Tasks("test") as tasks:
        held = tasks.start(database.call(hold), name="held")
        await asyncio.to_thread(begun.wait)
        waiting = [tasks.start(one(number), name="one") for number in range(BATCH)]
        await asyncio.sleep(0)
        gate.set()
        steps = [0]
        while len(ended) < BATCH:
            await asyncio.sleep(0)
            steps.append(len(ended))
        await asyncio.gather(held, *waiting)
    assert max(later - sooner for sooner, later in pairwise(steps)) <= AT_ONCE
    assert ended == list(range(BATCH))


async def test_values_that_wait_together_are_one_call_and_one_that_fails_fails_alone(
    database: Database,
) -> None:
    begun, gate, seen = Event(), Event(), list[list[int]]()

    def hold(_: object) -> None:
        begun.set()
        gate.wait()

    def halved(_: Connection, values: Sequence[int]) -> list[int]:
        seen.append(list(values))
        if any(value % 2 for value in values):
            raise Conflict("odd")
        return [value // 2 for value in values]

    async with Tasks("test") as tasks:
        for values in ((2, 4, 6), (2, 3, 6)):
            held = tasks.start(database.call(hold), name="held")
            await asyncio.to_thread(begun.wait)
            asked = [database.call_each(halved, value) for value in values]
            asked.insert(1, database.call(lambda _: 7))  # between them, and it hinders them not
            waiting = [tasks.start(each, name="value") for each in asked]
            await asyncio.sleep(0)
            gate.set()
            found = await asyncio.gather(held, *waiting, return_exceptions=True)
            begun.clear()
            gate.clear()
            odd = [number for number, each in enumerate(found) if isinstance(each, Conflict)]
            assert (found[1:], odd) == ([1, 7, 2, 3], []) or odd == [3]
    assert seen == [[2, 4, 6], [2, 3, 6], [2], [3], [6]]


async def test_batches_that_end_while_the_loop_is_busy_go_on_a_few_at_a_time(
    database: Database,
) -> None:
    """The thread is quicker than what callers do with its outcomes."""
    last, ended, count = Event(), list[int](), 10 * BATCH

    async def one(number: int) -> None:
        await database.call(lambda _: last.set() if number == count - 1 else None)
        ended.append(number)

    async with Tasks("test") as tasks:
        waiting = [tasks.start(one(number), name="one") for number in range(count)]
        await asyncio.sleep(0)
        last.wait()  # in the loop's thread, which is busy
        steps = [0]
        while len(ended) < count:
            await asyncio.sleep(0)
            steps.append(len(ended))
        await asyncio.gather(*waiting)
    assert max(later - sooner for sooner, later in pairwise(steps)) <= AT_ONCE
    assert ended == list(range(count))


def test_a_database_of_a_newer_version_is_refused_as_such(url: str) -> None:
    Database.open(url).close()
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = 'from-the-future'"))
    engine.dispose()
    with pytest.raises(UsageError, match="written by a newer version of nospoon"):
        Database.open(url)


def test_stored_restore_policies_are_named_as_in_the_file_and_what_all_had_is_forgotten() -> None:
    migration = import_module("nospoon.store.migrations.versions.0011_restore")
    off, usual = ({"settings": {"policy": name, "kg": ""}} for name in ("always-off", "always-on"))
    assert migration.with_policy_of_file(off) == {"settings": {"policy": "off", "kg": ""}}
    assert migration.with_policy_of_file(usual) == {"settings": {"kg": ""}}
    assert migration.with_policy_of_file({}) == {}
    assert migration.with_policy_of_bmc(migration.with_policy_of_file(off)) == off
    assert msgspec.convert(migration.with_policy_of_file(usual), Runtime) == Runtime()


async def test_names_of_machines_on_a_simulated_host_are_kept_once_for_all_nodes(
    database: Database,
) -> None:
    names = tuple(f"lab-{number}" for number in range(1000))
    host = Host("sim", connection=Simulated(Simulation(boot=2.0, machines=names)))
    rows = [replace(node_row(uuid4(), f"n{number}"), host=host) for number in range(3)]
    await database.call(clusters.save, CLUSTER)
    await database.call(clusters.put_hosts, CLUSTER.id, [host])
    await database.call(node_rows.put_nodes, rows)
    await database.call(node_rows.settle, rows[0].uuid, host)
    assert await database.read(node_rows.nodes_of, CLUSTER.id) == rows
    assert sorted(await database.read(node_rows.all_nodes), key=lambda each: each.name) == rows
    lengths = select(func.max(func.length(cast(nodes.c.host, Text))))
    assert await database.read(lambda connection: connection.execute(lengths).scalar_one()) < 1000
