"""What observed machines say of NICs that reach no network."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from nospoon.model.resources.resource import Deviation, Observed

UNLINKED = "unlinked"
"""MACs of NICs whose link someone took down, or that are not where they were plugged in."""


def with_unlinked(machine: Observed, macs: Iterable[str]) -> Observed:
    """It says that of these, too."""
    had = next((each for each in machine.deviations if each.field == UNLINKED), None)
    before = had.found if had is not None and isinstance(had.found, tuple) else ()
    found = Deviation(UNLINKED, tuple(dict.fromkeys((*before, *macs))), ())
    others = tuple(each for each in machine.deviations if each is not had)
    return replace(machine, deviations=(*others, found))
