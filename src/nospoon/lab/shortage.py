"""Labs whose host or cloud had no capacity for a set: who tries again, when, and who waits.

No cloud reports when it has capacity again, so it is tried: when a set has given machines back, and
after a pause that doubles up to `LONGEST`. The rules:

- A set that asks for at least as much as one that found no capacity waits; smaller ones are tried.
- As many sets are tried at a time as a lab has proved to have capacity for: one after a failure,
  one more after each success, as in TCP's slow start (RFC 5681 §3.1).
- A set that `MOST_PASSED` others have passed claims the lab, and so does one that goes before all
  others (`longest`): none behind it is started there, and none at all while it is tried and what
  was made of it is removed, until it has started, or has found no capacity while no other set had
  any of it, from its begin to its end. What is missing then is used by others than the lab's sets,
  and those who need less go on.

All of it is forgotten with the daemon: a new one tries.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from nospoon.lab.assign import Grant
from nospoon.lab.work import Size

PAUSE, LONGEST = 15.0, 600.0
"""Seconds until a lab without capacity is tried again: the first time, and at most."""
ENOUGH = 64
"""Sets that may be tried at a time, beyond which a lab is taken for one with capacity."""
MOST_PASSED = 16
"""Sets that start in a lab before one that found no capacity there keeps the others waiting."""


@dataclass(frozen=True, slots=True)
class Need:
    """What dynamic machines of a set take together; `memory` in bytes."""

    machines: int = 0
    cpus: int = 0
    memory: int = 0

    @classmethod
    def of(cls, grants: Iterable[Grant | None]) -> Need:
        sizes = [each for each in grants if isinstance(each, Size)]
        return cls(len(sizes), sum(each.cpus for each in sizes), sum(each.memory for each in sizes))

    def is_at_least(self, other: Need) -> bool:
        return (
            self.machines >= other.machines
            and self.cpus >= other.cpus
            and self.memory >= other.memory
        )


@dataclass(slots=True)
class _Short:
    """Of one lab. `why`: of the last set that found no capacity, `whys`: of each, by its id.
    `needs`: what there was no capacity for, until `until`; Unix seconds. `most`: sets that may be
    tried at a time. `passed`: by id of a set that found none, the sets that have started since.
    `claims`: those of them that `MOST_PASSED` have passed.
    """

    why: str = ""
    whys: dict[str, str] = field(default_factory=dict)
    needs: list[Need] = field(default_factory=list)
    until: float = 0.0
    pause: float = PAUSE / 2
    most: int = 1
    passed: dict[str, int] = field(default_factory=dict)
    claims: set[str] = field(default_factory=set)


class Shortages:
    """Of all labs, by their keys."""

    def __init__(self) -> None:
        self._short: dict[str, _Short] = {}
        self._trying: defaultdict[str, dict[str, bool]] = defaultdict(dict)
        """Lab -> set -> whether no other one has had machines there since it is tried."""
        self._in_vain: defaultdict[str, set[str]] = defaultdict(set)
        """Sets that found no capacity, and of which something may be there yet."""

    def forget_lab(self, key: str) -> None:
        """Its file has changed, or is gone."""
        self._short.pop(key, None)

    def is_short(self, key: str) -> bool:
        """Whether a set that found no capacity there waits."""
        return key in self._short and bool(self._short[key].passed)

    def short(self) -> Collection[str]:
        """Labs that were found without capacity."""
        return self._short.keys()

    def why(self, key: str, set_id: str) -> str:
        """What a set was refused with, or the last one that found no capacity."""
        short = self._short.get(key)
        return short.whys.get(set_id, short.why) if short is not None else ""

    def may_try(self, key: str, need: Need, now: float) -> bool:
        """Whether a set with such a need may be started in a lab."""
        short = self._short.get(key)
        if short is None or not need.machines:
            return True
        trying = self._trying[key]
        if len(trying) >= short.most:
            return False
        # These are not in the queue: each attempt would let others take what it waits for.
        if not (short.claims.isdisjoint(trying) and short.claims.isdisjoint(self._in_vain[key])):
            return False
        return now >= short.until or not any(map(need.is_at_least, short.needs))

    def claims(self, key: str, set_id: str) -> bool:
        """Whether sets behind this one wait until it has been tried."""
        short = self._short.get(key)
        return short is not None and set_id in short.claims

    def claim(self, key: str, set_id: str) -> None:
        """Sets behind this one wait until it has been tried, if the lab has no capacity."""
        if (short := self._short.get(key)) is not None:
            short.claims.add(set_id)

    def begin(self, key: str, set_id: str, *, alone: bool) -> None:
        """Its dynamic machines are being made. `alone`: no other set has machines of the lab."""
        trying = self._trying[key]
        trying.update(dict.fromkeys(trying, False))
        trying[set_id] = alone

    def over(self, key: str, set_id: str) -> None:
        """They are not any more, however that ended."""
        self._trying[key].pop(set_id, None)

    def started(self, key: str, set_id: str) -> None:
        """There was capacity for it."""
        self.over(key, set_id)
        self.forget(set_id)
        if (short := self._short.get(key)) is not None:
            short.most, short.pause = short.most + 1, PAUSE / 2
            for other in short.passed:
                short.passed[other] += 1
                if short.passed[other] == MOST_PASSED:
                    short.claims.add(other)
            if short.most > ENOUGH and not short.passed:
                del self._short[key]

    def found_none(
        self, key: str, set_id: str, need: Need, why: str, now: float
    ) -> tuple[float, bool]:
        """There was no capacity for a set. Returns when it is tried again, if nothing is given back
        before, in Unix seconds, and whether it was alone: what it lacks, no set of the lab has.
        """
        alone = self._trying[key].get(set_id, False)
        self.over(key, set_id)
        self._in_vain[key].add(set_id)
        short = self._short.setdefault(key, _Short())
        if now >= short.until:
            short.needs.clear()
            short.pause = min(LONGEST, 2 * short.pause)
            short.until = now + short.pause
        short.why = short.whys[set_id] = why
        short.most = 1
        if not any(map(need.is_at_least, short.needs)):
            short.needs.append(need)
        short.passed.setdefault(set_id, 0)
        if alone:
            short.passed[set_id] = 0
            short.claims.discard(set_id)
        return short.until, alone

    def given_back(self, key: str, set_id: str, labs: Iterable[str]) -> None:
        """Nothing is left of a set of a lab, so these labs may have capacity again; what one gave
        back that found none is no news.
        """
        if set_id in self._in_vain[key]:
            self._in_vain[key].discard(set_id)
            return
        for each in labs:
            if (short := self._short.get(each)) is not None:
                short.needs.clear()
                short.until, short.pause = 0.0, PAUSE / 2

    def forget(self, set_id: str) -> None:
        """It does not wait any more."""
        for short in self._short.values():
            short.passed.pop(set_id, None)
            short.whys.pop(set_id, None)
            short.claims.discard(set_id)
