"""A cluster and what was decided for it -> the resources that must exist, and what each needs."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from nospoon.model.cluster import Cluster
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.resource import Resource
from nospoon.plan.addresses.allocate import Allocations
from nospoon.plan.enrollment.nova import in_nova
from nospoon.plan.key_pairs import pairs_on
from nospoon.plan.resolution.around import Surroundings
from nospoon.plan.resolution.context import Context
from nospoon.plan.resolution.machines import Machines
from nospoon.plan.resolution.networks import Networks
from nospoon.plan.resolution.nodes import Nodes
from nospoon.plan.resolution.ports import Ports
from nospoon.plan.resolution.relay import Relays
from nospoon.plan.resolution.segments import Segments
from nospoon.plan.resolution.storage import storage


def resolve(
    cluster: Cluster, cluster_id: UUID, allocations: Allocations, around: Surroundings
) -> dict[Key, Resource]:
    """Every resource of the cluster, by key, in the order in which one would make them."""
    context = Context.of(cluster, cluster_id, allocations, around)
    return {resource.key: resource for resource in _resources(context)}


def _resources(context: Context) -> Iterator[Resource]:
    segments = Segments(context)
    ports = Ports(context, segments)
    relays, networks = Relays(context, segments, ports), Networks(context, segments)
    nodes = Nodes(context, ports, Machines(context, segments, relays), relays)
    for host in context.used_hosts:
        yield from storage(context, context.hosts[host], relays)
    for host in context.used_hosts:
        for name, group in context.groups(context.hosts[host]).shapes.items():
            yield Resource(Key(Kind.SERVER_GROUP, host, name), group)
        for name, pair in pairs_on(context.hosts[host], context.nodes_on(host)).items():
            yield Resource(Key(Kind.KEY_PAIR, host, name), pair)
    for host in context.network_places:
        yield from networks.on(context.hosts[host])
    for node in context.cluster.nodes:
        yield from nodes.of(node, context.host_of(node))
    yield from in_nova(context.cluster, context.id)
