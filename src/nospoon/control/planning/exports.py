"""Clusters as what other tools read: what is known of their nodes, put together and written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_address
from typing import Any

import yaml

from nospoon.control.fleet.fleet import Fleet
from nospoon.control.planning.accounts import secrets_of
from nospoon.control.planning.planner import Planner
from nospoon.errors import UsageError
from nospoon.exports.formats import FORMATS, Syntax
from nospoon.exports.inventory import TEMPLATES, Inventory, LeftOut, Place, summed
from nospoon.model.cluster import Cluster
from nospoon.model.passwords import is_hash
from nospoon.model.rest.clusters import Exported
from nospoon.plan.addresses.addresses import known_addresses, login_addresses
from nospoon.runtime.freeing import free
from nospoon.runtime.paced import paced
from nospoon.runtime.written_yaml import Dumper, documents, parts, quoted_text
from nospoon.services.bmcs.service import BmcService
from nospoon.store import nodes as node_rows
from nospoon.store.clusters import ClusterRow
from nospoon.store.crypt import Cipher
from nospoon.store.database import Database

Addresses = Mapping[tuple[str, int], str]
"""(Node, number of its NIC) -> address."""


class Exports:
    """Writes clusters for other tools. No host is asked: one that is away does not hinder."""

    def __init__(
        self,
        *,
        database: Database,
        cipher: Cipher,
        planner: Planner,
        fleet: Fleet,
        bmcs: BmcService,
    ) -> None:
        self._database, self._cipher, self._planner = database, cipher, planner
        self._fleet, self._bmcs = fleet, bmcs

    async def export(self, row: ClusterRow, to: str) -> Exported:
        """A cluster in one of `FORMATS`, with the passwords of its BMCs. Raises `UsageError`."""
        if to not in FORMATS:
            raise UsageError(f"no format {to!r}; there are {', '.join(FORMATS)}")
        cluster = await self._planner.clusters.stored(row)
        addresses = await self._addresses(row, cluster)
        logins = await self._logins(row, cluster)
        workers = self._planner.workers
        cluster, others = await workers.run(row.owner, _exportable, cluster, to)
        inventory = [await self._inventory(row, cluster, addresses, logins)]
        exported = await workers.run(row.owner, _written, inventory[0], to, others)
        del cluster
        await free(inventory)
        return exported

    async def address(self, row: ClusterRow, node: str) -> str:
        """By which a node is reached from its host, "" where none of its addresses is known, and
        where a floating IP is to lead to it: only its cloud knows that one.
        """
        cluster = await self._planner.clusters.stored(row)
        if any(nic.floating_ip for each in cluster.nodes if each.name == node for nic in each.nics):
            return ""
        return (await self._logins(row, cluster)).get(node, "")

    async def _logins(self, row: ClusterRow, cluster: Cluster) -> Mapping[str, str]:
        words = (cluster, row.id, row.allocations)
        return await self._planner.workers.run(row.owner, login_addresses, *words)

    async def _addresses(self, row: ClusterRow, cluster: Cluster) -> Addresses:
        return await self._planner.workers.run(row.owner, known_addresses, cluster, row.allocations)

    async def _inventory(
        self, row: ClusterRow, cluster: Cluster, addresses: Addresses, logins: Mapping[str, str]
    ) -> Inventory:
        found = await self._database.read(node_rows.nodes_of, row.id)
        rows = [{each.uuid: each async for each in paced(found)}]
        del found
        members = await self._fleet.by_node(row.owner, row.name)
        places = []
        async for node in paced(cluster.nodes):
            member = members.get(node.name)
            served = self._bmcs.status(member.uuid) if member is not None else None
            if member is None or served is None:
                continue
            amount = len(member.machine.nics)
            if node.adopted is None and amount != len(node.nics):
                continue
            nics = tuple(addresses.get((node.name, i), "") for i in range(amount))
            secrets = secrets_of(rows[0][member.uuid], served.bmc.outlet, self._cipher)
            login = logins.get(node.name, "")
            places.append(
                Place(node, member.host, member.machine, served.bmc, secrets, nics, login)
            )
        await free(rows)
        return Inventory(cluster, tuple(places))


def _exportable(cluster: Cluster, to: str) -> tuple[Cluster, list[LeftOut]]:
    """With the nodes of the kinds that are for this format, and why others are not in it."""
    kinds = FORMATS[to].kinds
    if FORMATS[to].secrets and any(is_hash(n.credentials.password) for n in cluster.nodes):
        raise UsageError(
            f"{to} needs the passwords of BMCs, and cluster {cluster.name} has a hash alone",
            hint="Write `bmc: {password: …}` in place of `password_hash`, and `nospoon up`.",
        )
    others = [
        LeftOut("", node.name, f": {to} is for bare metal, not for kind {node.kind}")
        for node in cluster.nodes
        if node.kind not in kinds
    ]
    return replace(cluster, nodes=tuple(n for n in cluster.nodes if n.kind in kinds)), others


def _written(inventory: Inventory, to: str, before: Sequence[LeftOut]) -> Exported:
    """The text, and what it has no place for besides."""
    made = FORMATS[to].make(inventory)
    text = WRITERS[FORMATS[to].syntax](made.value)
    everywhere = _everywhere(inventory) if FORMATS[to].bmcs else ()
    return Exported(text, (*summed((*before, *_missing(inventory), *made.left_out)), *everywhere))


def _everywhere(inventory: Inventory) -> Iterator[str]:
    """BMCs at all addresses of their host, of which clients need one."""
    for address in dict.fromkeys(each.bmc.address for each in inventory.places):
        if address and ip_address(address).is_unspecified:  # VMs and containers may have none
            yield (
                f"address of BMCs at {address}, which means all addresses of their host: write the "
                "one that clients use in its place"
            )


def _missing(inventory: Inventory) -> Iterator[LeftOut]:
    there = {each.name for each in inventory.places}
    for node in inventory.cluster.nodes:
        if node.name not in there:
            yield LeftOut("", node.name, ": not there; `nospoon up` makes it")


def _json(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"


class _Dumper(Dumper):
    """Text that Ansible would take for a template is marked as none (its tag `!unsafe`)."""


def _text(dumper: yaml.CSafeDumper, value: str) -> yaml.Node:
    if any(each in value for each in TEMPLATES):
        return dumper.represent_scalar("!unsafe", value)
    return quoted_text(dumper, value)


_Dumper.add_representer(str, _text)


def _yaml(value: object) -> str:
    return "".join(parts(value, _Dumper))


def _documents(values: Sequence[object]) -> str:
    return "".join(documents(values))


WRITERS: Mapping[Syntax, Callable[[Any], str]] = {
    Syntax.JSON: _json,
    Syntax.YAML: _yaml,
    Syntax.YAML_STREAM: _documents,
    Syntax.TEXT: str,
}
