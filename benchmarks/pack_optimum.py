"""Packing against the optimum: the least number of hosts, found by branch and bound, for many small
clusters of nodes that differ in CPUs and memory. Prints how many hosts more `pack` takes.
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

CLUSTERS, NODES = 200, 14
CPUS, MEMORY = 16, 32
"""What a host has: CPUs, and GiB."""
FACTS = HostFacts(
    frozenset(Firmware), frozenset(Arch), tpm=True,
    cpus=CPUS, memory=MEMORY << 30,
)  # fmt: skip
Demand = tuple[int, int]


def fewest(demands: list[Demand]) -> int:
    """The least number of hosts that hold all demands. Exact: every way is tried but those that
    cannot be better, and those that differ by the hosts' order only.
    """
    ordered = sorted(demands, key=lambda each: -max(each[0] / CPUS, each[1] / MEMORY))
    best = len(ordered)

    def bound(left: list[Demand], rooms: list[Demand]) -> int:
        short_cpus = sum(each[0] for each in left) - sum(room[0] for room in rooms)
        short_memory = sum(each[1] for each in left) - sum(room[1] for room in rooms)
        more = max(math.ceil(short_cpus / CPUS), math.ceil(short_memory / MEMORY), 0)
        return len(rooms) + more

    def search(index: int, rooms: list[Demand]) -> None:
        nonlocal best
        if bound(ordered[index:], rooms) >= best:
            return
        if index == len(ordered):
            best = len(rooms)
            return
        cpus, memory = ordered[index]
        for room in sorted(set(rooms)):
            if room[0] >= cpus and room[1] >= memory:
                rest = list(rooms)
                rest.remove(room)
                search(index + 1, [*rest, (room[0] - cpus, room[1] - memory)])
        search(index + 1, [*rooms, (CPUS - cpus, MEMORY - memory)])

    search(0, [])
    return best


def packed(demands: list[Demand]) -> int:
    """The number of hosts that `placement: pack` takes."""
    hosts = ", ".join(f"h{n}: {{overcommit: {{cpus: 1, memory: 1}}}}" for n in range(NODES))
    nodes = "\n".join(
        f"  - {{name: n{n}, cpus: {cpus}, memory: {memory}GiB, placement: pack}}"
        for n, (cpus, memory) in enumerate(demands)
    )
    cluster = load(f"cluster: c\nhosts: {{{hosts}}}\nnodes:\n{nodes}", file="bench")
    placed, refused = place(cluster, {}, {host.name: FACTS for host in cluster.hosts}, {})
    assert not refused
    return len({each.host for each in placed.values()})


def main() -> None:
    draw = random.Random(7)
    clusters = [
        [(draw.choice([1, 2, 3, 4, 6, 8]), draw.choice([1, 2, 4, 6, 8, 12, 16]))
         for _ in range(NODES)]
        for _ in range(CLUSTERS)
    ]  # fmt: skip
    began = time.perf_counter()
    best = [fewest(each) for each in clusters]
    exact = time.perf_counter() - began
    began = time.perf_counter()
    ours = [packed(each) for each in clusters]
    report(f"pack {CLUSTERS} clusters of {NODES} nodes", time.perf_counter() - began,
           reference=exact, of="branch and bound")  # fmt: skip
    assert all(mine >= least for mine, least in zip(ours, best, strict=True))
    equal = sum(mine == least for mine, least in zip(ours, best, strict=True))
    print(
        f"  {sum(ours)} hosts, the optimum is {sum(best)}: {sum(ours) / sum(best):.3f} x; "
        f"as good as the optimum in {equal} of {CLUSTERS}"
    )


if __name__ == "__main__":
    main()
