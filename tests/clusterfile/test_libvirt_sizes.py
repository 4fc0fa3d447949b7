"""Sizes as libvirt takes them are sizes of a cluster file."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nospoon.clusterfile.fields import SIZES_END, parse_size
from nospoon.importers.sizes import size_of

LETTERS = "kmgtpe"
CASES = (str.lower, str.upper)


@given(number=st.integers(1, 2000), step=st.integers(1, 6), case=st.sampled_from(CASES))
@pytest.mark.parametrize(("suffix", "base"), [("", 1024), ("iB", 1024), ("B", 1000)])
def test_letters_are_powers_of_1024_and_with_a_b_of_1000(
    suffix: str, base: int, number: int, step: int, case: Callable[[str], str]
) -> None:
    written = f"{number}{case(LETTERS[step - 1] + suffix)}"
    size = number * base**step
    if size < SIZES_END:
        assert parse_size(size_of(written)) == size
    else:
        with pytest.raises(ValueError, match="expected a size of less than"):
            parse_size(size_of(written))


@pytest.mark.parametrize("bare", [512, "512", "512B", "512 bytes"])
def test_a_bare_number_is_bytes(bare: object) -> None:
    assert parse_size(size_of(bare)) == 512


@pytest.mark.parametrize("bad", ["", "g", "10x", "10gi", "10 gigabytes", "-1G", "0", [], True])
def test_what_is_no_size_is_refused(bad: object) -> None:
    with pytest.raises(ValueError, match="expected a"):
        size_of(bad)


@given(st.text())
def test_any_text_is_a_size_or_refused(text: str) -> None:
    with suppress(ValueError):
        assert parse_size(size_of(text)) > 0
