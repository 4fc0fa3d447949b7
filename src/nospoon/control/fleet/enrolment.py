"""In which Ironic a cluster may have nodes: that of its file, or one that it has not left yet.

It is remembered, encrypted, before anything is made there, and forgotten when nothing is left.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from uuid import UUID

import msgspec

from nospoon.control.fleet.fleet import Member
from nospoon.engine.observe import observe
from nospoon.errors import HostUnreachable, PlanRefused
from nospoon.model.ironic import (
    Held,
    IronicPlace,
)
from nospoon.model.nova import NovaInventory
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.resource import Enrolled, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.order.kinds import KINDS
from nospoon.providers.base import Driver
from nospoon.runtime.paced import paced
from nospoon.store.clusters import ClusterRow, get
from nospoon.store.crypt import Cipher
from nospoon.store.database import Database


@dataclass(frozen=True, slots=True)
class Sought:
    """What others are to make of our nodes, so that nothing of ours tells it: the nodes that Ironic
    is to discover, and what Placement is to have, with the seconds in which it is to.
    """

    nodes: frozenset[UUID] = frozenset()
    inventories: tuple[Resource, ...] = ()
    patience: Mapping[str, float] = field(default_factory=dict)
    """By the name of the flavor."""


IronicDrivers = Callable[[IronicPlace, int, bool, Sought], Mapping[Kind, Driver]]
"""The drivers of one Ironic for one user; whether nodes in use are removed, too; and what is
sought there.
"""
Tagged = Sequence[tuple[OwnerTag, bytes]]
NOTHING = Sought()
HeldThere = Callable[[IronicPlace, int], Awaitable[Held]]
IronicNodes = Callable[[IronicPlace, int], Awaitable[Tagged]]
"""Nodes that carry a tag of nospoon's, whosever: the tag, and the node as its API tells it, as
JSON.
"""
FORGET = (
    "`nospoon down --forget-enrolment` takes the cluster down without it, if it is gone for good."
)
_PLACE, _RECORD = msgspec.json.Decoder(IronicPlace), msgspec.json.Decoder(dict[str, object])
_FIXED = frozenset({"uuid", "node"})
_FLAVOR_FIXED = ("name", "vcpus", "ram", "disk", "public")
RULES: Mapping[Kind, Mapping[str, str]] = {
    Kind.NOVA_INVENTORY: {each.name: "live" for each in fields(NovaInventory)},
    Kind.NOVA_FLAVOR: {"settings": "live", **dict.fromkeys(_FLAVOR_FIXED, "replace")},
    **{
        kind: {each.name: "live" for each in fields(row.shape) if each.name not in _FIXED}
        for kind, row in KINDS.items()
        if issubclass(row.shape, Enrolled)
    },
}


class Enrolment:
    """Knows the Ironic of each cluster, and hands out its drivers."""

    def __init__(
        self,
        cipher: Cipher,
        drivers: IronicDrivers,
        nodes: IronicNodes,
        database: Database,
        held: HeldThere,
    ) -> None:
        self._cipher, self._drivers, self.nodes, self.held = cipher, drivers, nodes, held
        self._database = database

    def sealed(self, place: IronicPlace | None) -> bytes:
        """As the store keeps it; b"" for none."""
        if place is None:
            return b""
        return self._cipher.encrypt(msgspec.json.encode(place).decode())

    def place_of(self, row: ClusterRow | None) -> IronicPlace | None:
        """Where a cluster may have nodes; None where it has none."""
        if row is None or not row.enrolled:
            return None
        return _PLACE.decode(self._cipher.decrypt(row.enrolled))

    async def endpoint_of(self, member: Member | None) -> str:
        """URL of the standalone Ironic that a node's cluster names; "" for none."""
        if member is None:
            return ""
        place = self.place_of(await self._database.read(partial(get, id=member.cluster_id)))
        return place.endpoint if place is not None else ""

    def joined(self, before: IronicPlace | None, now: IronicPlace | None) -> IronicPlace | None:
        """Where one looks: in the place of the file, and in Nova also for what an earlier file had
        there.
        """
        if now is None or before is None or before.where != now.where:
            return now or before
        return replace(now, nova=now.nova or before.nova)

    def drivers(
        self,
        place: IronicPlace | None,
        user: int,
        *,
        force: bool = False,
        sought: Sought = NOTHING,
    ) -> dict[tuple[str, Kind], Driver]:
        """The drivers of a place, under the name that its resources' keys have for a host. Their
        calls count to this user.
        """
        if place is None:
            return {}
        made = self._drivers(place, user, force, sought)
        return {(KINDS[kind].outside, kind): each for kind, each in made.items()}

    async def told_of(self, row: ClusterRow) -> Sequence[Mapping[str, object]]:
        """A cluster's nodes as Ironic tells them; passwords are masked by it."""
        place = self.place_of(row)
        tagged = await self.nodes(place, row.owner) if place is not None else ()
        here = [text for tag, text in tagged if tag.cluster == row.id]
        return [_RECORD.decode(text) async for text in paced(here)]

    async def refuse_left_behind(
        self, before: IronicPlace | None, now: IronicPlace | None, cluster: UUID, *,
        user: int, here: Iterable[Key],
    ) -> None:  # fmt: skip
        """Raises `PlanRefused` when the file names another Ironic, and something is left in the
        one before. One that has the same things is the same by another address.
        """
        if before is None or now is None or before.where == now.where:
            return
        try:
            found = {each.key for each in await observe(self.drivers(before, user), cluster)}
        except HostUnreachable as error:
            raise PlanRefused(
                [f"it is not known what is left in {before}: {error} {FORGET}"]
            ) from error
        if found - set(here):
            reason = (
                f"the cluster has {len(found)} things in Ironic at {before}, and its file names "
                f"{now}. Take the cluster down first, or drop `ironic:` once."
            )
            raise PlanRefused([reason])
