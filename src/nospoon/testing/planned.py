"""A cluster of one node as the plan wants it on a connection under test, and what becomes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nospoon.clusterfile.load import load
from nospoon.engine.execute import Limits, execute
from nospoon.engine.observe import Drivers, observe
from nospoon.engine.progress import Outcome, Progress
from nospoon.model.cluster import Cluster
from nospoon.model.declared import Networking
from nospoon.model.host_facts import HostFacts
from nospoon.model.node_kind import NodeKind
from nospoon.model.resources.keys import Key
from nospoon.plan.addresses.allocate import Allocations, Occupied, allocate
from nospoon.plan.diff.diff import diff
from nospoon.plan.order.kinds import KINDS
from nospoon.plan.order.order import Half
from nospoon.plan.order.steps import Plan
from nospoon.plan.refuse import reasons_against
from nospoon.plan.resolution.around import ImageFacts, Surroundings
from nospoon.plan.resolution.resolve import resolve
from nospoon.testing.racks import Bench

FILE = """
cluster: kit
hosts: {{here: simulated}}
networks: {networks}
nodes: [{{name: m1, kind: {kind}, cpus: 1, memory: 512MiB, nics: {nics}, {more}}}]
"""


def cluster_of(bench: Bench, network: str = "") -> Cluster:
    """One for this place. `network`: settings of its network, of one that suits where there are
    none.
    """
    declares = bench.declares
    if declares.networking in {Networking.SHARED, Networking.USER_MODE}:
        networks, nics = "{}", "[]"
    else:
        usual = f"bridge: {bench.network}" if bench.network else "netboot: none"
        networks, nics = f"{{lan: {{{network or usual}}}}}", "[lan]"
    is_container = bench.kind is NodeKind.CONTAINER
    more = "image: root.tar" if is_container else "firmware: bios, disks: [1GiB]"
    cluster = load(
        FILE.format(networks=networks, kind=bench.kind, nics=nics, more=more), file="kit.yaml"
    )
    return replace(cluster, hosts=(bench.place,))


async def refused(bench: Bench, cluster: Cluster) -> list[str]:
    """Why the plan refuses it, on this place as it is now."""
    return (await _decided(bench, cluster))[0]


async def planned(bench: Bench, cluster: Cluster) -> Plan:
    """What is left to do for it. Raises `AssertionError` for what cannot be there."""
    reasons, allocations, facts = await _decided(bench, cluster)
    assert not reasons, reasons
    image = bench.image
    images = {"root.tar": ImageFacts(image.sha256, image.format, image.virtual_size)}
    around = Surroundings({bench.host: bench.pool_root}, images, {}, facts=facts)
    resources = resolve(cluster, bench.cluster, allocations, around)
    desired = {key: each for key, each in resources.items() if not KINDS[key.kind].by_daemon}
    rules = (await bench.connection.capabilities()).rules
    return diff(
        cluster=cluster.name,
        cluster_id=bench.cluster,
        desired=desired,
        observed=await observe(_drivers(bench), bench.cluster),
        rules={bench.host: rules},
    )


async def carried_out(bench: Bench, plan: Plan) -> Outcome:
    return await execute(
        plan,
        drivers=_drivers(bench),
        tag=bench.tag,
        journal=_NoJournal(),
        emit=_unheard,
        limits=Limits(places={bench.host: bench.declares.calls}),
    )


async def _decided(
    bench: Bench, cluster: Cluster
) -> tuple[list[str], Allocations, Mapping[str, HostFacts]]:
    facts = {bench.host: await bench.connection.survey(bench.pool_root, ())}
    allocations, reasons = allocate(cluster, Allocations(), Occupied(), facts=facts)
    if not reasons:
        reasons = list(reasons_against(cluster, bench.cluster, allocations, facts))
    return reasons, allocations, facts


def _drivers(bench: Bench) -> Drivers:
    return {(bench.host, kind): driver for kind, driver in bench.connection.drivers.items()}


class _NoJournal:
    async def intend(self, key: Key, half: Half, token: str) -> int:
        del key, half, token
        return 0

    async def conclude(self, entry: int, error: str) -> None:
        """Nothing outlives a test."""


def _unheard(progress: Progress) -> None:
    """Its outcome says all."""
