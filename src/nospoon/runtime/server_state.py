"""What the connections of an HTTP server share: its limits, and headers of all its answers."""

from __future__ import annotations

from email.utils import formatdate

from uvicorn.server import ServerState

from nospoon.runtime.clock import unix
from nospoon.runtime.http_limits import LIMITS, HttpLimits

Header = tuple[bytes, bytes]


class LimitedState(ServerState):
    """What the connections of a server share."""

    def __init__(self, limits: HttpLimits = LIMITS) -> None:
        self._second, self._same, self._headers = -1, list[Header](), list[Header]()
        super().__init__()
        self.limits = limits

    @property
    def default_headers(self) -> list[Header]:
        """With `Date` (RFC 9110 §6.6.1), made when it is asked for in another second."""
        now = int(unix())
        if now != self._second:
            date = (b"date", formatdate(now, usegmt=True).encode())
            self._second, self._headers = now, [date, *self._same]
        return self._headers

    @default_headers.setter
    def default_headers(self, headers: list[Header]) -> None:
        self._second, self._same = -1, headers
