"""What an `up` remembers of its cluster: one transaction, which refuses what is stale."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from uuid import UUID

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from nospoon.control.fleet.usage import Wanted
from nospoon.errors import Conflict, QuotaUsed, Stale
from nospoon.model.cluster import Cluster, Host
from nospoon.plan.addresses.claims import Claims, hosts_of_nodes
from nospoon.plan.identity import bridge_name, pool_name
from nospoon.store import capacity, logins
from nospoon.store import clusters as stored
from nospoon.store import nodes as node_rows
from nospoon.store.capacity import Taking
from nospoon.store.claims import stale
from nospoon.store.clusters import ClusterRow, Outline
from nospoon.store.nodes import NodeRow

MOST_CLUSTERS = 100
"""Of one member; administrators may have more."""
MOST_LOGINS = 64
"""At clouds, of one member: each has threads and descriptors while nodes are there."""


def save(
    connection: Connection,
    row: ClusterRow,
    nodes: Sequence[NodeRow],
    hosts: Sequence[Host],
    *,
    limited: bool,
    most_nodes: int = 0,
    settings: Mapping[str, bytes] | None = None,
    claimed: Claims | None = None,
    takings: Sequence[Taking] = (),
    wanted: Wanted | None = None,
) -> None:
    """Raises `Stale` when others took what the plan chose, `Conflict` for an id that another has,
    and `QuotaUsed` for one more cluster, more nodes or more logins, than a member may have
    (`limited`).

    `settings`: of the hosts' logins; `claimed`: what no other cluster may have; `takings` of nodes,
    of which `wanted` is what comes to a host.
    """
    others = stored.outlines_beside(connection, row)
    for other in others:
        _refuse(row, other)
    if limited:
        refuse_one_more({each.id for each in others if each.owner == row.owner}, row.id)
        known = node_rows.node_names(connection, owner=row.owner)
        refuse_more_nodes(known, row.id, {each.name for each in nodes}, most_nodes)
        used = {(row.id, each.name): login for each in hosts if (login := each.connection.login)}
        if used:
            refuse_more_logins(stored.logins_of(connection, owner=row.owner), used)
    if wanted is not None:
        wanted.require(connection, row.id)
    stored.save(connection, row, claimed, hosts=hosts_of_nodes(hosts, row.allocations))
    try:
        node_rows.put_nodes(connection, nodes)
    except IntegrityError as error:  # no machine is of two clusters
        raise stale("the same machine") from error
    capacity.put(connection, row.id, takings)
    stored.put_hosts(connection, row.id, hosts)
    logins.put(connection, settings or {})


def refuse_one_more(own: Collection[UUID], cluster_id: UUID) -> None:
    """Raises `QuotaUsed` for one more cluster than a member may have. `own`: those of that user."""
    if cluster_id not in own and len(own) >= MOST_CLUSTERS:
        raise QuotaUsed(
            f"you have {len(own)} clusters, and members may have {MOST_CLUSTERS}",
            hint="Take one down first: `nospoon status` shows yours.",
        )


def refuse_more_logins(
    known: Mapping[tuple[UUID, str], str], wanted: Mapping[tuple[UUID, str], str]
) -> None:
    """Raises `QuotaUsed` where a cluster gets logins, and its member has too many then. `known`: of
    all of that user's, by cluster and host.
    """
    count = len({*{**known, **wanted}.values()})
    if count > MOST_LOGINS and not {*wanted.values()} <= {*known.values()}:
        raise QuotaUsed(
            f"your clusters would have {count} logins at clouds, and members may have "
            f"{MOST_LOGINS}",
            hint="Take a cluster down first, or give clusters the same login.",
        )


def refuse_more_nodes(
    known: Mapping[UUID, Collection[str]], cluster_id: UUID, wanted: Collection[str], most: int
) -> None:
    """Raises `QuotaUsed` where a cluster gets nodes, and its member has more than `most` then.

    `known`: names of the nodes that each of his clusters has, `wanted`: those that it is to have.
    A cluster that only loses nodes is never refused: those that leave count until they are gone.
    """
    here = known.get(cluster_id, ())
    elsewhere = sum(len(names) for id_, names in known.items() if id_ != cluster_id)
    count = elsewhere + max(len(wanted), len(here))
    if most and count > most and not set(wanted) <= set(here):
        others = f", {elsewhere} of them in other clusters" if elsewhere else ""
        raise QuotaUsed(
            f"you would have {count} nodes{others}, and members may have {most}",
            hint="Take a cluster down first, or ask the administrator to set NOSPOON_MEMBER_NODES.",
        )


def refuse_anothers_bridges(cluster: Cluster, cluster_id: UUID, others: Collection[str]) -> None:
    """Names of bridges have 24 bits of a digest of the id, which a file may choose: who wants to be
    on another cluster's network finds an id that gives its name. `others`: bridges of those.
    """
    made = made_bridges(cluster, cluster_id)
    taken = sorted(made.keys() & others)
    if taken:
        raise Conflict(
            f"network {made[taken[0]]}: its bridge would be {taken[0]}, which another cluster has",
            hint="Choose another `id:`, or drop it, or give the network another name.",
        )


def made_bridges(cluster: Cluster, cluster_id: UUID) -> dict[str, str]:
    """Bridge -> the network for which it is made."""
    return {
        bridge_name(cluster_id, each.name): each.name
        for each in cluster.networks
        if not each.existing
    }


def refuse_other_simulation(
    cluster: Cluster, others: Callable[[Collection[str]], Iterable[Host]]
) -> None:
    """Simulated hosts of one name are one: its settings would hold for the machines that other
    users have there. `others`: hosts of these names, as those have them.
    """
    simulated = {each.name: each for each in cluster.hosts if not each.declares.is_real}
    for other in others(simulated.keys()) if simulated else ():
        mine = simulated[other.name].connection
        if not other.declares.is_real and other.connection != mine:
            raise Conflict(
                f"host {other.name}: another user has machines there, simulated with other "
                "settings",
                hint="Give yours another name.",
            )


def refuse_anothers_pool(cluster: Cluster, cluster_id: UUID, others: Collection[str]) -> None:
    """Its name has 32 bits of the id, which a file may choose. `others`: of other clusters."""
    pool = pool_name(cluster_id, cluster.name)
    if pool in others:
        raise Conflict(
            f"its pool would be {pool}, which another cluster has",
            hint="Choose another `id:`, or drop it, or give the cluster another name.",
        )


def _refuse(row: ClusterRow, other: Outline) -> None:
    if other.id == row.id and (other.owner, other.name) != (row.owner, row.name):
        raise Conflict(f"the id {row.id} was given to another cluster meanwhile")
    if other.id == row.id and other.generation >= row.generation:
        raise Stale(
            "the plan is stale: the cluster was changed since",
            hint="Look at a new one with `nospoon plan`.",
        )
    if other.id != row.id and (other.owner, other.name) == (row.owner, row.name):
        raise Stale(
            f"the plan is stale: a cluster {row.name} came meanwhile, with another id",
            hint="Another command recovered or created it: make a new plan with `nospoon plan`.",
        )
