"""VXLAN identifiers of other clusters: networks with one identifier are one, where they meet."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from uuid import UUID

from nospoon.model.cluster import Cluster
from nospoon.plan import identity


def against_identifiers(
    cluster: Cluster, cluster_id: UUID, others: Mapping[UUID, Collection[str]]
) -> Iterator[str]:
    """Why its networks cannot have the identifiers that they get. `others`: names of networks of
    other clusters, by the clusters' ids. Identifiers have 24 bits, and a file may choose an `id:`.
    """
    own = {
        identity.network_identifier(cluster_id, network.name): network.name
        for network in cluster.networks
        if network.overlay is not None
    }
    if not own:
        return
    for other, names in others.items():
        for name in names:
            number = identity.network_identifier(other, name)
            if number in own:
                yield (
                    f"network {own[number]}: another cluster has a network with its VXLAN "
                    f"identifier, {number}. Give the network another name."
                )
