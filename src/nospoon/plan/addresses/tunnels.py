"""VXLAN identifiers of other clusters: networks with one identifier are one, where they meet."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from uuid import UUID

from nospoon.model.cluster import Cluster
from nospoon.plan.addresses.claims import identifiers


def against_identifiers(
    cluster: Cluster, cluster_id: UUID, taken: Collection[str]
) -> Iterator[str]:
    """Why its networks cannot have the identifiers that they get. `taken`: those of other clusters.
    Identifiers have 24 bits, and a file may choose an `id:`.
    """
    for number, network in identifiers(cluster, cluster_id).items():
        if number in taken:
            yield (
                f"network {network}: another cluster has a network with its VXLAN "
                f"identifier, {number}. Give the network another name."
            )
