"""Operations, their events, and the journal of driver calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from uuid import UUID

from sqlalchemy import Connection, Row, Text, bindparam, cast, delete, func, insert, select, update

from nospoon.errors import writable
from nospoon.model.principal import OwnerId
from nospoon.model.resources.keys import Key, Kind
from nospoon.store import tables
from nospoon.store.encoded import NOTHING, Encoded

operations, events, journal = tables.operations, tables.events, tables.journal

KEPT_OPERATIONS = 200
"""Ended operations of one user that are remembered; older ones go with their events."""
KEPT_EVENTS = 500_000
"""Of one user's ended operations, of the newest ones; those of the last one are kept whole. An `up`
of 20,000 nodes has 100,000.
"""
FORGOTTEN = 1000
"""Rows that are removed in one go: changes of all users' BMCs wait meanwhile."""
_BRIEF = tuple(each for each in operations.c if each.key not in {"result", "size"})
"""SQLite reads a result to come to its size, which is behind it, but by an index."""
KEPT_RESULTS = 256 << 20
"""Characters of results of one user's operations, of the newest ones; the last one is kept whole.
Who verifies 20,000 nodes has 50 MB each time.
"""


EMPTY = len(NOTHING.text)


class OperationState(StrEnum):
    """INTERRUPTED: the daemon ended in the middle; the next `up` or `down` goes on from there."""

    RUNNING = "running"
    DONE = "done"
    PARTLY = "partly done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class OperationRow:
    """Long work that was asked for. Times are Unix seconds."""

    id: UUID
    kind: str
    cluster_id: UUID
    cluster: str
    owner: OwnerId
    state: OperationState
    created: float
    finished: float | None = None
    message: str = ""
    result: Mapping[str, object] = field(default_factory=dict)


def begin(connection: Connection, row: OperationRow) -> None:
    """Record that an operation starts."""
    connection.execute(
        insert(operations).values(
            id=str(row.id),
            kind=row.kind,
            cluster_id=str(row.cluster_id),
            cluster=row.cluster,
            owner=row.owner,
            state=row.state,
            created=row.created,
            message="",
            result=NOTHING,
            size=EMPTY,
        )
    )


def finish(
    connection: Connection,
    id: UUID,  # noqa: A002  (the column's name)
    *,
    state: OperationState,
    message: str,
    result: Encoded = NOTHING,
    now: float,
) -> None:
    connection.execute(
        update(operations)
        .where(operations.c.id == str(id))
        .values(
            state=state,
            message=writable(message),
            result=result,
            size=len(result.text),
            finished=now,
        )
    )
    owner = connection.scalar(select(operations.c.owner).where(operations.c.id == str(id)))
    _forget_results(connection, owner, last=str(id))


def _forget_results(connection: Connection, owner: OwnerId | None, *, last: str) -> None:
    """By their noted sizes: to count 256 MiB took a second, in which no BMC's change was stored."""
    query = select(operations.c.id, operations.c.size).where(operations.c.owner == owner)
    newest_first = connection.execute(query.order_by(operations.c.created.desc()))
    sizes: dict[str, int] = {row.id: row.size for row in newest_first}
    left = KEPT_RESULTS - sizes.pop(last, 0)
    for id_, size in sizes.items():
        left -= size
        if left < 0 and size > EMPTY:
            connection.execute(
                update(operations).where(operations.c.id == id_).values(result=NOTHING, size=EMPTY)
            )


def interrupt_running(connection: Connection, *, now: float) -> list[OperationRow]:
    """At start-up: what ran when the daemon ended is interrupted. Returns those."""
    query = select(operations).where(operations.c.state == OperationState.RUNNING)
    found = [_operation(row) for row in connection.execute(query)]
    connection.execute(
        update(operations)
        .where(operations.c.state == OperationState.RUNNING)
        .values(
            state=OperationState.INTERRUPTED,
            message="the daemon ended in the middle; run the same command again to go on",
            finished=now,
        )
    )
    return found


def get(connection: Connection, id: UUID) -> OperationRow | None:  # noqa: A002  (the column's name)
    row = connection.execute(select(operations).where(operations.c.id == str(id))).first()
    return _operation(row) if row is not None else None


def brief(connection: Connection, id: UUID) -> OperationRow | None:  # noqa: A002
    """Without its result, which may be 50 MB."""
    row = connection.execute(select(*_BRIEF).where(operations.c.id == str(id))).first()
    return _operation(row) if row is not None else None


def result_text(connection: Connection, id: UUID) -> str:  # noqa: A002
    """Its result in JSON, as it is stored: no one waits while it is decoded."""
    query = select(cast(operations.c.result, Text)).where(operations.c.id == str(id))
    return connection.scalar(query) or "{}"


def result_size(connection: Connection, id: UUID) -> int:  # noqa: A002
    """Characters of `result_text`."""
    query = select(operations.c.size)
    return connection.scalar(query.where(operations.c.id == str(id))) or 0


def all_operations(connection: Connection, *, owner: OwnerId | None = None) -> list[OperationRow]:
    """Newest first, without their results."""
    query = select(*_BRIEF).order_by(operations.c.created.desc())
    if owner is not None:
        query = query.where(operations.c.owner == owner)
    return [_operation(row) for row in connection.execute(query)]


def add_events(
    connection: Connection, operation: UUID, *, at: float, added: Sequence[Mapping[str, object]]
) -> None:
    """Each has its `seq`."""
    if added:
        id_ = str(operation)
        rows = [
            {"operation_id": id_, "seq": each["seq"], "at": at, "data": dict(each)}
            for each in added
        ]
        connection.execute(_EVENT, rows)


