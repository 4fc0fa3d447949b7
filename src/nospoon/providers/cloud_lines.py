"""Connections of urllib3 to a service that a member names: no call on them is without an end.

A timeout of a socket begins again with each byte, so a server that sends one now and then would
keep a thread for days. Here each read may take what is left of the call.
"""

from __future__ import annotations

import http.client
import io
import socket
from functools import partial
from typing import Any

import urllib3
from typing_extensions import override

from nospoon.providers.cloud_calls import patience


class _Reading(socket.SocketIO):
    def __init__(self, line: socket.socket, silence: object) -> None:
        super().__init__(line, "r")
        self._line, self._silence = line, silence

    @override
    def readinto(self, buffer: Any) -> int | None:
        self._line.settimeout(patience(self._silence))
        return super().readinto(buffer)


class _Line:
    """What `http.client.HTTPResponse` has of a socket."""

    def __init__(self, line: Any, silence: object) -> None:
        self._line, self._silence = line, silence

    def makefile(self, _mode: str) -> io.BufferedReader:
        """As `socket.makefile`, which counts who still reads."""
        self._line._io_refs += 1  # noqa: SLF001
        return io.BufferedReader(_Reading(self._line, self._silence))


def _answer(silence: object, line: socket.socket, **how: Any) -> http.client.HTTPResponse:
    return http.client.HTTPResponse(_Line(line, silence), **how)  # type: ignore[arg-type]


class _Ending:
    """Mixed into a connection: what it sends and reads ends with the call."""

    timeout: Any
    sock: Any
    response_class: Any

    def request(self, *args: Any, **how: Any) -> None:
        if self.sock is not None:  # it was kept, with what the last call had left
            self.sock.settimeout(patience(self.timeout))
        super().request(*args, **how)  # type: ignore[misc]

    def getresponse(self) -> Any:
        self.response_class = partial(_answer, self.timeout)
        return super().getresponse()  # type: ignore[misc]


class Plain(_Ending, urllib3.connection.HTTPConnection):
    """http."""


class Secure(_Ending, urllib3.connection.HTTPSConnection):
    """https."""


def _pool(kind: Any, connection: Any, *args: Any, **how: Any) -> Any:
    made = kind(*args, **how)
    made.ConnectionCls = connection
    return made


def bound(manager: urllib3.PoolManager) -> None:
    """Let all connections of a manager be such ones."""
    made: Any = {
        "http": partial(_pool, urllib3.HTTPConnectionPool, Plain),
        "https": partial(_pool, urllib3.HTTPSConnectionPool, Secure),
    }
    manager.pool_classes_by_scheme = made
