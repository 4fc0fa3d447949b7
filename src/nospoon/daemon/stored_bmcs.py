"""BMCs on record: what the store and the fleet know of each, put together."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import Connection as Transaction

from nospoon.bmc.log import Record
from nospoon.control.fleet.fleet import Fleet
from nospoon.control.planning.accounts import pdu_secret, secrets_of
from nospoon.control.planning.pending import Pending
from nospoon.daemon.bmc_state import opened
from nospoon.errors import Gone
from nospoon.model.resources.bmcs import Bmc, Secrets
from nospoon.model.resources.keys import Key
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.services.bmcs.ports import BmcConfig
from nospoon.store import bmc_log
from nospoon.store import bmcs as bmc_rows
from nospoon.store import nodes as node_rows
from nospoon.store.crypt import Cipher
from nospoon.store.database import Database

Made = tuple[Key, Bmc, OwnerTag]


class StoredBmcs:
    """BMCs on record, and what is needed to serve each: node rows, decrypted passwords."""

    def __init__(self, database: Database, cipher: Cipher, fleet: Fleet, pending: Pending) -> None:
        self._database, self._cipher = database, cipher
        self._fleet, self._pending = fleet, pending

    async def all(self, cluster: UUID | None) -> Sequence[tuple[Key, Bmc, OwnerTag]]:
        return await self._database.call(bmc_rows.records, cluster)

    async def put(self, key: Key, bmc: Bmc, tag: OwnerTag) -> None:
        """It is served so, with the account that was pending: both are known, or neither is."""
        made = key, bmc, tag
        await self._database.call_each(_put, (made, self._pending.wanted(bmc.uuid)))

    async def remove(self, bmc: UUID) -> None:
        await self._database.call_each(bmc_rows.remove, bmc)

    async def secrets(self, node: UUID) -> Secrets:
        """What Ironic needs to log in to a node's BMC, and to its PDU."""
        row = await self._database.call(node_rows.node, node)
        bmc = await self._database.call(bmc_rows.find, node)
        if row is None or bmc is None:
            raise Gone(f"node {node} or its BMC is not in the store")
        return secrets_of(row, bmc.outlet, self._cipher)

    async def config(self, resource: Resource) -> BmcConfig:
        bmc = resource.shape
        assert isinstance(bmc, Bmc), "BMC keys have BMC shapes"
        row, log_records = await self._database.call_each(_nodes_and_logs, bmc.uuid)
        member = self._fleet.get(bmc.uuid)
        if row is None or member is None:
            raise Gone(f"{resource.key}: its node is not in the store")
        row = self._pending.with_account(row)
        return BmcConfig(
            node=row.name,
            cluster=member.cluster,
            bmc=bmc,
            machine=row.machine,
            password=self._cipher.decrypt(row.password),
            k_g=self._cipher.decrypt(row.k_g) if row.k_g else "",
            pdu_secret=pdu_secret(bmc.outlet, row.pdu_secret, self._cipher),
            runtime=opened(row.runtime, self._cipher),
            log=log_records,
            owner=member.owner,
        )


def _put(
    connection: Transaction, of: Sequence[tuple[Made, node_rows.NodeRow | None]]
) -> Sequence[None]:
    bmc_rows.put(connection, [made for made, _ in of])
    node_rows.renew_accounts(connection, [row for _, row in of if row is not None])
    return [None] * len(of)


def _nodes_and_logs(
    connection: Transaction, uuids: Sequence[UUID]
) -> list[tuple[node_rows.NodeRow | None, Sequence[Record]]]:
    rows, logs = node_rows.by_uuid(connection, uuids), bmc_log.records(connection, uuids)
    return [(rows.get(uuid), logs[uuid]) for uuid in uuids]
