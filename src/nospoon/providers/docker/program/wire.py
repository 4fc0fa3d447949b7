"""HTTP to an engine over its unix socket, of Python's standard library alone.

Paths have no version of Docker's API: an engine takes them for its newest then, and each one
refuses versions that are too old for it.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlencode

PIECE = 1 << 16
LONGEST = 600.0
"""Seconds for an answer: an image of gigabytes is read meanwhile."""
PEER = struct.Struct("iII")
"""Process, user and group of who listens at a socket (unix(7), SO_PEERCRED)."""


class EngineError(Exception):
    """The engine refused a call, or something failed beside it. `status`: of HTTP, 0 for none."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class EngineAway(EngineError):
    """No engine listens at the socket, or it ended during the call."""


def connected(path: str) -> socket.socket:
    """To an engine of root's or of one's own: what another user's says of processes is obeyed here
    with rights that this user has not.
    """
    made = socket.socket(socket.AF_UNIX)
    try:
        made.connect(path)
        peer = made.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size)
    except OSError as error:
        made.close()
        raise EngineAway(f"no engine answers at {path}: {error.strerror}") from error
    user = PEER.unpack(peer)[1]
    if user not in (0, os.geteuid()):
        made.close()
        raise EngineError(f"what listens at {path} is not root's: it is user {user}'s")
    return made


class Wire:
    """Calls of the engine behind a socket. `detach`: keys by which a console is left."""

    detach = ""

    def __init__(self, path: str) -> None:
        self.path = path

    def call(
        self,
        method: str,
        target: str,
        *,
        body: object = None,
        stream: Iterable[bytes] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> bytes:
        """What it answers. Raises `EngineError`."""
        where = f"{target}?{urlencode(query)}" if query else target
        with connected(self.path) as connection:
            connection.settimeout(LONGEST)
            try:
                send(connection, f"{method} {where}", body, stream)
                status, said = answer(connection)
            except (EOFError, ConnectionError) as error:
                raise EngineAway(
                    f"the engine at {self.path} ended before it had answered"
                ) from error
            except OSError as error:
                why = error.strerror or "it gave no answer in time"
                raise EngineError(f"the engine at {self.path} ended: {why}") from error
            except (ValueError, IndexError) as error:
                raise EngineError(f"what answers at {self.path} is not an engine") from error
        if status >= 400:
            raise EngineError(message_of(said), status)
        return said

    def get(self, target: str, **query: str) -> Any:
        return json.loads(self.call("GET", target, query=query) or b"null")

    def console(self, name: str) -> socket.socket:
        """Both ways: after the head of the answer come its bytes."""
        made = connected(self.path)
        query = f"stream=1&stdin=1&stdout=1&stderr=1&detachKeys={self.detach}"
        made.sendall(
            f"POST /containers/{name}/attach?{query} HTTP/1.1\r\nHost: engine\r\n"
            "Connection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n\r\n".encode()
        )
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = made.recv(1)
            head += byte
            if not byte or len(head) > PIECE:
                raise EngineError("the engine gives no console")
        if head.split()[1] not in (b"101", b"200"):
            raise EngineError(f"the engine gives no console: {head.splitlines()[0]!r}")
        return made


def send(
    connection: socket.socket, line: str, body: object, stream: Iterable[bytes] | None
) -> None:
    """A request (RFC 9112). http.client does it, too, and takes longer to import than all else:
    what is there is looked at all the time.
    """
    given = b"" if body is None else json.dumps(body).encode()
    kind = "application/json" if stream is None else "application/x-tar"
    size = f"Content-Length: {len(given)}" if stream is None else "Transfer-Encoding: chunked"
    head = f"{line} HTTP/1.1\r\nHost: engine\r\nConnection: close\r\nContent-Type: {kind}\r\n{size}"
    connection.sendall(f"{head}\r\n\r\n".encode() + given)
    if stream is not None:
        for piece in stream:
            connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
        connection.sendall(b"0\r\n\r\n")


def answer(connection: socket.socket) -> tuple[int, bytes]:
    """Status and content. Raises `ValueError` where it is not HTTP's, `EOFError` where it ends."""
    with connection.makefile("rb") as file:

        def line() -> bytes:
            found = file.readline(PIECE)
            if not found:
                raise EOFError
            return found.strip()

        status = int(line().split(maxsplit=2)[1])
        chunked = False
        while head := line().lower():
            chunked |= head.startswith(b"transfer-encoding:") and b"chunked" in head
        if not chunked:
            return status, file.read()
        said = b""
        while size := int(line().split(b";")[0], 16):
            said += file.read(size)
            line()
        return status, said


def message_of(said: bytes) -> str:
    """What an answer says that is an error."""
    try:
        return str(json.loads(said)["message"])
    except (ValueError, KeyError, TypeError):
        return said[:200].decode(errors="replace").strip()
