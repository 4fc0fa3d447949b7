"""Which machines a plan was refused for, so that the others get their BMCs all the same."""

from __future__ import annotations

from collections.abc import Iterable

from nospoon.errors import PlanRefused


def refused(error: PlanRefused, machines: Iterable[str]) -> dict[str, str]:
    """Machine -> why it cannot be adopted. Raises the error where it is about something else."""
    found: dict[str, str] = {}
    for reason in error.reasons:
        name = next((each for each in machines if reason.startswith(f"nodes: adopt {each}: ")), "")
        if not name:
            raise error
        found[name] = reason.removeprefix("nodes: ")
    return found
