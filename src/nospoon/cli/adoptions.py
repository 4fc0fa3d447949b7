"""Which machines a plan was refused for, so that the others get their BMCs all the same."""

from __future__ import annotations

import re
from collections.abc import Iterable

from nospoon.errors import PlanRefused

_PLACE = re.compile(r"[^\n]*?:\d+:\d+: (?=nodes: adopt )")
"""In a file that the command has made."""


def refused(error: PlanRefused, machines: Iterable[str]) -> dict[str, str]:
    """Machine -> why it cannot be adopted. Raises the error where it is about something else."""
    found: dict[str, str] = {}
    for placed in error.reasons:
        reason = _PLACE.sub("", placed, count=1)
        name = next((each for each in machines if reason.startswith(f"nodes: adopt {each}: ")), "")
        if not name:
            raise error
        found[name] = reason.removeprefix("nodes: ")
    return found
