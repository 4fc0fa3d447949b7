"""The machine types that loaded images are for: which nodes begin with them, and where these go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nospoon.model.cluster import Cluster, Node
from nospoon.model.images import OF_KIND, HypervisorType
from nospoon.plan.resolution.around import ImageFacts


def wrong_kinds(cluster: Cluster, images: Mapping[str, ImageFacts]) -> list[tuple[str, str]]:
    """Images that nodes of some kind do not begin with, and why; each once. `images`: by source."""
    typed = _typed(images)
    found: dict[str, str] = {}
    for node in cluster.nodes if typed else ():
        for disk in node.disks:
            kind = typed.get(disk.source)
            if kind is not None and kind not in OF_KIND[node.kind]:
                fit = " or ".join(sorted(OF_KIND[node.kind]))
                found.setdefault(
                    disk.source,
                    f"the image is for {kind}, and node {node.name}, of kind {node.kind}, begins"
                    f" with one for {fit}",
                )
    return list(found.items())


def with_image_types(cluster: Cluster, images: Mapping[str, ImageFacts]) -> Cluster:
    """The cluster, whose nodes know which machine types their images are for."""
    typed = _typed(images)
    if not typed:
        return cluster
    return replace(cluster, nodes=tuple(_with_types(node, typed) for node in cluster.nodes))


def _with_types(node: Node, typed: Mapping[str, HypervisorType]) -> Node:
    types = {typed[disk.source] for disk in node.disks if disk.source in typed}
    return replace(node, image_types=tuple(sorted(types))) if types else node


def _typed(images: Mapping[str, ImageFacts]) -> dict[str, HypervisorType]:
    return {name: facts.hypervisor_type for name, facts in images.items() if facts.hypervisor_type}
