"""What tests of a directory share ends with the last of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from nospoon.testing.lasting import Lasting

HERE = Path("/tests/here")


def item(path: str) -> pytest.Item:
    return cast("pytest.Item", SimpleNamespace(path=Path(path)))


def test_it_is_made_once_and_ends_before_a_test_elsewhere() -> None:
    said: list[str] = []

    @contextmanager
    def make() -> Iterator[int]:
        said.append("made")
        yield len(said)
        said.append("over")

    shared = Lasting(HERE, make)
    shared.leave(item("/tests/here/test_a.py"))
    assert not said, "nothing asked for it"
    assert shared.get() == shared.get() == 1
    shared.leave(item("/tests/here/deep/test_b.py"))
    assert said == ["made"]
    shared.leave(item("/tests/elsewhere/test_c.py"))
    assert said == ["made", "over"]
    assert shared.get() == 3
    shared.leave(None)
    assert said == ["made", "over", "made", "over"]


def test_what_could_not_be_made_is_not_tried_for_each_test() -> None:
    tries = 0

    @contextmanager
    def fails() -> Iterator[int]:
        nonlocal tries
        tries += 1
        if tries:
            raise OSError("no cloud")
        yield tries

    shared = Lasting(HERE, fails)
    for _ in range(2):
        with pytest.raises(OSError, match="no cloud"):
            shared.get()
    assert tries == 1
