"""Sockets of BMCs: what is in the way of a cluster's is found by index, without any record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from uuid import UUID, uuid4

import pytest
from sqlalchemy import create_engine, event, insert, select

from nospoon.model.cluster import BmcProtocol
from nospoon.model.resources.bmcs import Bmc, Outlet
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.addresses.allocate import Allocations
from nospoon.plan.addresses.ports import Bound, Neighbour, redfish_places, sockets_of
from nospoon.store import bmc_sockets, bmcs, tables
from nospoon.store import clusters as stored
from nospoon.store.bmc_sockets import Beside
from nospoon.store.clusters import ClusterRow
from nospoon.store.database import Database
from nospoon.store.encoded import as_json
from nospoon.store.migrations.run import upgrade

OWNER, OTHER = 1000, 1001
MINE, THEIRS = uuid4(), uuid4()
NOTHING = Beside((), frozenset(), 0)


def a_bmc(address: str = "127.0.0.1", ipmi: int = 0, redfish: int = 0, **more: object) -> Bmc:
    bmc = Bmc(uuid4(), (BmcProtocol.REDFISH,), address, ipmi, redfish, "admin")
    return replace(bmc, **more)  # type: ignore[arg-type]


def in_pool(address: str, **more: object) -> Bmc:
    return a_bmc(address, 623, 8000, pool="10.9.0.0/16", **more)


async def keep(
    database: Database, *those: Bmc, cluster: UUID = THEIRS, owner: int | None = OTHER
) -> None:
    for number, bmc in enumerate(those):
        tag = OwnerTag("d", cluster, 1, "t", "theirs", owner)
        await database.call(bmcs.put, [(Key(Kind.BMC, "here", f"n{number}"), bmc, tag)])


async def beside(
    database: Database, *those: Bmc, cluster: UUID = MINE, owner: int = OWNER
) -> Beside:
    resources = [Resource(Key(Kind.BMC, "here", "n"), bmc) for bmc in those]
    return await database.read(
        bmc_sockets.beside, cluster, owner,
        wanted=sockets_of(resources), redfish=redfish_places(resources),
    )  # fmt: skip


def bounds(found: Beside) -> set[tuple[str, str, int]]:
    return {(each.bound.protocol, each.bound.address, each.bound.port) for each in found.neighbours}


@pytest.mark.parametrize(
    ("there", "wanted", "found"),
    [
        (a_bmc(ipmi=6230), a_bmc(ipmi=6230), {("UDP", "127.0.0.1", 6230)}),
        (a_bmc(ipmi=6230), a_bmc(ipmi=6231), set()),
        (a_bmc(ipmi=6230), a_bmc("127.0.0.2", 6230), set()),
        (a_bmc(ipmi=6230), a_bmc(redfish=6230), set()),
        (a_bmc("0.0.0.0", 6230), a_bmc(ipmi=6230), {("UDP", "0.0.0.0", 6230)}),
        (a_bmc("::", 6230), a_bmc(ipmi=6230), {("UDP", "::", 6230)}),
        (a_bmc(ipmi=6230), a_bmc("0.0.0.0", 6230), {("UDP", "127.0.0.1", 6230)}),
        (a_bmc("::1", 6230), a_bmc("::", 6230), {("UDP", "::1", 6230)}),
        (in_pool("10.9.0.1"), a_bmc(redfish=8000), {("TCP", "0.0.0.0", 8000)}),
        (
            a_bmc(outlet=Outlet(uuid4(), "pdu", "127.0.0.1", 1161, 1)),
            a_bmc("0.0.0.0", 1161),
            {("UDP", "127.0.0.1", 1161)},
        ),
        (
            in_pool("10.9.0.1", outlet=Outlet(uuid4(), "pdu", "10.9.0.9", 161, 1)),
            a_bmc("10.9.0.7", 161),
            {("UDP", "0.0.0.0", 161)},
        ),
    ],
)  # fmt: skip
async def test_sockets_are_found_that_may_be_in_the_way(
    database: Database, there: Bmc, wanted: Bmc, found: set[tuple[str, str, int]]
) -> None:
    await keep(database, there)
    assert bounds(await beside(database, wanted)) == found
    assert await beside(database, wanted, cluster=THEIRS, owner=OTHER) == NOTHING
    await database.call(bmcs.remove, [there.uuid])
    assert await beside(database, wanted) == NOTHING


async def test_a_socket_is_found_with_all_that_must_be_the_same(database: Database) -> None:
    await keep(database, a_bmc(redfish=8000, tls=True, certificate="c"))
    (found,) = (await beside(database, a_bmc(redfish=8000))).neighbours
    assert found == Neighbour(
        Bound("TCP", "127.0.0.1", 8000, tls=True, certificate="c"), "", is_own=False
    )


@pytest.mark.parametrize(
    ("there", "wanted", "found"),
    [
        (a_bmc(redfish=8000), a_bmc(redfish=8000), {("127.0.0.1", 8000)}),
        (a_bmc(redfish=8000), a_bmc("127.0.0.2", redfish=8000), set()),
        (a_bmc(redfish=8000), a_bmc("0.0.0.0", redfish=8000), {("127.0.0.1", 8000)}),
        (a_bmc("0.0.0.0", redfish=8000), a_bmc(redfish=8000), {("0.0.0.0", 8000)}),
        (a_bmc(redfish=8000), a_bmc(ipmi=8000), set()),
        (in_pool("10.9.0.1"), in_pool("10.9.0.1"), {("10.9.0.1", 8000)}),
        (in_pool("10.9.0.1"), in_pool("10.9.0.2"), set()),
    ],
)
async def test_where_bmcs_of_another_user_answer_redfish_is_found(
    database: Database, there: Bmc, wanted: Bmc, found: set[tuple[str, int]]
) -> None:
    """Those of a pool answer at their own addresses, though their socket is one."""
    await keep(database, there)
    assert (await beside(database, wanted)).foreign == found
    assert (await beside(database, wanted, owner=OTHER)).foreign == set()


async def test_what_another_cluster_of_the_user_has_is_counted_and_named(
    database: Database,
) -> None:
    row = ClusterRow(THEIRS, "other", OWNER, 1, "f", "text", {}, Allocations(), 1.0)
    await database.call(stored.save, row)
    await keep(database, a_bmc(ipmi=1, redfish=8000), a_bmc(ipmi=2, redfish=8000), owner=OWNER)
    await keep(database, a_bmc(ipmi=3), cluster=MINE, owner=OWNER)
    await keep(database, a_bmc(ipmi=4), cluster=uuid4())
    found = await beside(database, a_bmc(redfish=8000))
    assert found.elsewhere == 3
    assert found.neighbours == (Neighbour(Bound("TCP", "127.0.0.1", 8000), "other", is_own=True),)
    await database.call(stored.remove, THEIRS)
    (left,) = (await beside(database, a_bmc(redfish=8000))).neighbours
    assert (left.whose, left.is_own) == ("another cluster", True)


async def test_what_is_no_users_is_roots(database: Database) -> None:
    await keep(database, a_bmc(redfish=8000), owner=None)
    assert (await beside(database, a_bmc(redfish=8000), owner=0)).elsewhere == 1
    assert (await beside(database, a_bmc(redfish=8000))).foreign == {("127.0.0.1", 8000)}


async def test_a_bmc_that_changes_has_its_new_sockets_alone(database: Database) -> None:
    bmc = a_bmc(ipmi=6230, redfish=8000)
    await keep(database, bmc)
    await keep(database, replace(bmc, ipmi_port=6231, redfish_port=0))
    both = (a_bmc(ipmi=6230, redfish=8000), a_bmc(ipmi=6231))
    assert bounds(await beside(database, *both)) == {("UDP", "127.0.0.1", 6231)}


@pytest.fixture
def asked(database: Database) -> Iterator[list[tuple[str, object]]]:
    """Statements, and what they are given."""
    seen = list[tuple[str, object]]()

    def note(_: object, __: object, statement: str, given: object, *___: object) -> None:
        seen.append((statement, given))

    event.listen(database._engine, "before_cursor_execute", note)
    yield seen
    event.remove(database._engine, "before_cursor_execute", note)


async def test_ten_thousand_are_looked_up_a_few_hundred_at_a_time_by_index(
    database: Database, asked: list[tuple[str, object]]
) -> None:
    await keep(database, a_bmc("10.1.0.1", redfish=9))
    many = [a_bmc(ipmi=1 + number, redfish=8000) for number in range(10_000)]
    await beside(database, *many, in_pool("10.9.0.1"))
    looks = [each for each in asked if "FROM bmc_sockets" in each[0]]
    assert len(looks) < 60
    if database._engine.dialect.name != "sqlite":
        return
    with database._engine.connect() as connection:
        for statement, given in looks:
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", given)  # type: ignore[arg-type]
            (read,) = (row.detail for row in plan if "bmc_sockets" in row.detail)
            assert "SEARCH bmc_sockets USING COVERING INDEX" in read


async def test_where_no_one_else_has_a_bmc_their_places_are_not_looked_up(
    database: Database, asked: list[tuple[str, object]]
) -> None:
    """Of each of ten thousand nodes, at each look at them."""
    many = [a_bmc(redfish=8000 + number) for number in range(20)]
    await keep(database, *many, cluster=MINE, owner=OWNER)
    del asked[:]
    assert (await beside(database, *many)).foreign == set()
    assert sum("bmc_sockets.address" in each[0] for each in asked) == 0


def test_a_store_of_an_earlier_version_gets_its_rows(url: str) -> None:
    engine = create_engine(url, json_serializer=as_json)
    place = {"address": "10.9.0.1", "ipmi_port": 623, "redfish_port": 0, "pool": ""}
    spoken = {"redfish_port": 8000, "tls": True, "certificate": "c"}
    outlet, pooled = {"address": "10.9.0.2", "port": 161}, place | {"pool": "10.9.0.0/16"}
    kept = {
        1: ({"bmc": place | {"outlet": outlet}, "tag": {"uid": OTHER}}, THEIRS),
        2: ({"bmc": place | spoken | {"ipmi_port": 0}, "tag": {}}, MINE),
        3: ({"bmc": pooled | {"outlet": outlet}, "tag": {"uid": None}}, THEIRS),
    }
    with engine.begin() as connection:
        upgrade(connection, "0020")
        row = ClusterRow(MINE, "mine", OWNER, 1, "f", "text", {}, Allocations(), 1.0)
        columns = ("name", "owner", "generation", "file", "text", "uploads", "created")
        values = {each: getattr(row, each) for each in columns}
        values |= {"id": str(MINE), "allocations": {}}
        connection.execute(insert(tables.clusters).values(values))
        for number, (record, cluster) in kept.items():
            values = {"uuid": str(UUID(int=number)), "cluster_id": str(cluster), "record": record}
            connection.execute(insert(tables.bmcs).values(values | {"host": "h", "name": "n"}))
        upgrade(connection)
        rows = tables.bmc_sockets
        columns_of_it = [each for each in rows.c if each.name != "uuid"]
        found = connection.execute(select(rows.c.uuid, *columns_of_it)).all()
        assert {(UUID(uuid).int, *rest) for uuid, *rest in found} == {
            (1, "UDP", 623, "10.9.0.1", "10.9.0.1", False, "", str(THEIRS), OTHER),
            (1, "UDP", 161, "10.9.0.2", "10.9.0.1", False, "", str(THEIRS), OTHER),
            (2, "TCP", 8000, "10.9.0.1", "10.9.0.1", True, "c", str(MINE), OWNER),
            (3, "UDP", 623, "0.0.0.0", "10.9.0.1", False, "", str(THEIRS), 0),
            (3, "UDP", 161, "0.0.0.0", "10.9.0.1", False, "", str(THEIRS), 0),
        }
    engine.dispose()
    Database.open(url).close()
