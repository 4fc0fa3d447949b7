"""How long it takes until a stream that has ended is opened again.

At once, for the machine may be starting again. What ends whenever it is opened, such as the proxy
of a cloud whose console another program has, would be asked as fast as it answers.
"""

from __future__ import annotations

SHORT = 0.5
"""Seconds: a stream that lasted less has hardly been one."""
PAUSES = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
"""Seconds after streams that were short, one after the other."""


class Reopened:
    """Of one console; `opened`: when its stream was, by the clock of all arguments."""

    def __init__(self) -> None:
        self.opened, self._short = 0.0, 0

    def pause(self, now: float) -> float:
        """Seconds until a stream is opened again that ends now."""
        if now - self.opened >= SHORT:
            self._short = 0
            return 0.0
        self._short += 1
        return PAUSES[min(self._short, len(PAUSES)) - 1]
