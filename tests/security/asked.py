"""A daemon in this process, asked by any user: its API as ASGI, without a socket.

Users are those of the machine's passwd(5): `MEMBERS` are in the group that may use the daemon.
"""

from __future__ import annotations

import asyncio
import json
import pwd
import socket
from collections.abc import AsyncIterator, MutableMapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from fastapi import FastAPI

from nospoon.daemon.wiring import Daemon
from nospoon.runtime.clock import Clock, unix
from nospoon.settings import settings_for
from nospoon.testing.own_network import own_network

GROUP = "nogroup"
"""The primary group of several users of every Debian."""
OWNER, OTHER = pwd.getpwnam("nobody").pw_uid, pwd.getpwnam("sync").pw_uid
STRANGER = pwd.getpwnam("bin").pw_uid


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(slots=True)
class Asked:
    """A daemon and its application."""

    daemon: Daemon
    app: FastAPI
    directory: Path

    async def ask(
        self,
        uid: int,
        method: str,
        path: str,
        body: Any = None,
        *,
        gone: bool = False,
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> Answer:
        """One request by this user; `gone`: who disconnects when the body is sent."""
        raw = (
            body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        )
        given: list[MutableMapping[str, Any]] = [{"type": "http.request", "body": raw}]
        given += [{"type": "http.disconnect"}] * gone
        parts: list[MutableMapping[str, Any]] = []
        over = asyncio.Event()

        async def receive() -> MutableMapping[str, Any]:
            if given:
                return given.pop(0)
            await over.wait()
            return {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            parts.append(message)

        try:
            scope = _scope("http", uid, path, method=method)
            scope["headers"] += headers
            await self.app(scope, receive, send)
        finally:
            over.set()
        start = next((each for each in parts if each["type"] == "http.response.start"), None)
        content = b"".join(each.get("body", b"") for each in parts)
        return Answer(start["status"] if start is not None else 0, content)

    async def attach(
        self, uid: int, path: str, *, typed: Sequence[str | bytes] = (), until: bytes = b""
    ) -> list[MutableMapping[str, Any]]:
        """What a user who opens a websocket is sent, up to its end. `typed`: messages of that user,
        who leaves when the answers have `until` in them.
        """
        given: list[MutableMapping[str, Any]] = [{"type": "websocket.connect"}]
        for each in typed:
            key = "text" if isinstance(each, str) else "bytes"
            given.append({"type": "websocket.receive", key: each})
        sent: list[MutableMapping[str, Any]] = []
        heard = asyncio.Event()

        async def receive() -> MutableMapping[str, Any]:
            if given:
                return given.pop(0)
            if until:
                await heard.wait()
            return {"type": "websocket.disconnect", "code": 1000}

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)
            if until in b"".join(each.get("bytes", b"") for each in sent):
                heard.set()

        await self.app(_scope("websocket", uid, path), receive, send)
        return sent

    async def up(self, uid: int, text: str) -> Answer:
        """Bring a cluster up, and wait until that has ended."""
        answer = await self.ask(uid, "POST", "/v1/clusters", {"file": "c.yaml", "text": text})
        if answer.status == 202 and answer.json["operation"]:
            await self.finished(uid, answer.json["operation"]["id"])
        return answer

    async def finished(self, uid: int, operation: str) -> MutableMapping[str, Any]:
        """An operation when it has ended."""
        await self.ask(uid, "GET", f"/v1/operations/{operation}/events")
        found: MutableMapping[str, Any] = (
            await self.ask(uid, "GET", f"/v1/operations/{operation}")
        ).json
        return found


def _scope(kind: str, uid: int, path: str, method: str = "GET") -> dict[str, Any]:
    parts = urlsplit(path)
    scope = {
        "type": kind,
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "http" if kind == "http" else "ws",
        "path": unquote(parts.path),
        "raw_path": parts.path.encode(),
        "query_string": parts.query.encode(),
        "root_path": "",
        "headers": [(b"host", b"nospoon"), (b"content-type", b"application/json")],
        "client": (f"uid={uid}", 1),
        "server": ("nospoon", 80),
        "subprotocols": [],
    }
    return scope | ({"method": method} if kind == "http" else {})


@asynccontextmanager
async def a_daemon(
    directory: Path, lab_clock: Clock = unix, /, **environment: str
) -> AsyncIterator[Asked]:
    """It runs, until the end; everything of it is in `directory`. It listens in a network of its
    own: its clusters have the default ports, as those of other workers have.
    """
    places = {
        f"NOSPOON_{n}_DIR": f"{directory}/{n.lower()}"
        for n in ("STATE", "RUNTIME", "POOL", "CACHE")
    }
    given = {**places, "NOSPOON_BOOT_PORT": "0", "NOSPOON_GROUP": GROUP, "HOME": str(directory),
             "NOSPOON_GRANTS": f"{directory}/grants.yaml", **environment}  # fmt: skip
    settings = settings_for(given, uid=0)
    for place in (settings.state, settings.runtime, settings.cache, settings.pools):
        place.mkdir(exist_ok=True, parents=True)
    settings.socket.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(settings.socket))
    listener.listen()
    async with AsyncExitStack() as end:
        end.enter_context(own_network())
        made = Daemon(settings, listener, asyncio.Event(), lab_clock=lab_clock)
        daemon = await end.enter_async_context(made)
        # which ports other programs of this machine have is no matter of these tests
        daemon.parts.planner._check_sockets = lambda *_: ()
        yield Asked(daemon, daemon.control.app, directory)
