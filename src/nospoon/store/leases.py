"""Who controls the hosts of this store: one row, with an epoch that rises with each controller.

A controller beats while it lives. Whoever has seen no beat for the time of the lease, on a clock of
its own, may take over; so clocks of different machines need not agree. Every writing transaction of
a controller checks its epoch (`nospoon.store.database`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from sqlalchemy import Connection, bindparam, insert, select, update

from nospoon.errors import Superseded
from nospoon.store import tables

leases = tables.leases
SCOPE = "*"
"""All hosts: one controller has them all. A host's name, once several controllers share them."""

_CHECK = (
    update(leases)
    .where(leases.c.scope == SCOPE, leases.c.epoch == bindparam("mine"))
    .values(epoch=leases.c.epoch)
)
"""Built once: it goes before every writing transaction."""


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """`controller`: for people; "" when it was given back. `instance`: what only one process at a
    time can be. `since`: Unix seconds.
    """

    epoch: int
    beat: int
    controller: str
    instance: str
    since: float


def look(connection: Connection) -> LeaseRow | None:
    row = connection.execute(select(leases).where(leases.c.scope == SCOPE)).first()
    if row is None:
        return None
    return LeaseRow(row.epoch, row.beat, row.controller, row.instance, row.since)


def take(
    connection: Connection, seen: LeaseRow | None, *, controller: str, instance: str, now: float
) -> int:
    """Become the controller, unless something changed since `seen`: the new epoch, or 0."""
    epoch = 1 if seen is None else seen.epoch + 1
    values = {
        "epoch": epoch, "beat": 0, "controller": controller, "instance": instance, "since": now,
    }  # fmt: skip
    if seen is None:
        connection.execute(insert(leases).values(scope=SCOPE, **values))
        return epoch
    same = (leases.c.scope == SCOPE, leases.c.epoch == seen.epoch, leases.c.beat == seen.beat)
    return epoch if connection.execute(update(leases).where(*same).values(values)).rowcount else 0


def beat(connection: Connection, epoch: int) -> None:
    """Show that the controller of this epoch lives. Raises `Superseded`."""
    _change(connection, epoch, beat=leases.c.beat + 1)


def check(connection: Connection, epoch: int) -> None:
    """Raises `Superseded` when another epoch has begun; none can begin before the transaction ends.

    It writes, since a look alone would lock nothing.
    """
    if not connection.execute(_CHECK, {"mine": epoch}).rowcount:
        _refuse(connection)


def give_back(connection: Connection, epoch: int) -> None:
    """The next controller need not wait. Raises `Superseded`."""
    _change(connection, epoch, controller="", instance="")


def _change(connection: Connection, mine: int, /, **values: object) -> None:
    ours = (leases.c.scope == SCOPE, leases.c.epoch == mine)
    if not connection.execute(update(leases).where(*ours).values(**values)).rowcount:
        _refuse(connection)


def _refuse(connection: Connection) -> NoReturn:
    now = look(connection)
    who = now.controller if now is not None and now.controller else "somebody"
    raise Superseded(
        f"{who} has taken over these hosts: this daemon was silent for too long",
        hint="It does nothing more. Use the other one.",
    )
