"""Connections of urllib3 to a service that a member names: where they may go, and for how long.

Its address is judged when it is connected to, after its name was resolved, also where a catalog or
a redirect named it.

A timeout of a socket begins again with each byte, so a server that sends one now and then would
keep a thread for days. Here each read may take what is left of the call.
"""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

import urllib3
from typing_extensions import Buffer, override

from nospoon.errors import ProviderError, Unfetchable
from nospoon.providers.cloud_calls import patience
from nospoon.runtime.costly import Line, Reading
from nospoon.runtime.reach import Reach, dial

CONNECT = 15.0
"""Seconds for which one of a name's addresses may be silent when it is connected to."""


class _Reading(Reading):
    def __init__(self, silence: object, line: socket.socket) -> None:
        super().__init__(line)
        self._line, self._silence = line, silence

    @override
    def readinto(self, buffer: Buffer) -> int | None:
        self._line.settimeout(patience(self._silence))
        return super().readinto(buffer)


def _answer(
    silence: object, line: socket.socket, method: str | None = None
) -> http.client.HTTPResponse:
    read = Line(line, partial(_Reading, silence))
    return http.client.HTTPResponse(read, method=method)  # type: ignore[arg-type]


class Plain(urllib3.connection.HTTPConnection):
    """http: what it sends and reads ends with the call."""

    def __init__(self, *args: Any, reach: Reach, **how: Any) -> None:
        self._reach = reach
        super().__init__(*args, **how)

    @override
    def _new_conn(self) -> socket.socket:
        silence = patience(self.timeout)
        try:
            line = dial(self.host, self.port, self._reach, min(silence, CONNECT))
        except Unfetchable as error:
            # keystoneauth passes on what is no error of requests, and hides the others
            raise ProviderError(
                f"nospoon does not connect to {self.host} port {self.port}, which is its own"
            ) from error
        for option in self.socket_options or ():
            line.setsockopt(*option)
        line.settimeout(silence)
        return line

    @override
    def request(self, *args: Any, **how: Any) -> None:
        if self.sock is not None:  # it was kept, with what the last call had left
            self.sock.settimeout(patience(self.timeout))
        super().request(*args, **how)

    @override
    def getresponse(self) -> urllib3.response.HTTPResponse:  # type: ignore[override]  # as theirs
        self.response_class = partial(_answer, self.timeout)  # type: ignore[assignment]
        return super().getresponse()


class Secure(Plain, urllib3.connection.HTTPSConnection):
    """https."""


Pool = urllib3.HTTPConnectionPool
Connect = Callable[..., Plain]


def _pool(kind: type[Pool], connect: Connect, /, *args: Any, **how: Any) -> Pool:
    made = kind(*args, **how)
    made.ConnectionCls = connect  # type: ignore[assignment]
    return made


def bound(manager: urllib3.PoolManager, reach: Reach) -> None:
    """Let all connections of a manager be such ones."""
    made = {
        "http": partial(_pool, Pool, partial(Plain, reach=reach)),
        "https": partial(_pool, urllib3.HTTPSConnectionPool, partial(Secure, reach=reach)),
    }
    manager.pool_classes_by_scheme = made  # type: ignore[assignment]  # it calls them only
