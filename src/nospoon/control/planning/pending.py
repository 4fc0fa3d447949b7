"""Nodes that an `up` under way has yet to move, or to give another account.

What is remembered of a node follows what was done: its host when its machine is about to be made
there, and is nowhere else any more; its account when its BMC has it. Until then, and after an `up`
that failed or died before, `status`, `bmc list` and whoever reaches the node know it as it is.
What is pending is known to the operation alone: the next plan finds it in the file again.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import replace
from uuid import UUID

from nospoon.model.cluster import Host
from nospoon.model.resources.keys import Key, Kind
from nospoon.plan.addresses.allocate import Allocations
from nospoon.plan.order.order import Half, MoveId
from nospoon.store.nodes import NodeRow


class Pending:
    """Nodes as they are to be, while they are not that yet."""

    def __init__(self) -> None:
        self._wanted: dict[UUID, NodeRow] = {}

    def begin(self, rows: Iterable[NodeRow]) -> None:
        self._wanted |= {row.uuid: row for row in rows}

    def end(self, rows: Iterable[NodeRow]) -> None:
        for row in rows:
            self._wanted.pop(row.uuid, None)

    def wanted(self, uuid: UUID) -> NodeRow | None:
        """None for a node that is as it is to be."""
        return self._wanted.get(uuid)

    def with_account(self, row: NodeRow) -> NodeRow:
        """A row with the account that the node's BMC is about to get."""
        wanted = self._wanted.get(row.uuid)
        return row if wanted is None else reached_as(wanted, row, host=row.host)


def moving(rows: Iterable[NodeRow]) -> dict[MoveId, NodeRow]:
    """Driver calls, and as what a node is known from the intent of each on."""
    return {(Key(Kind.MACHINE, row.host.name, row.name), Half.MAKE): row for row in rows}


def as_it_is(row: NodeRow, before: NodeRow | None, made: Container[Key]) -> NodeRow:
    """A node's row while a plan has yet to be carried out. `before`: what is known of the node;
    `made`: what the plan makes or changes.
    """
    if before is None:
        return row
    moves = Key(Kind.MACHINE, row.host.name, row.name) in made
    host = before.host if moves and before.host.name != row.host.name else row.host
    if Key(Kind.BMC, row.host.name, row.name) in made:
        return reached_as(before, row, host=host)
    return replace(row, host=host)


def reached_as(before: NodeRow, row: NodeRow, *, host: Host) -> NodeRow:
    """A node as it is to be, but on this host and with the account of another row."""
    return replace(
        row,
        host=host,
        username=before.username,
        password=before.password,
        source=before.source,
        k_g=before.k_g,
        pdu_secret=before.pdu_secret,
    )


def known_places(earlier: Allocations, rows: Iterable[NodeRow]) -> Allocations:
    """What was decided, with nodes where they are: an `up` that failed did not move them."""
    hosts = {**earlier.hosts, **{row.name: row.host.name for row in rows}}
    why = {
        name: each
        for name, each in earlier.why.items()
        if earlier.hosts.get(name) == hosts.get(name)
    }
    return replace(earlier, hosts=hosts, why=why)
