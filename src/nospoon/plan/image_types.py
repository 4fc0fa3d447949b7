"""The machine types that loaded images are for: which nodes begin with them, and where these go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nospoon.model.cloud_images import IN_CLOUD, CloudImage
from nospoon.model.cluster import Cluster, Node
from nospoon.model.host_facts import HostFacts
from nospoon.model.images import MOUNTED_ROOT, OF_KIND, HypervisorType
from nospoon.model.node_kind import NodeKind
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
    """The cluster, whose nodes know which machine types their images are for, and what they are."""
    typed = _typed(images)
    if not typed and not any(node.kind is NodeKind.CONTAINER for node in cluster.nodes):
        return cluster
    return replace(cluster, nodes=tuple(_with_types(node, typed, images) for node in cluster.nodes))


def with_cloud_images(cluster: Cluster, facts: Mapping[str, HostFacts]) -> Cluster:
    """The cluster, whose nodes know the same of images that are in clouds. `facts` of hosts."""
    there = list[tuple[str, CloudImage]]()
    for host in facts.values():
        there += ((name, each) for name, some in host.cloud_images.items() for each in some)
    if not there:
        return cluster
    known = {each.value for each in HypervisorType}
    typed = {
        f"{IN_CLOUD}{name}": HypervisorType(each.hypervisor_type)
        for name, each in there
        if each.hypervisor_type in known
    }
    mounted = {f"{IN_CLOUD}{name}": MOUNTED_ROOT for name, _ in there}
    return replace(
        cluster, nodes=tuple(_with_cloud_image(node, typed, mounted) for node in cluster.nodes)
    )


def _with_cloud_image(
    node: Node, typed: Mapping[str, HypervisorType], mounted: Mapping[str, str]
) -> Node:
    """Nova's containers begin with a file system."""
    root = node.disks[0].image if node.disks else ""
    known = replace(node, image_types=(typed[root],)) if root in typed else node
    if root in mounted and node.kind is NodeKind.CONTAINER:
        return replace(known, root_format=mounted[root])
    return known


def _with_types(
    node: Node, typed: Mapping[str, HypervisorType], images: Mapping[str, ImageFacts]
) -> Node:
    types = {typed[disk.source] for disk in node.disks if disk.source in typed}
    known = replace(node, image_types=tuple(sorted(types))) if types else node
    root = images.get(node.disks[0].source) if node.kind is NodeKind.CONTAINER else None
    return replace(known, root_format=root.format) if root is not None else known


def _typed(images: Mapping[str, ImageFacts]) -> dict[str, HypervisorType]:
    return {name: facts.hypervisor_type for name, facts in images.items() if facts.hypervisor_type}
