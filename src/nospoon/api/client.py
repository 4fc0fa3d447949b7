"""The API's client: the CLI, the tests and everybody else use this one."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, TypeVar
from urllib.parse import quote, urlencode

from nospoon.api.errors import decode
from nospoon.errors import HostUnreachable, NospoonError
from nospoon.model.rest.labs import SetEnd, SetEvent
from nospoon.model.rest.operations import OperationEnd, OperationEvent
from nospoon.runtime.reasons import reason

T = TypeVar("T")
Json = Any
"""Decoded JSON as the server's wire models describe it (see docs/reference/api.md)."""


_TIMEVAL = struct.Struct("@ll")


def connected(path: str, timeout: float | None) -> socket.socket:
    """To a unix socket, also while so many connect to it that the kernel lets no more wait: a
    socket with a timeout is refused then (connect(2), EAGAIN), one without waits for its turn.
    """
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        whole, part = divmod(timeout or 0.0, 1)  # 0: for ever (socket(7))
        limit = _TIMEVAL.pack(int(whole), int(part * 1_000_000))
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        made.connect(path)
        made.settimeout(timeout)
    except OSError:
        made.close()
        raise
    return made


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float | None) -> None:
        super().__init__("nospoond", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = connected(self._path, self.timeout)


class Client:
    """A client of the daemon behind one unix socket. Blocking; one request at a time."""

    def __init__(self, socket_path: Path, *, timeout: float = 120.0) -> None:
        self.socket_path = socket_path
        self.timeout = timeout
        self._channel: socket.socket | None = None

    def get(self, path: str, **query: str) -> Json:
        return self._json("GET", path, query=query)

    def post(self, path: str, body: Json = None, **query: str) -> Json:
        return self._json("POST", path, body=body, query=query)

    def put(self, path: str, body: Json) -> Json:
        return self._json("PUT", path, body=body)

    def delete(self, path: str, **query: str) -> Json:
        return self._json("DELETE", path, query=query)

    def ask(self, kind: type[T], method: str, path: str, body: Json = None, **query: str) -> T:
        """The answer as what it is by `nospoon.model.rest`. Raises `NospoonError` where it is not:
        the daemon may be of another version.
        """
        import msgspec  # noqa: PLC0415  (commands that need no daemon do without)

        data = self._sent(method, path, body, query).read()
        try:
            return msgspec.json.decode(data, type=kind)
        except msgspec.DecodeError as error:
            raise _unexpected(f"{method} {path}", error) from error

    def upload(self, sha256: str, content: IO[bytes], size: int) -> None:
        """Send a file's content; the server checks the digest."""
        headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
        self._request("PUT", f"/v1/files/{sha256}", content=content, headers=headers).read()

    def text(self, path: str, **query: str) -> bytes:
        """The body as it is."""
        return self._request("GET", path, query=query).read()

    def stream(self, path: str, **query: str) -> Iterator[bytes]:
        """The body as it arrives, for ever if the server goes on."""
        with self._request("GET", path, query=query, timeout=None) as answer:
            while chunk := answer.read1(1 << 16):
                yield chunk

    def events(self, path: str, *, after: int = 0, deadline: float | None = None) -> Iterator[Json]:
        """Server-sent events, each decoded from its `data:` line (WHATWG HTML §9.2).

        `deadline`: on the monotonic clock; raises `TimeoutError` when it has passed.
        """
        query = {"after": str(after)}
        with self._request("GET", path, query=query, timeout=None) as answer:
            while line := self._line(answer, deadline):
                if line.startswith(b"data:"):
                    yield json.loads(line[5:])

    def operation_events(
        self, operation: str, *, deadline: float | None = None
    ) -> Iterator[OperationEvent | OperationEnd]:
        """What happens in an operation, as `events`; its end comes last."""
        for event in self.events(path := f"/v1/operations/{operation}/events", deadline=deadline):
            if "state" in event:
                yield _converted(event, OperationEnd, path)
            else:
                yield _converted(event, OperationEvent, path)

    def set_events(self, set_id: str) -> Iterator[SetEvent | SetEnd]:
        """What happens to a recipe set, as `events`; its end comes last."""
        for event in self.events(path := f"/v1/requests/{set_id}/events"):
            if "state" in event:
                yield _converted(event, SetEnd, path)
            else:
                yield _converted(event, SetEvent, path)

    def _line(self, answer: http.client.HTTPResponse, deadline: float | None) -> bytes:
        if deadline is not None and self._channel is not None:
            rest = deadline - time.monotonic()
            if rest <= 0:
                raise TimeoutError
            self._channel.settimeout(rest)
        return answer.readline()

    def _json(
        self, method: str, path: str, *, body: Json = None, query: Mapping[str, str] | None = None
    ) -> Json:
        data = self._sent(method, path, body, query).read()
        return json.loads(data) if data else None

    def _sent(
        self, method: str, path: str, body: Json, query: Mapping[str, str] | None
    ) -> http.client.HTTPResponse:
        content = json.dumps(body).encode() if body is not None else None
        headers = {"Content-Type": "application/json"} if content is not None else {}
        return self._request(method, path, query=query, content=content, headers=headers)

    def _request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        content: bytes | IO[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = -1,
    ) -> http.client.HTTPResponse:
        limit = self.timeout if timeout == -1 else timeout
        connection = _UnixConnection(str(self.socket_path), limit)
        once = {"Connection": "close"}  # the answer owns the socket: closed when it is read
        target = quote(path) + (f"?{urlencode(query)}" if query else "")
        try:
            # a body that is refused before all of it was sent breaks the pipe; the answer says why
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.request(method, target, body=content, headers=once | dict(headers or {}))
            self._channel = connection.sock
            answer = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            if isinstance(error, TimeoutError):
                raise HostUnreachable(
                    f"the daemon has not answered within {limit:.0f} s",
                    hint="It may still be running: see `nospoon operation list` and its log.",
                ) from error
            raise HostUnreachable(
                f"no daemon answers at {self.socket_path}: {reason(error)}",
                hint="Start it with `nospoon daemon start`.",
            ) from error
        if answer.status >= http.client.BAD_REQUEST:
            with answer:
                raise decode(_loads(answer.read()))
        return answer


def _loads(data: bytes) -> Json:
    try:
        return json.loads(data)
    except ValueError:
        return {"error": {"message": data.decode(errors="replace")[:500]}}


def _converted(event: object, kind: type[T], path: str) -> T:
    """An event of that path. Raises `NospoonError` as `ask`."""
    import msgspec  # noqa: PLC0415  (as above)

    try:
        return msgspec.convert(event, kind)
    except msgspec.ValidationError as error:
        raise _unexpected(f"GET {path}", error) from error


def _unexpected(asked: str, error: Exception) -> NospoonError:
    return NospoonError(
        f"the daemon answered {asked} with something else than expected: {error}",
        hint="It may be of another version: `nospoon daemon stop` ends it.",
    )
