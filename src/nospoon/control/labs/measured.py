"""What labs did since the daemon started, as Prometheus counts it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field

from nospoon.lab.effects import Happened
from nospoon.lab.work import Cause, RecipeSet

BUCKETS = (1, 5, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200)
"""Seconds; upper bounds of the histograms (Prometheus, histograms)."""


@dataclass(slots=True)
class Histogram:
    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        place = next((n for n, bound in enumerate(BUCKETS) if seconds <= bound), len(BUCKETS))
        self.counts[place] += 1
        self.total += seconds


@dataclass(slots=True)
class Measured:
    """Since the daemon started, by labs as they are shown, "" for none. `queue`: from the request
    to the start that succeeded, `build`: from there until all machines were started. `ended`: by
    (lab, result). `failures`: by (lab, cause).
    """

    queue: defaultdict[str, Histogram] = field(default_factory=lambda: defaultdict(Histogram))
    build: defaultdict[str, Histogram] = field(default_factory=lambda: defaultdict(Histogram))
    ended: Counter[tuple[str, str]] = field(default_factory=Counter)
    failures: Counter[tuple[str, Cause]] = field(default_factory=Counter)

    def keep(self, labs: Collection[str]) -> None:
        """Others are gone: a user may make labs without an end, each of another name."""
        for histograms in (self.queue, self.build):
            for lab in [each for each in histograms if each and each not in labs]:
                del histograms[lab]
        for key in [each for each in self.ended if each[0] and each[0] not in labs]:
            del self.ended[key]
        for failed in [each for each in self.failures if each[0] and each[0] not in labs]:
            del self.failures[failed]

    def note(self, lab: str, found: RecipeSet, event: Happened, now: float) -> None:
        """An event of a set in a lab."""
        if event.event == "started":
            self.queue[lab].add(found.started - found.submitted)
            self.build[lab].add(now - found.started)
        elif event.event == "ended":
            self.ended[lab, found.result] += 1
        if event.cause is not None:
            self.failures[lab, event.cause] += 1
