"""Long work in a thread pauses where it would not be asked to."""

from __future__ import annotations

import time

from nospoon.runtime.pausing import PAUSE, SLICE, pausing


def test_a_pause_after_each_slice_of_work_and_none_within_one() -> None:
    times, pauses = iter([0.0, 0.4, 0.8, 1.2, 1.2, 1.8, 2.3, 2.3, 2.4, 2.5]), list[float]()
    items = pausing(range(7), now=lambda: next(times) * SLICE, pause=pauses.append)
    seen = [(item, len(pauses)) for item in items]
    assert seen == [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (6, 2)]
    assert set(pauses) == {PAUSE}


def test_an_empty_series_takes_no_time() -> None:
    assert list(pausing([], pause=time.sleep)) == []
