"""How often a service is asked that does not say what changes."""

from __future__ import annotations

LEAST, MOST = 1.0, 15.0
"""Seconds between two looks."""
RESTS = 10
"""After a look as many times as long as it took: a service that is busy has better to do."""


def rest_after(look: float) -> float:
    """Seconds until the next look, after one that took so many. A look that was slow once, because
    of what one waits for, is no reason to come minutes late.
    """
    return min(max(LEAST, RESTS * look), MOST)
