"""Labs: recipe sets, and what is known of registered machines. Functions take the connection first.

A set's record is encrypted: kickstarts have passwords, and callbacks secrets.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import islice
from uuid import UUID

import msgspec
from sqlalchemy import Connection, Select, bindparam, delete, func, insert, select, update

from nospoon.model.principal import OwnerId
from nospoon.store import tables

recipe_sets, lab_states = tables.recipe_sets, tables.lab_states


Noted = tuple[float, int, str, str]


@dataclass(frozen=True, slots=True)
class SetRow:
    """A recipe set. `number` is its place in the order of submission; `record` is encrypted;
    `history`: what happened, as (Unix seconds, recipe, event, message), -1 for the set.
    """

    id: str
    request: int
    number: int
    submitter: OwnerId
    owner: str
    lab: str
    state: str
    created: float
    record: bytes = field(repr=False)
    key: str = ""
    history: Sequence[Noted] = ()


def next_numbers(connection: Connection) -> tuple[int, int]:
    """For a new request, and for its first set."""
    request = connection.scalar(select(func.max(recipe_sets.c.request))) or 0
    number = connection.scalar(select(func.max(recipe_sets.c.number))) or 0
    return request + 1, number + 1


def put(connection: Connection, rows: Collection[SetRow]) -> None:
    """Insert or update them."""
    for row in rows:
        values = _values(row)
        if not connection.execute(_CHANGE, {**values, "wanted": row.id}).rowcount:
            connection.execute(_INSERT, values)


# Made once: a set is stored at each of its steps.
_INSERT = insert(recipe_sets)
_CHANGE = update(recipe_sets).where(recipe_sets.c.id == bindparam("wanted"))


def by_key(connection: Connection, *, submitter: OwnerId, key: str) -> list[SetRow]:
    """Sets that a user submitted under an idempotency key."""
    query = select(recipe_sets).where(
        recipe_sets.c.submitter == submitter, recipe_sets.c.key == key
    )
    return _rows(connection, query)


def active(connection: Connection) -> list[SetRow]:
    """Those that have not ended, in the order of submission."""
    return _rows(connection, select(recipe_sets).where(recipe_sets.c.state != "ended"))


def find(connection: Connection, set_id: str) -> SetRow | None:
    found = _rows(connection, select(recipe_sets).where(recipe_sets.c.id == set_id))
    return found[0] if found else None


def newest_ended(
    connection: Connection, *, most: int, submitter: OwnerId | None, owner: str = ""
) -> list[SetRow]:
    """The last ones that were submitted and have ended, oldest first, of a user or of all.
    `owner`: those whose machines a user of this name got. They are without their histories, which
    have thousands of events each where guests and users cause them.
    """
    columns = (each for each in recipe_sets.c if each is not recipe_sets.c.history)
    query = select(*columns).where(recipe_sets.c.state == "ended")
    if submitter is not None:
        query = query.where(recipe_sets.c.submitter == submitter)
    if owner:
        query = query.where(recipe_sets.c.owner == owner)
    query = query.order_by(recipe_sets.c.number.desc()).limit(most)
    return sorted(_rows(connection, query, ordered=True), key=lambda row: row.number)


def ended_before(connection: Connection, time: float, *, most: int) -> list[SetRow]:
    """Sets that ended before that, in Unix seconds; those that were submitted first come first. The
    last one is not among them: the next ones are numbered after it.
    """
    last = connection.scalar(select(func.max(recipe_sets.c.number)))
    over = (
        recipe_sets.c.state == "ended",
        recipe_sets.c.created < time,
        recipe_sets.c.number != last,
    )
    columns = recipe_sets.c.id, recipe_sets.c.history
    found = connection.execute(select(*columns).where(*over).order_by(recipe_sets.c.number))
    old = (row.id for row in found if not row.history or row.history[-1][0] < time)
    return _rows(connection, select(recipe_sets).where(recipe_sets.c.id.in_([*islice(old, most)])))


def ended_beyond(connection: Connection, kept: int, *, most: int) -> list[SetRow]:
    """The oldest sets that ended of a user who has more than `kept` of them; [] for no such user.
    The last one of all is not among them, as `kept` is more than 0.
    """
    ended = recipe_sets.c.state == "ended"
    amount = func.count(recipe_sets.c.id)
    query = select(recipe_sets.c.submitter, amount).where(ended).group_by(recipe_sets.c.submitter)
    found = connection.execute(query.having(amount > kept)).first()
    if found is None:
        return []
    submitter, count = found
    of_user = select(recipe_sets).where(ended, recipe_sets.c.submitter == submitter)
    oldest = of_user.order_by(recipe_sets.c.number).limit(min(most, count - kept))
    return _rows(connection, oldest, ordered=True)


def forget(connection: Connection, ids: Collection[str]) -> None:
    connection.execute(delete(recipe_sets).where(recipe_sets.c.id.in_(list(ids))))


def states(connection: Connection) -> dict[tuple[UUID, str, str], dict[str, object]]:
    """(cluster, lab, machine) -> record; machine "" for the lab itself."""
    rows = connection.execute(select(lab_states))
    return {(UUID(row.cluster_id), row.lab, row.machine): row.record for row in rows}


def put_state(
    connection: Connection, cluster_id: UUID, lab: str, machine: str, record: dict[str, object]
) -> None:
    whose = {"cluster_id": str(cluster_id), "lab": lab, "machine": machine}
    same = [lab_states.c[name] == value for name, value in whose.items()]
    if not connection.execute(update(lab_states).where(*same).values(record=record)).rowcount:
        connection.execute(insert(lab_states).values(**whose, record=record))


def _values(row: SetRow) -> dict[str, object]:
    return {
        "id": row.id,
        "request": row.request,
        "number": row.number,
        "submitter": row.submitter,
        "owner": row.owner,
        "lab": row.lab,
        "state": row.state,
        "created": row.created,
        "record": row.record,
        "key": row.key or None,
        "history": msgspec.to_builtins(row.history),
    }


def _rows(
    connection: Connection, query: Select[tuple[object, ...]], *, ordered: bool = False
) -> list[SetRow]:
    found = query if ordered else query.order_by(recipe_sets.c.number)
    return [
        SetRow(
            id=row.id,
            request=row.request,
            number=row.number,
            submitter=row.submitter,
            owner=row.owner,
            lab=row.lab,
            state=row.state,
            created=row.created,
            record=row.record,
            key=row.key or "",
            history=[(at, n, event, why) for at, n, event, why in getattr(row, "history", ())],
        )
        for row in connection.execute(found)
    ]
