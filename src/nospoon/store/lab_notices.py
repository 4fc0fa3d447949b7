"""Events of labs on their way to webhooks. Functions take the connection first.

Each is stored with the recipe set that it is of, in one transaction, and removed when all webhooks
of its lab have got it or are given up.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, select

from nospoon.store import tables

notices = tables.lab_notices


@dataclass(frozen=True, slots=True)
class Notice:
    """`id`: a UUID, of the delivery; `lab`: its key; `created`: Unix seconds; `body`: JSON."""

    id: str
    lab: str
    created: float
    body: str


def put(connection: Connection, new: Sequence[Notice]) -> None:
    """Those that are not there: who stores does so again where the answer was lost."""
    ids = [each.id for each in new]
    known = set(connection.scalars(select(notices.c.id).where(notices.c.id.in_(ids))))
    for each in (each for each in new if each.id not in known):
        values = {"id": each.id, "lab": each.lab, "created": each.created, "body": each.body}
        connection.execute(insert(notices).values(values))


def waiting(connection: Connection) -> list[Notice]:
    """In the order in which they happened."""
    rows = connection.execute(select(notices).order_by(notices.c.number))
    return [Notice(row.id, row.lab, row.created, row.body) for row in rows]


def remove(connection: Connection, ids: Collection[str]) -> None:
    connection.execute(delete(notices).where(notices.c.id.in_(list(ids))))


def remove_old(connection: Connection, before: float) -> None:
    """Those of labs that are gone."""
    connection.execute(delete(notices).where(notices.c.created < before))
