"""The event logs of BMCs: rings of which a row is one record."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

import msgspec
from sqlalchemy import Connection, Text, bindparam, cast, delete, insert, select

from nospoon.bmc.log import CAPACITY, Record
from nospoon.store import tables
from nospoon.store.decoded import Decoder

log, nodes = tables.bmc_log, tables.nodes


@dataclass(frozen=True, slots=True)
class Appended:
    """A record to be written."""

    machine: UUID
    record: Record


@dataclass(frozen=True, slots=True)
class Erased:
    """A record to be forgotten; `number` None: all of the machine."""

    machine: UUID
    number: int | None


Change = Appended | Erased


def records(connection: Connection, machines: Collection[UUID]) -> dict[UUID, list[Record]]:
    """The logs of these machines, oldest first."""
    found = {str(machine): list[Record]() for machine in machines}
    for uuid, record in connection.execute(_RECORDS, {"wanted": list(found)}):
        found[uuid].append(_RECORD(record))
    return {machine: found[str(machine)] for machine in machines}


_RECORD = Decoder(Record)
_RECORDS = (
    select(log.c.uuid, cast(log.c.record, Text))
    .where(log.c.uuid.in_(bindparam("wanted", expanding=True)))
    .order_by(log.c.number)
)


def write(connection: Connection, changes: Sequence[Change]) -> None:
    """Carry out changes in order; those of machines that are no nodes any more are dropped."""
    asked = {str(each.machine) for each in changes}
    query = select(nodes.c.uuid).where(nodes.c.uuid.in_(asked))
    known = {uuid for (uuid,) in connection.execute(query)}
    values: list[dict[str, object]] = []
    for each in changes:
        if str(each.machine) not in known:
            continue
        match each:
            case Appended(machine=machine, record=record):
                encoded = msgspec.to_builtins(record)
                values.append({"uuid": str(machine), "number": record.number, "record": encoded})
            case Erased(machine=machine, number=number):
                _insert(connection, values)
                values = []
                _erase(connection, machine, number)
    _insert(connection, values)


def _insert(connection: Connection, values: list[dict[str, object]]) -> None:
    """And let go of what is beyond the ring."""
    if values:
        connection.execute(insert(log), values)
    newest = {row["uuid"]: row["number"] for row in values}
    for uuid, number in newest.items():
        assert isinstance(number, int)
        if number > CAPACITY:
            old = log.c.number <= number - CAPACITY
            connection.execute(delete(log).where(log.c.uuid == uuid, old))


def _erase(connection: Connection, machine: UUID, number: int | None) -> None:
    statement = delete(log).where(log.c.uuid == str(machine))
    if number is not None:
        statement = statement.where(log.c.number == number)
    connection.execute(statement)
