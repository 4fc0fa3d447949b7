"""What labs have and did, in Prometheus's text format:
https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from nospoon.control.labs.access import KnownLab
from nospoon.control.labs.board import Board
from nospoon.control.labs.measured import BUCKETS, Histogram
from nospoon.lab.work import HOLDING, SetState

STATES = (SetState.QUEUED, *(each for each in SetState if each in HOLDING))


def metrics(board: Board) -> Iterator[str]:
    """Its lines, between which the labs may change."""
    yield from _begun("sets", "gauge", "Recipe sets that have not ended.")
    for known in _labs(board):
        lab, amounts = _label(known.shown), Counter(each.state for each in board.out(known.key))
        amounts[SetState.QUEUED] = board.scheduler.queued_in(known.key)
        for state in STATES:
            yield f'nospoon_lab_sets{{lab="{lab}",state="{state}"}} {amounts[state]}'
    yield from _begun("sets_not_removed", "gauge", "Ending sets whose removal failed so far.")
    for known in _labs(board):
        stuck = sum(bool(board.trouble(each.id)) for each in board.out(known.key))
        yield f'nospoon_lab_sets_not_removed{{lab="{_label(known.shown)}"}} {stuck}'
    yield from _begun("machines", "gauge", "Machines that recipe sets have.")
    for known in _labs(board):
        lab = _label(known.shown)
        runs = [run for each in board.out(known.key) for run in each.runs]
        for kind, amount in (
            ("dynamic", sum(run.size is not None for run in runs)),
            ("registered", sum(bool(run.machine) for run in runs)),
        ):
            yield f'nospoon_lab_machines{{lab="{lab}",kind="{kind}"}} {amount}'
    measured = board.measured
    yield from _begun("sets_ended_total", "counter", "Recipe sets that ended.")
    for (lab, result), amount in sorted(measured.ended.items()):
        yield f'nospoon_lab_sets_ended_total{{lab="{_label(lab)}",result="{result}"}} {amount}'
    yield from _begun("failures_total", "counter", "Failures of recipe sets and their recipes.")
    for (lab, cause), amount in sorted(measured.failures.items()):
        yield f'nospoon_lab_failures_total{{lab="{_label(lab)}",cause="{cause}"}} {amount}'
    yield from _begun("queue_seconds", "histogram", "From request to the start that succeeded.")
    yield from _histograms("queue_seconds", measured.queue)
    yield from _begun("build_seconds", "histogram", "From there until all machines were started.")
    yield from _histograms("build_seconds", measured.build)


def _labs(board: Board) -> Iterator[KnownLab]:
    return (each for each in list(board.known.values()) if each.key in board.known)


def _begun(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP nospoon_lab_{name} {text}"
    yield f"# TYPE nospoon_lab_{name} {kind}"


def _histograms(name: str, found: Mapping[str, Histogram]) -> Iterator[str]:
    for shown, each in sorted(found.items()):
        lab, below = _label(shown), 0
        for bound, amount in zip((*map(str, BUCKETS), "+Inf"), each.counts, strict=True):
            below += amount
            yield f'nospoon_lab_{name}_bucket{{lab="{lab}",le="{bound}"}} {below}'
        yield f'nospoon_lab_{name}_sum{{lab="{lab}"}} {each.total:.3f}'
        yield f'nospoon_lab_{name}_count{{lab="{lab}"}} {below}'


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
