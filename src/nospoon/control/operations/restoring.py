"""The start of a daemon: all nodes are known again, and what their cluster files had served is."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import Protocol
from uuid import UUID

import structlog

from nospoon.control.content.files import Files
from nospoon.control.fleet.fleet import Fleet
from nospoon.control.operations.served import Give, give_certificate, member_of, served_profiles
from nospoon.control.planning.planner import Planner
from nospoon.model.cluster import CertificateFiles
from nospoon.model.lab import Lab
from nospoon.model.principal import OwnerId
from nospoon.runtime.clock import monotonic
from nospoon.runtime.paced import paced
from nospoon.services.netboot.ports import ServedProfile
from nospoon.store import clusters as stored
from nospoon.store import nodes as node_rows
from nospoon.store.clusters import ClusterRow, Outline
from nospoon.store.database import Database

log = structlog.get_logger()
READING = 30.0
"""Seconds for which the start waits for cluster files to be read; the last one may take longer."""


@dataclass(frozen=True, slots=True)
class KeptFile:
    """What the daemon keeps of a cluster file."""

    profiles: dict[str, ServedProfile]
    labs: Sequence[Lab]
    certificate: CertificateFiles | None


def in_turn(rows: Iterable[Outline]) -> list[Outline]:
    """Owners take turns, older clusters first: files that take long are waited for by their owner
    alone.
    """
    counts = Counter[int]()
    placed = []
    for row in sorted(rows, key=attrgetter("created")):
        placed.append((counts[row.owner], row))
        counts[row.owner] += 1
    return [row for _, row in sorted(placed, key=itemgetter(0))]


class LabsOfClusters(Protocol):
    """Knows the labs that clusters have."""

    def put(self, cluster_id: UUID, owner: OwnerId, cluster: str, labs: Sequence[Lab]) -> None: ...


class Restoring:
    """Reads what the store has of all clusters. `reading`: see `READING`."""

    reading = READING

    def __init__(
        self,
        *,
        database: Database,
        files: Files,
        planner: Planner,
        fleet: Fleet,
        give: Give,
        labs: LabsOfClusters,
    ) -> None:
        self._unread = deque[Outline]()
        self._database, self._files = database, files
        self._planner, self._fleet, self._give, self._labs = planner, fleet, give, labs

    async def restore(self) -> int:
        """At start-up: know all nodes again. Returns how many there are."""
        rows = await self._database.read(node_rows.all_nodes)
        clusters = {each.id: each for each in await self._database.read(stored.outlines)}
        profiles = dict[UUID, dict[str, ServedProfile]]()
        self._unread = deque(in_turn(clusters.values()))
        end = monotonic() + self.reading
        while self._unread and monotonic() < end:
            first = await self._database.read(stored.get, self._unread.popleft().id)
            assert first is not None, "none is removed before the start"
            profiles[first.id] = await self._profiles_of(first)
        for row in self._unread:
            log.warning("its file is read after the start", cluster=row.name, uid=row.owner)
        owners = ((clusters[node.cluster_id].owner, node.host, node.machine) for node in rows)
        why_not = await self._planner.access.reached(owners)
        logged = set[tuple[UUID, str]]()
        for node in rows:
            row = clusters[node.cluster_id]
            why = why_not(row.owner, node.host, node.machine)
            if why and (row.id, why) not in logged:
                log.warning("not reached", cluster=row.name, uid=row.owner, why=why)
                logged.add((row.id, why))
            member = member_of(row, node, profiles.get(row.id, {}).get(node.profile))
            self._fleet.put(member, reached=not why)
        return len(rows)

    async def read_rest(self) -> None:
        """The files for which the start did not wait: their labs are known then, and machines boot
        their profiles. One that an `up` or `down` has changed meanwhile is not looked at.
        """
        while self._unread:
            outline = self._unread.popleft()
            row = await self._database.read(stored.get, outline.id)
            if row is None or row.generation != outline.generation:
                continue
            profiles, nodes = (
                await self._read(row),
                await self._database.read(node_rows.nodes_of, row.id),
            )
            if not await self._is_current(row):
                continue
            served = self._take_in(row, profiles)
            async for node in paced(nodes):
                self._fleet.serve(node.uuid, served.get(node.profile))

    async def _is_current(self, row: ClusterRow) -> bool:
        now = await self._database.read(stored.get, row.id)
        return now is not None and now.generation == row.generation

    async def _profiles_of(self, row: ClusterRow) -> dict[str, ServedProfile]:
        """And its labs are known again. None of a file that cannot be read: its next `up` serves
        its boot again.
        """
        return self._take_in(row, await self._read(row))

    async def _read(self, row: ClusterRow) -> KeptFile | None:
        return await self._planner.workers.run(row.owner, self._kept_file, row)

    def _kept_file(self, row: ClusterRow) -> KeptFile | None:
        cluster = self._planner.clusters.known(row)
        if cluster is None:
            return None
        profiles = served_profiles(cluster, row.uploads, self._files)
        return KeptFile(profiles, cluster.labs, cluster.addressing.certificate)

    def _take_in(self, row: ClusterRow, known: KeptFile | None) -> dict[str, ServedProfile]:
        if known is None:
            return {}
        give_certificate(known.certificate, row.uploads, self._files, self._give)
        self._labs.put(row.id, row.owner, row.name, known.labs)
        return known.profiles
