"""Clusters as their files and the store say them."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from nospoon.clusterfile.load import load
from nospoon.control.planning.access import Access
from nospoon.control.planning.logins import Logins
from nospoon.control.planning.prepared import claimed
from nospoon.control.request import Request
from nospoon.errors import Problem, SpecError
from nospoon.model.cluster import Cluster, Host
from nospoon.model.principal import OwnerId
from nospoon.plan.diff.adoption import as_remembered
from nospoon.runtime.workers import Workers
from nospoon.store import clusters as kept_clusters
from nospoon.store import nodes as node_rows
from nospoon.store.clusters import ClusterRow
from nospoon.store.crypt import Cipher
from nospoon.store.database import Database
from nospoon.store.desired import OLDEST, unpacked

log = structlog.get_logger()


class Clusters:
    """Reads them; what is long is read in `workers`."""

    def __init__(
        self,
        *,
        database: Database,
        cipher: Cipher,
        workers: Workers,
        logins: Logins,
        access: Access,
        default_uri: str,
    ) -> None:
        self._database, self._cipher, self._workers = database, cipher, workers
        self.logins, self._access, self._default_uri = logins, access, default_uri

    def read(self, file: str, text: str, owner: OwnerId) -> Cluster:
        """The cluster of a user's file. Raises `SpecError`."""
        return self.logins.taken(load(text, file=file, default_uri=self._default_uri), owner)

    def kept(self, row: ClusterRow) -> Cluster:
        """What the store keeps of a cluster; its file is read only where there is nothing else, or
        what an earlier version kept, which is better than nothing where the file is refused now.
        Run it in a worker. Raises `SpecError`.
        """
        kept = self._cipher.decrypt_bytes(row.desired) if row.desired else b""
        found = unpacked(kept)
        if found is not None:
            return found
        text = self._text(row)
        if not text:
            message = "it is in no file, and stored in a form of another version of nospoon"
            raise SpecError([Problem(row.file, 1, 1, "", message)])
        try:
            return self.read(row.file, text, row.owner)
        except SpecError:
            older = unpacked(kept, oldest=OLDEST)
            if older is None:
                raise
            return older

    def known(self, row: ClusterRow) -> Cluster | None:
        """The same; None where an earlier version took a file that cannot be read any more."""
        try:
            return self.kept(row)
        except SpecError as error:
            log.warning("its file is refused now", cluster=row.name, uid=row.owner, why=str(error))
            return None

    async def text_of(self, row: ClusterRow) -> str:
        """The file. To decrypt 16 MiB takes a tenth of a second."""
        return await self._workers.run(row.owner, self._text, row)

    def _text(self, row: ClusterRow) -> str:
        return self._cipher.decrypt(row.text.encode())

    async def request_of(self, row: ClusterRow) -> Request:
        """What was asked for last, as its owner would ask for it again. Raises `SpecError`."""
        text = await self.text_of(row)
        cluster = None if text else await self._workers.run(row.owner, self.kept, row)
        caller = self._access.principal(row.owner)
        return Request(caller, file=row.file, text=text, cluster=cluster, uploads=row.uploads)

    async def of(self, request: Request) -> Cluster:
        """What a request asks for; its file may be a long one. Raises `SpecError`."""
        if request.cluster is not None:
            return request.cluster
        return await self._workers.run(
            request.caller.uid, self.read, request.file, request.text, request.caller.uid
        )

    async def hosts_of(self, row: ClusterRow) -> Sequence[Host]:
        """Where a cluster may have things. Daemons before schema 0006 knew only the last file."""
        known = await self._database.read(kept_clusters.hosts_of, row.id)
        return known or (await self.stored(row)).hosts

    async def stored(self, row: ClusterRow) -> Cluster:
        """What is kept of a cluster, with the machines of others that are its nodes. Raises
        `SpecError`.
        """
        cluster = await self._workers.run(row.owner, self.kept, row)
        if not cluster.adoptions:
            return cluster
        rows = await self._database.read(node_rows.nodes_of, row.id)
        return await self._workers.run(
            row.owner, lambda: as_remembered(cluster, row.id, claimed(rows))
        )

    async def said_before(self, earlier: ClusterRow) -> Cluster | None:
        """The file of before; None for one of an earlier version, which alone understood it."""
        try:
            return await self.stored(earlier)
        except SpecError:
            return None
