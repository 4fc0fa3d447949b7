"""What Prometheus reads of labs: a set that starts, one that fails, and two that are given up."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tests.control.test_lab_board import Place, place, state, until, wanted

from nospoon.control.labs.measured import BUCKETS
from nospoon.control.labs.metrics import metrics
from nospoon.control.labs.racks import NotMade
from nospoon.lab.work import Again, SetState
from nospoon.model.lab import Distro

__all__ = ["place"]
HOWTO = Path(__file__).parents[2] / "docs" / "howto" / "labs.md"
LINE = re.compile(r'(?P<name>\w+)\{(?P<labels>\w+="[^"]*"(,\w+="[^"]*")*)\} (?P<value>[0-9.]+)')
LABEL = re.compile(r'(\w+)="([^"]*)"')
SUFFIXES = ("_bucket", "_sum", "_count")


def read(lines: list[str]) -> dict[str, dict[tuple[str, ...], float]]:
    """Name -> values of labels -> value. Each metric has its help and type before it, once."""
    kinds, helped = dict[str, str](), set[str]()
    found = defaultdict[str, dict[tuple[str, ...], float]](dict)
    for line in lines:
        if line.startswith("# HELP "):
            helped.add(line.split()[2])
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name in helped
            assert name not in kinds
            kinds[name] = kind
        else:
            at = LINE.fullmatch(line)
            assert at is not None, line
            name = at["name"]
            family = next((name.removesuffix(s) for s in SUFFIXES if name.endswith(s)), name)
            assert family in kinds, line
            assert (kinds[family] == "histogram") == (family != name), line
            assert (kinds[family] == "counter") == name.endswith("_total"), line
            values = tuple(value for _, value in LABEL.findall(at["labels"]))
            assert values not in found[name], line
            found[name][values] = float(at["value"])
    return found


@pytest.mark.usefixtures("place")
async def test_they_count_what_becomes_of_sets(place: Place) -> None:
    distro = Distro("d", "http://m/k", "http://m/i")
    place.lab = replace(place.lab, distros=(distro,))
    place.machines.wrong = [NotMade("no host", again=Again.CAPACITY)]
    async with place.daemon() as board:
        sets, do = board.scheduler.sets, board.do
        first, second, third = await board.submit([wanted(board) for _ in range(3)], "")
        await until(lambda: sets[first.id].short == 1 and sets[first.id].state is SetState.QUEUED)
        place.now += 40
        board._wake.set()
        await until(lambda: sets[first.id].state is SetState.RUNNING)
        await do(partial(board.scheduler.cancel, second.id, "", place.now))
        await do(partial(board.scheduler.panicked, first.id, 0, "Oops", place.now))
        lines = list(metrics(board))
        before = read(lines)
        place.machines.stays = ["host is unreachable"] * 10_000
        await do(partial(board.scheduler.release, first.id, None, place.now))
        await until(lambda: board.trouble(first.id))
        stuck = read(list(metrics(board)))
        place.machines.stays.clear()
        await until(lambda: first.id not in sets)
        assert await state(board, third.id) is not SetState.ENDED
        after = read(list(metrics(board)))
    lab = "c/dev"
    assert before["nospoon_lab_sets"] == {
        (lab, "queued"): 1, (lab, "starting"): 0, (lab, "running"): 1, (lab, "ending"): 0,
    }  # fmt: skip
    assert before["nospoon_lab_machines"] == {(lab, "dynamic"): 1, (lab, "registered"): 0}
    assert before["nospoon_lab_sets_ended_total"] == {(lab, "cancelled"): 1}, "it only waited"
    assert before["nospoon_lab_failures_total"] == {
        (lab, "no_capacity"): 1, (lab, "kernel_panic"): 1,
    }  # fmt: skip
    assert before["nospoon_lab_sets_not_removed"] == {(lab,): 0}
    assert stuck["nospoon_lab_sets_not_removed"] == {(lab,): 1}
    assert stuck["nospoon_lab_sets"][lab, "ending"] == 1
    assert after["nospoon_lab_sets_ended_total"][lab, "completed"] == 1
    queue = before["nospoon_lab_queue_seconds_bucket"]
    below = [queue[lab, each] for each in (*map(str, BUCKETS), "+Inf")]
    assert below == sorted(below)
    assert (queue[lab, "30"], queue[lab, "60"], queue[lab, "+Inf"]) == (0, 1, 1)
    assert before["nospoon_lab_queue_seconds_sum"] == {(lab,): 40}
    assert before["nospoon_lab_build_seconds_count"] == {(lab,): 1}
    assert documented() == {
        (at["name"].removesuffix("_count"), names)
        for at in filter(None, map(LINE.fullmatch, lines))
        if not at["name"].endswith(("_bucket", "_sum"))
        for names in [",".join(name for name, _ in LABEL.findall(at["labels"]))]
    }


@pytest.mark.usefixtures("place")
async def test_of_labs_that_are_gone_nothing_is_counted(place: Place) -> None:
    """A user may make labs of other names without an end."""
    async with place.daemon() as board:
        first, second = await board.submit([wanted(board) for _ in range(2)], "")
        await until(lambda: board.scheduler.sets[first.id].state is SetState.RUNNING)
        await board.do(partial(board.scheduler.panicked, first.id, 0, "Oops", place.now))
        await board.do(partial(board.scheduler.cancel, second.id, "", place.now))
        counted = [board.measured.queue, board.measured.build, board.measured.ended]
        assert all([*counted, board.measured.failures])
        board.labs.put(place.cluster, 7, "c", [])
        await until(lambda: first.id not in board.scheduler.sets)
        assert not any("c/dev" in line for line in metrics(board))


def documented() -> set[tuple[str, str]]:
    """Name and labels of each metric."""
    table = HOWTO.read_text().partition("| metric | counts |")[2].partition("\n\n")[0]
    return set(re.findall(r"^\| `(\w+)\{([\w,]+)\}` \|", table, re.MULTILINE))