def events_since(
    connection: Connection, operation: UUID, seq: int, *, most: int
) -> list[tuple[int, float, dict[str, object]]]:
    """(seq, at, data) of the first `most` after `seq`, in order."""
    query = (
        select(events)
        .where(events.c.operation_id == str(operation), events.c.seq > seq)
        .order_by(events.c.seq)
        .limit(most)
    )
    return [(row.seq, row.at, row.data) for row in connection.execute(query)]


# Made once: SQLAlchemy takes longer to build such a statement than SQLite to carry it out.
_EVENT = insert(events)
_INTEND = insert(journal).returning(journal.c.id, sort_by_parameter_order=True)
_CONCLUDE = (
    update(journal)
    .where(journal.c.id == bindparam("entry"))
    .values(state=bindparam("ended"), error=bindparam("why"), at=bindparam("now"))
)


@dataclass(frozen=True, slots=True)
class Intent:
    """A driver call that is about to be made."""

    operation: UUID
    cluster_id: UUID
    key: Key
    half: str
    token: str
    now: float


@dataclass(frozen=True, slots=True)
class Conclusion:
    """How a driver call of the journal ended; `error` "" is success."""

    entry: int
    error: str
    now: float


def intend(connection: Connection, intents: Sequence[Intent]) -> list[int]:
    """Journal driver calls before they are made."""
    entries = [
        {
            "operation_id": str(each.operation),
            "cluster_id": str(each.cluster_id),
            "kind": each.key.kind,
            "host": each.key.place,
            "name": each.key.name,
            "half": each.half,
            "token": each.token,
            "state": "intent",
            "at": each.now,
            "error": "",
        }
        for each in intents
    ]
    return list(connection.execute(_INTEND, entries).scalars())


def conclude(connection: Connection, conclusions: Sequence[Conclusion]) -> Sequence[None]:
    """Journal how they ended."""
    ended = [
        {
            "entry": each.entry,
            "ended": "failed" if each.error else "done",
            "why": writable(each.error),
            "now": each.now,
        }
        for each in conclusions
    ]
    connection.execute(_CONCLUDE, ended)
    return [None] * len(ended)


def open_intents(connection: Connection) -> list[tuple[UUID, Key]]:
    """Driver calls whose outcome no one knows: the daemon ended while they ran."""
    query = select(journal).where(journal.c.state == "intent").order_by(journal.c.id)
    return [
        (UUID(row.cluster_id), Key(Kind(row.kind), row.host, row.name))
        for row in connection.execute(query)
    ]


def close_intents(connection: Connection, cluster_id: UUID) -> None:
    """After a fresh observation, what was unknown is known."""
    connection.execute(
        update(journal)
        .where(journal.c.state == "intent", journal.c.cluster_id == str(cluster_id))
        .values(state="observed")
    )


def begun_machines(connection: Connection, cluster_id: UUID) -> set[str]:
    """The nodes whose machines an `up` made or removed that did not end well, since one did."""
    ups = (operations.c.cluster_id == str(cluster_id), operations.c.kind == "up")
    good = select(func.max(operations.c.created)).where(
        *ups, operations.c.state == OperationState.DONE
    )
    query = select(operations.c.id).where(
        *ups,
        operations.c.state != OperationState.RUNNING,
        operations.c.created > func.coalesce(good.scalar_subquery(), 0.0),
    )
    ids = list(connection.execute(query).scalars())
    if not ids:  # as a rule; the journal is looked through otherwise
        return set()
    names = (
        select(journal.c.name)
        .distinct()
        .where(journal.c.operation_id.in_(ids), journal.c.kind == Kind.MACHINE)
    )
    return set(connection.execute(names).scalars())


def forget_some(connection: Connection, owner: OwnerId) -> bool:
    """Remove some of what is too much of a user's ended operations: events, the journal of what
    ended well, and operations. Returns whether there may be more.
    """
    last = select(func.max(events.c.seq)).where(events.c.operation_id == operations.c.id)
    query = select(operations.c.id, operations.c.state, last.scalar_subquery())
    ended = query.where(operations.c.owner == owner, operations.c.state != OperationState.RUNNING)
    left = KEPT_EVENTS
    for number, (id_, state, amount) in enumerate(
        connection.execute(ended.order_by(operations.c.created.desc())).all()
    ):
        is_old, left = number >= KEPT_OPERATIONS, left - (amount or 0)
        is_much = is_old or (left < 0 and number > 0)
        if is_much and _some_events_gone(connection, id_):
            return True
        if (is_much or state == OperationState.DONE) and _some_journal_gone(connection, id_):
            return True
        if is_old:
            connection.execute(delete(operations).where(operations.c.id == id_))
            return True
    return False


def _some_events_gone(connection: Connection, operation: str) -> bool:
    of = events.c.operation_id == operation
    first = connection.scalar(select(func.min(events.c.seq)).where(of))
    if first is None:
        return False
    connection.execute(delete(events).where(of, events.c.seq < first + FORGOTTEN))
    return True


def _some_journal_gone(connection: Connection, operation: str) -> bool:
    query = select(journal.c.id).where(journal.c.operation_id == operation)
    ids = connection.execute(query.order_by(journal.c.id).limit(FORGOTTEN)).scalars().all()
    if not ids:
        return False
    connection.execute(
        delete(journal).where(journal.c.operation_id == operation, journal.c.id <= ids[-1])
    )
    return True


def _operation(row: Row[tuple[object, ...]]) -> OperationRow:
    return OperationRow(
        id=UUID(row.id),
        kind=row.kind,
        cluster_id=UUID(row.cluster_id),
        cluster=row.cluster,
        owner=row.owner,
        state=OperationState(row.state),
        created=row.created,
        finished=row.finished,
        message=row.message,
        result=getattr(row, "result", {}),
    )
