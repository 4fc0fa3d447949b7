"""Events of labs on their way to webhooks. Functions take the connection first.

Each is stored with the recipe set that it is of, in one transaction, and removed when all webhooks
of its lab have got it or are given up.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import Connection, delete, insert, select

from nospoon.store import tables

notices = tables.lab_notices
AT_ONCE = 500
"""Values of one statement: SQLite takes 32,766 at most, and ten thousand sets may end together."""


@dataclass(frozen=True, slots=True)
class Notice:
    """`id`: a UUID, of the delivery; `lab`: its key; `created`: Unix seconds; `body`: JSON."""

    id: str
    lab: str
    created: float
    body: str


def put(connection: Connection, new: Sequence[Notice]) -> None:
    """Those that are not there: who stores does so again where the answer was lost."""
    for at in range(0, len(new), AT_ONCE):
        part = {each.id: asdict(each) for each in new[at : at + AT_ONCE]}
        for known in connection.scalars(select(notices.c.id).where(notices.c.id.in_([*part]))):
            del part[known]
        if part:
            connection.execute(insert(notices), [*part.values()])


def waiting(connection: Connection) -> list[Notice]:
    """In the order in which they happened."""
    rows = connection.execute(select(notices).order_by(notices.c.number))
    return [Notice(row.id, row.lab, row.created, row.body) for row in rows]


def remove(connection: Connection, ids: Collection[str]) -> None:
    connection.execute(delete(notices).where(notices.c.id.in_(list(ids))))


def remove_old(connection: Connection, before: float) -> None:
    """Those of labs that are gone."""
    connection.execute(delete(notices).where(notices.c.created < before))
