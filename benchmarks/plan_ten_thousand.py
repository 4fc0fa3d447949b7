"""The plan of 10,000 unchanged nodes: load, resolve and compare, against a bare YAML parse."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

import yaml

from measure import report
from nospoon.clusterfile.load import load
from nospoon.model.resources.resource import Observed
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.addresses.allocate import Allocations, Occupied, allocate
from nospoon.plan.diff.diff import diff
from nospoon.plan.resolution.around import Surroundings
from nospoon.plan.resolution.resolve import resolve

COUNT = 10_000
ID = UUID(int=1)
TAG = OwnerTag("bench", ID)
SHORT = f"cluster: bench\nnetworks: {{n: {{cidr: 10.128.0.0/16}}}}\nnodes: [{{count: {COUNT}}}]\n"
LONG = "cluster: bench\nnodes:\n" + "".join(
    f"  - {{name: n{i}, cpus: 2, memory: 4GiB, disks: [10GiB], nics: [{{network: provision, "
    f"mac: '02:00:00:00:{i >> 8:02x}:{i & 255:02x}'}}]}}\n"
    for i in range(COUNT)
)
R = TypeVar("R")


def took(work: Callable[[], R]) -> tuple[R, float]:
    began = time.perf_counter()
    result = work()
    return result, time.perf_counter() - began


def main() -> None:
    _, parse = took(lambda: yaml.compose(LONG, Loader=yaml.CSafeLoader))
    _, long = took(lambda: load(LONG, file="x"))
    report(f"load {COUNT} nodes written out", long, reference=parse, of="a bare YAML compose")
    cluster, short = took(lambda: load(SHORT, file="x"))
    report(f"load {COUNT} nodes by count", short)
    (allocations, _), seconds = took(lambda: allocate(cluster, Allocations(), Occupied()))
    report("allocate", seconds)
    around = Surroundings({"here": "/p"}, {}, {})
    desired, seconds = took(lambda: resolve(cluster, ID, allocations, around))
    report(f"resolve to {len(desired)} resources", seconds)
    seen = [Observed(key, resource.shape, TAG) for key, resource in desired.items()]
    plan, compare = took(
        lambda: diff(cluster="b", cluster_id=ID, desired=desired, observed=seen, rules={})
    )
    assert plan.empty, "nothing has changed"
    _, bare = took(
        lambda: [a == b for a, b in zip(desired.values(), desired.values(), strict=True)]
    )
    report("compare, all unchanged", compare, reference=bare, of="bare equality")


if __name__ == "__main__":
    main()
