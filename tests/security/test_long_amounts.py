"""Sizes, times and traits of a cluster file may have a million characters, and be repeated by
aliases: patterns look at few of them. A plan with a thousand such traits stopped all threads a
thousand times, for a tenth of a second or more.
"""

from __future__ import annotations

import re
from typing import NoReturn

import pytest

from nospoon.clusterfile import fields
from nospoon.clusterfile.load import load
from nospoon.errors import SpecError

LONG = "1" * 1_000_000


class Few:
    """A pattern that is given short texts alone."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.pattern = pattern

    def match(self, text: str) -> re.Match[str] | None:
        assert len(text) <= fields.LONGEST_AMOUNT
        return self.pattern.match(text)


class Loud(str):
    __slots__ = ()

    def upper(self) -> NoReturn:
        raise AssertionError("all of it was written in capitals")


def test_long_sizes_and_times_are_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_SIZE", "_DURATION"):
        monkeypatch.setattr(fields, name, Few(getattr(fields, name)))
    assert fields.parse_size("0008GiB") == 8 << 30
    assert fields.parse_duration("02min") == 120
    for parse in (fields.parse_size, fields.parse_duration):
        with pytest.raises(ValueError, match=r"expected a (size|time) such as") as error:
            parse(LONG)
        assert len(str(error.value)) < 300


def test_of_a_long_trait_the_beginning_is_looked_at() -> None:
    with pytest.raises(ValueError, match="Write CUSTOM_A_A_A") as error:
        fields.parse_trait(Loud("a-" * 500_000))
    assert len(str(error.value)) < 500


def test_a_file_with_long_amounts_is_refused_in_few_words() -> None:
    text = (
        f"cluster: c\nhosts: {{h: simulated}}\nnodes: [{{memory: &a '{LONG}', disks: [*a, *a]}}]\n"
    )
    with pytest.raises(SpecError) as refused:
        load(text, file="x")
    assert len(str(refused.value)) < 2000
