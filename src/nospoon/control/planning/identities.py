"""The id of a cluster: that which it has, which its file pins, or which a plan proposed."""

from __future__ import annotations

from collections import defaultdict
from uuid import UUID, uuid4

from nospoon.control.request import Request
from nospoon.errors import PlanRefused
from nospoon.model.cluster import Cluster
from nospoon.model.principal import OwnerId
from nospoon.store import clusters as stored
from nospoon.store.clusters import ClusterRow
from nospoon.store.database import Database

MOST_PROPOSED = 100
"""Clusters of one user that are not there yet and whose ids stay the same from plan to plan."""


class Identities:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._proposed = defaultdict[int, dict[str, UUID]](dict)

    def of(self, cluster: Cluster, earlier: ClusterRow | None, request: Request) -> UUID:
        if earlier is not None:
            self._proposed[request.caller.uid].pop(cluster.name, None)
            if cluster.id is not None and cluster.id != earlier.id:
                reason = (
                    f"cluster {cluster.name} has id {earlier.id}, the file pins {cluster.id}. "
                    "Take it down first, or drop `id:` from the file."
                )
                raise PlanRefused([reason])
            return earlier.id
        proposed = self._proposed[request.caller.uid]
        if cluster.name not in proposed:
            proposed[cluster.name] = uuid4()
        while len(proposed) > MOST_PROPOSED:
            del proposed[next(iter(proposed))]
        return cluster.id or request.cluster_id or proposed[cluster.name]

    async def refuse_anothers(self, cluster_id: UUID, owner: OwnerId) -> None:
        """A file, or a client, may name any id: that of a cluster which is there is that one's."""
        holder = await self._database.read(stored.get, cluster_id)
        if holder is not None:
            whose = f"your cluster {holder.name}" if holder.owner == owner else "another cluster"
            raise PlanRefused(
                [f"the id {cluster_id} is that of {whose}. Choose another `id:`, or drop it."]
            )
