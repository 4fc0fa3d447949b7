"""Labs: decisions per second, and what a request costs while others wait.

The scheduler alone decides on a queue of 100, 1,000 and 10,000 sets (CPU time); the reference is a
heap of as many tuples of which the first is taken and put back, the least that any queue does. Then
requests are submitted by the API of a daemon with simulated machines while up to 9,900 sets wait;
the reference is `GET /v1/labs` of the same daemon in the same run.

usage: labs.py
"""

from __future__ import annotations

import heapq
import statistics
import time
from collections.abc import Callable
from itertools import count

from nospoon.api.client import Client
from nospoon.lab.effects import Build, Effect
from nospoon.lab.scheduler import Scheduler
from nospoon.lab.work import Asked, Options, RecipeSet, Run, Size
from nospoon.model.lab import Lab, Limits
from nospoon.testing.rack import private_rack

SIZE = Size("small", 1, 1 << 30)
OPTIONS = {"k": Options((SIZE,))}
OWNERS = 20
ROUNDS, REPEATED = 100, 9
WAITING, MEASURED = (100, 200, 1_000, 9_900), 60
"""A user may have 10,000 sets that have not ended."""
AT_ONCE = 200
REQUIRES = "<hostRequires><memory op='&gt;=' value='1024'/></hostRequires>"
REQUEST, SET = {"text": REQUIRES}, f"<recipeSet><recipe>{REQUIRES}</recipe></recipeSet>"


def waiting_set(number: int) -> RecipeSet:
    run = Run(Asked("r"), OPTIONS)
    return RecipeSet(f"{number}.1", number, 0, f"o{number % OWNERS}", (run,), labs=("k",))


def started(effects: list[Effect]) -> str:
    """The set that was given the lab's only machine."""
    (found,) = [each.set_id for each in effects if isinstance(each, Build)]
    return found


def decisions(amount: int) -> float:
    """CPU seconds for a set to end, the next one to start, and another to come, while so many wait:
    the median of several measurements.
    """
    labs = Scheduler(at_once=False)
    labs.put_lab("k", Lab("k", limits=Limits(machines=1)))
    for number in range(amount + 1):
        labs.submit(waiting_set(number), 0.0)
    current, numbers = started(labs.decide(0.0)), count(amount + 1)
    labs.at_once = True

    def rounds() -> None:
        nonlocal current
        for _ in range(ROUNDS):
            labs.cancel(current, "", 1.0)
            ended, current = current, started(labs.removed(current, 1.0))
            labs.forget_ended([ended])
            labs.submit(waiting_set(next(numbers)), 1.0)

    return each_of(rounds)


def heap(amount: int) -> float:
    waiting = [(0, number, f"{number}.1") for number in range(amount)]
    heapq.heapify(waiting)

    def rounds() -> None:
        for _ in range(ROUNDS):
            first = heapq.heappop(waiting)
            heapq.heappush(waiting, (first[0], first[1] + amount, first[2]))

    return each_of(rounds)


def each_of(rounds: Callable[[], None]) -> float:
    """CPU seconds of one of these rounds: other processes do not count."""
    spent = []
    for _ in range(REPEATED):
        begun = time.process_time()
        rounds()
        spent.append((time.process_time() - begun) / ROUNDS)
    return statistics.median(spent)


def timed(call: Callable[[], object]) -> list[float]:
    found = []
    for _ in range(MEASURED):
        begun = time.perf_counter()
        call()
        found.append(time.perf_counter() - begun)
    return sorted(found)


def p95(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=20)[-1]


def submissions() -> None:
    with private_rack() as rack:
        text = f"""
cluster: lab
hosts: {{here: simulated}}
flavors: {{small: {{memory: 2GiB, disks: [20GiB]}}}}
labs: {{dev: {{limits: {{machines: 1}}}}}}
nodes: []
{rack.bmc()}"""
        rack.run("up", "--yes", rack.file(text))
        client = Client(rack.directory / "runtime" / "nospoond.sock")
        medians, waiting = [], 0
        for amount in WAITING:
            while waiting < amount:
                more = min(AT_ONCE, amount - waiting)
                client.post("/v1/requests", {"text": f"<job>{SET * more}</job>"})
                waiting += more
            submit = timed(lambda: client.post("/v1/requests", REQUEST))
            waiting += MEASURED
            bare = timed(lambda: client.get("/v1/labs"))
            medians.append(statistics.median(submit))
            ratio = medians[-1] / statistics.median(bare)
            print(
                f"submit with {amount:,} waiting: median {medians[-1] * 1e3:.1f} ms, "
                f"p95 {p95(submit) * 1e3:.1f} ms (goal: 1,000 ms), {ratio:.1f} times GET /v1/labs"
            )
        times = medians[-1] / medians[0]
        print(f"{WAITING[-1]:,} waiting cost {times:.1f} times {WAITING[0]} (goal: flat)")
        # its daemon is private, and its machine simulated: both go with its directory


def main() -> None:
    by_amount = {}
    for amount in (100, 1_000, 10_000):
        spent, least = decisions(amount), heap(amount)
        by_amount[amount] = spent
        print(
            f"{amount:6} waiting: {1 / spent:,.0f} decisions/s, {spent * 1e6:.0f} us each, "
            f"{spent / least:.0f} times a heap"
        )
    print(f"10,000 waiting cost {by_amount[10_000] / by_amount[100]:.1f} times 100 (goal: flat)")
    submissions()


if __name__ == "__main__":
    main()
