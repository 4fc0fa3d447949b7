"""Placement of 10,000 nodes on 200 hosts, and packing against the least number of hosts possible.

The reference for time is one pass over nodes and hosts that only compares two numbers. The bound
for packing is the total demand divided by a host's size: no packing can be better than that.
"""

from __future__ import annotations

import math
import random
import time

from measure import report
from nospoon.clusterfile.load import load
from nospoon.model.cluster import Arch, Firmware
from nospoon.model.host_facts import HostFacts
from nospoon.plan.placement.placement import place

GIB = 1 << 30
NODES, HOSTS = 10_000, 200
FACTS = HostFacts(
    frozenset(Firmware), frozenset(Arch), tpm=True,
    cpus=128, memory=512 * GIB,
)  # fmt: skip


def bare_pass() -> float:
    began = time.perf_counter()
    rooms = [1 << 60] * HOSTS
    for size in range(NODES):
        for room in rooms:
            if room < size:
                break
    return time.perf_counter() - began


def main() -> None:
    reference = bare_pass()
    hosts = ", ".join(f"h{n}: {{overcommit: {{cpus: 16, memory: 1}}}}" for n in range(HOSTS))
    draw = random.Random(7)
    for strategy in ("spread", "balance", "pack"):
        groups = "\n".join(
            f"  - {{name: 'g{g}-{{n}}', count: 100, cpus: {draw.choice([1, 2, 4])}, "
            f"memory: {draw.choice([1, 2, 3, 4, 6, 8, 12, 16])}GiB, placement: {strategy}}}"
            for g in range(NODES // 100)
        )
        cluster = load(f"cluster: c\nhosts: {{{hosts}}}\nnodes:\n{groups}", file="bench")
        facts = {host.name: FACTS for host in cluster.hosts}
        began = time.perf_counter()
        placed, refused = place(cluster, {}, facts, {})
        seconds = time.perf_counter() - began
        assert not refused
        report(
            f"place 10,000 nodes on 200 hosts: {strategy}",
            seconds,
            reference=reference,
            of="a bare pass",
        )
        if strategy == "pack":
            used = len({each.host for each in placed.values()})
            least = math.ceil(sum(node.memory for node in cluster.nodes) / FACTS.memory)
            print(f"  packed on {used} hosts, at least {least} are needed: {used / least:.3f} x")


if __name__ == "__main__":
    main()
