"""`host list`: the hosts of clusters, what is on them, and whether they answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from nospoon.control.fleet.hosts import Hosts
from nospoon.control.fleet.owned import each_cluster
from nospoon.control.planning.planner import Planner
from nospoon.errors import NospoonError
from nospoon.model.cluster import Host
from nospoon.model.principal import Principal
from nospoon.model.rest.hosts import HostSummary
from nospoon.runtime.few import all_begun
from nospoon.runtime.paced import paced
from nospoon.store import nodes as node_rows
from nospoon.store.database import Database
from nospoon.store.nodes import NodeRow


async def listed(
    database: Database, planner: Planner, hosts: Hosts, *, caller: Principal
) -> list[HostSummary]:
    """A row for each host of each cluster of this user."""
    found = []
    async for cluster in each_cluster(database, owner=caller.uid):
        members: defaultdict[str, list[NodeRow]] = defaultdict(list)
        for node in await database.read(node_rows.nodes_of, cluster.id):
            members[node.host.name].append(node)
        known = await planner.clusters.hosts_of(cluster)
        found += [(host, cluster.name, members[host.name]) for host in known]

    async def away(host: Host) -> str:
        return await _away(hosts, host, refused=planner.access.why_not(caller, host))

    asked = list(dict.fromkeys([host async for host, _, _ in paced(found)]))
    why = dict(zip(asked, await all_begun(asked, away), strict=True))
    for answer in why.values():
        if isinstance(answer, Exception):
            raise answer
    return [_row(*each, str(why[each[0]])) async for each in paced(found)]


async def _away(hosts: Hosts, host: Host, *, refused: str) -> str:
    if refused:
        return refused
    if not host.declares.is_real:
        return ""
    try:
        await hosts.use(host).connection.check()
    except NospoonError as error:
        return str(error)
    except ImportError as error:
        return f"{error.name} is not installed here"
    return ""


def _row(host: Host, cluster: str, nodes: Sequence[NodeRow], away: str) -> HostSummary:
    return HostSummary(
        host=host.name,
        cluster=cluster,
        where=host.where,
        nodes=len(nodes),
        cpus=sum(node.machine.cpus for node in nodes),
        memory=sum(node.machine.memory for node in nodes),
        drained=host.drained,
        away=away,
    )
