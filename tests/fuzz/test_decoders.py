"""Garbage gives no exception, no state and no answer: every decoder, by hypothesis.

`scripts/fuzz` runs the same targets for longer, guided by coverage.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nospoon.testing.fuzzing import TARGETS, Target

ALL = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)


@ALL
@given(data=st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(target: Target, data: bytes) -> None:
    target.run(data)


@ALL
@given(
    changes=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=4),
    cut=st.integers(0, 40),
    tail=st.binary(max_size=20),
)
def test_what_is_almost_right_is_read_or_refused(
    target: Target, changes: list[tuple[int, int]], cut: int, tail: bytes
) -> None:
    data = bytearray(target.seed)
    for place, value in changes:
        data[place % len(data)] = value
    target.run(bytes(data[: len(data) - cut]) + tail)


@ALL
def test_what_each_begins_from_is_read(target: Target) -> None:
    target.run(target.seed)
