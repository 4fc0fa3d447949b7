"""Which disk Ironic's agent takes, by its hints (oslo.utils, specs_matcher)."""

from __future__ import annotations

from typing import Any

import pytest

from nospoon.plan.enrollment.root_device import GIB, KnownDisk, root_disk

DISKS = (
    KnownDisk("small", 2 * GIB, "S"),
    KnownDisk("large", 20 * GIB, "L", rotational=True),
    KnownDisk("fast", 10 * GIB, "F", rotational=False),
)


@pytest.mark.parametrize(
    ("hints", "wanted"),
    [
        ({}, "fast"),
        ({"size": 2}, "small"),
        ({"size": "== 20"}, "large"),
        ({"size": "= 5"}, "large"),
        ({"size": ">= 5"}, "large"),
        ({"size": "< 20"}, "small"),
        ({"size": "> 5", "rotational": False}, "fast"),
        ({"rotational": "true"}, "large"),
        ({"serial": "f"}, "fast"),
        ({"serial": "s== F"}, "fast"),
        ({"size": "!= 2"}, "large"),
        ({"size": "many"}, None),
        ({"size": 3}, None),
        ({"model": "QEMU"}, None),
        ({"serial": "<in> F"}, None),
    ],
)
def test_hints_choose_the_first_disk_that_matches(
    hints: dict[str, Any], wanted: str | None
) -> None:
    chosen = root_disk(hints, DISKS)
    assert (chosen.volume if chosen is not None else None) == wanted


def test_without_hints_and_without_a_disk_of_4_gib_there_is_none() -> None:
    assert root_disk({}, DISKS[:1]) is None
