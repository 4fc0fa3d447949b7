"""What other tools wrote may be another user's: who imports it waits for no square or power of its
size, and gets words of nospoon's where it is nonsense.
"""

from __future__ import annotations

import pytest

from nospoon.errors import UsageError
from nospoon.importers import READERS, Source
from nospoon.importers.ansible_inventory import members
from nospoon.importers.sizes import size_of
from nospoon.importers.virtualbmc import MOST_LINE, hosts_of

LEVELS, MANY = 60, 100_000


def test_groups_are_gone_through_once_however_they_are_nested() -> None:
    """Of so many levels, each twice below the one before, 2**60 were gone through."""
    groups = {f"g{level}": {"children": [f"g{level + 1}"] * 2} for level in range(LEVELS)}
    assert members({**groups, f"g{LEVELS}": {"hosts": ["h"]}}, "g0") == ["h"]


def test_groups_that_lead_back_are_gone_through_once() -> None:
    assert members({"a": {"hosts": ["h"], "children": ["b"]}, "b": {"children": ["a"]}}, "a") == [
        "h"
    ]


def test_hosts_are_in_the_order_of_their_groups() -> None:
    groups = {"a": {"hosts": ["1"], "children": ["b", "c"]}, "b": {"hosts": ["2"]}}
    assert members({**groups, "c": {"hosts": ["3", "1"]}}, "a") == ["1", "2", "3"]


def test_lines_of_virtualbmc_are_bounded() -> None:
    """configparser takes hours for one of a megabyte."""
    text = f"[VirtualBMC]\na{' ' * (1 << 20)}b\n"
    with pytest.raises(UsageError, match=r"a/config:2: expected a configuration of virtualbmc"):
        READERS["virtualbmc"](Source("f", "", "c", files={"a/config": text}))
    fits = f"[VirtualBMC]\ndomain_name = a\nactive = True\n# {' ' * (MOST_LINE - 2)}\n"
    assert READERS["virtualbmc"](Source("f", "", "c", files={"a/config": fits})).text


def test_hosts_that_are_called_alike_are_counted_on() -> None:
    """For each, all names were compared with all that were taken."""
    found = hosts_of(f"qemu+ssh://u{number}@h/system" for number in range(10_000))
    assert list(found.values()) == ["h", *(f"h-{number}" for number in range(2, 10_001))]


def test_hosts_that_are_called_as_numbered_ones_have_names_of_their_own() -> None:
    uris = [f"qemu+ssh://{each}/system" for each in ("u1@h-2", "u1@h", "u2@h", "u2@h-2")]
    assert list(hosts_of(uris).values()) == ["h-2", "h", "h-3", "h-2-2"]


def test_what_of_ovb_is_not_carried_over_is_said_once() -> None:
    """Each was compared with all before it."""
    names = "".join(f"  a{number}: x\n" for number in range(MANY))
    found = READERS["ovb"](Source("f", f"resource_registry:\n{names}", "c"))
    assert len(found.left_out) == MANY + 2


def test_a_size_beyond_all_numbers_is_refused_with_words() -> None:
    with pytest.raises(ValueError, match="expected a size of a disk, got 9"):
        size_of("9" * 400 + "PB")
