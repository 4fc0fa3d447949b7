"""Orphans: what carries this deployment's tag and belongs to no cluster in the store.

They are left by a database that was lost or put back from an older copy, and by hosts that were
away when their cluster went. What other deployments made, and what has no tag, is never touched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from uuid import UUID, uuid4

from nospoon.control.maintenance.survey import Scope, Seen, Survey
from nospoon.control.operations.journal import Journal
from nospoon.control.operations.operations import Ended, Operations, Running
from nospoon.engine.execute import Limits, execute
from nospoon.engine.progress import Outcome
from nospoon.model.ironic import IronicPlace
from nospoon.model.principal import Principal
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.resource import Observed
from nospoon.model.resources.tags import OwnerTag
from nospoon.model.rest.upkeep import Orphan, OrphanReport
from nospoon.plan import identity
from nospoon.plan.diff.blank import orphaned
from nospoon.plan.diff.diff import removal
from nospoon.plan.words import with_verb
from nospoon.runtime.clock import Clock
from nospoon.runtime.users import NameOf, Uid, names_of, user_name
from nospoon.store import clusters as stored
from nospoon.store.database import Database
from nospoon.store.operations import OperationRow, OperationState


class Orphans:
    """Finds orphans, and removes them when asked."""

    def __init__(
        self,
        *,
        database: Database,
        survey: Survey,
        operations: Operations,
        clock: Clock,
        name_of: NameOf = user_name,
    ) -> None:
        self.name_of = name_of
        self._database, self._survey = database, survey
        self._operations, self._clock = operations, clock

    async def report(self, scope: Scope) -> OrphanReport:
        """What is there now, with names of owners."""
        seen = await self.find(scope)
        uids = await asyncio.to_thread(_owners, seen)
        names = await names_of(uids, self.name_of)
        return OrphanReport(
            orphans=await asyncio.to_thread(rows, seen, names),
            others={each.name: each.others for each in seen if each.others},
            away={each.name: each.away for each in seen if each.away},
        )

    async def find(self, scope: Scope) -> list[Seen]:
        """What each host and Ironic has of clusters that are not in the store; all that are known
        where the scope names no host.
        """
        seen = await self._survey.around(scope)
        known = {row.id for row in await self._database.read(stored.outlines)}
        return await asyncio.to_thread(_but, seen, known)

    async def reap(self, caller: Principal, scope: Scope, *, grace: float) -> OperationRow:
        """Begin to remove them: those that are orphans now and still are after `grace` seconds."""
        return await self._operations.start(
            "reap",
            cluster_id=identity.UPKEEP,
            cluster="",
            owner=caller.uid,
            work=lambda running: self._reap(running, scope, grace),
        )

    async def _reap(self, running: Running, scope: Scope, grace: float) -> Ended:
        before = await asyncio.to_thread(_names, await self.find(scope))
        if not before:
            return Ended(OperationState.DONE, "there are no orphans")
        running.note(
            f"{with_verb(len(before), 'orphan')} removed in {grace:.0f} s; until then "
            f"`nospoon operation cancel {running.row.id}` keeps them"
        )
        await asyncio.sleep(grace)
        seen = await asyncio.to_thread(_among, await self.find(scope), before)
        outcomes: list[Outcome] = []
        kept: set[UUID] = set()
        for each in seen:
            for cluster, part in (await asyncio.to_thread(each.clusters)).items():
                if cluster in kept:
                    continue
                outcomes.append(await self._remove(running, part, cluster))
                # machines of nodes that are in use in Ironic are, too
                if isinstance(each.place, IronicPlace) and not outcomes[-1].complete:
                    kept.add(cluster)
        failures = [failure for outcome in outcomes for failure in outcome.failures]
        done = sum(outcome.done for outcome in outcomes)
        if not failures:
            return Ended(OperationState.DONE, f"{with_verb(done, 'orphan')} removed")
        state = OperationState.PARTLY if done else OperationState.FAILED
        why = "; ".join(f"{each.what}: {each.message}" for each in failures[:5])
        return Ended(state, f"{with_verb(done, 'orphan')} removed, {len(failures)} not: {why}")

    async def _remove(self, running: Running, seen: Seen, cluster: UUID) -> Outcome:
        """One cluster's on one host (`seen`), unless someone recovered it meanwhile."""
        if await self._database.read(stored.get, cluster) is not None:
            return Outcome(total=0)
        found = seen.things
        name = cluster_name(found)
        return await execute(
            removal(cluster=name, cluster_id=cluster, observed=map(orphaned, found), why="orphan"),
            drivers=seen.drivers,
            tag=OwnerTag(self._database.deployment, cluster, token=uuid4().hex),
            journal=Journal(self._database, running.row.id, cluster, self._clock),
            emit=running.emit,
            limits=Limits(places={place: seen.calls for place, _ in seen.drivers}),
            calls=running.calls,
        )


def cluster_name(found: Sequence[Observed]) -> str:
    """The cluster's name as its tags tell, or the name of a pool of an earlier version; else its
    id.
    """
    told = [each.tag.name for each in found if each.tag.name]
    pools = [each.key.name for each in found if each.key.kind is Kind.POOL]
    told += [name for pool in pools if (name := identity.cluster_of_pool(pool))]
    return told[0] if told else str(found[0].tag.cluster)


def rows(seen: Sequence[Seen], names: Mapping[Uid, str]) -> list[Orphan]:
    """One for each thing; of thousands, for a thread. `names`: of owners."""
    return [row for host in seen for row in _rows_at(host, names)]


def _rows_at(host: Seen, names: Mapping[Uid, str]) -> Iterator[Orphan]:
    called = {id_: cluster_name(part.things) for id_, part in host.clusters().items()}
    for each in host.things:
        yield _row(each, host.name, called[each.tag.cluster], names[each.tag.uid])


def _row(observed: Observed, host: str, cluster: str, owner: str) -> Orphan:
    return Orphan(
        host=host,
        kind=str(observed.key.kind),
        name=observed.key.name,
        cluster=cluster,
        owner=owner,
        running="yes" if observed.running else "",
        cluster_id=str(observed.tag.cluster),
    )


def _owners(seen: Sequence[Seen]) -> set[Uid]:
    return {each.tag.uid for host in seen for each, _ in host.found}


def _but(seen: Sequence[Seen], known: Collection[UUID]) -> list[Seen]:
    """What is of other clusters than these."""
    return [
        replace(each, found=tuple(f for f in each.found if f[0].tag.cluster not in known))
        for each in seen
    ]


def _among(seen: Sequence[Seen], names: Collection[tuple[UUID, str]]) -> list[Seen]:
    """What is among these."""
    return [
        replace(each, found=tuple(f for f in each.found if _name(f[0]) in names)) for each in seen
    ]


def _name(observed: Observed) -> tuple[UUID, str]:
    return observed.tag.cluster, str(observed.key)


def _names(seen: Sequence[Seen]) -> set[tuple[UUID, str]]:
    return {_name(observed) for each in seen for observed, _ in each.found}
