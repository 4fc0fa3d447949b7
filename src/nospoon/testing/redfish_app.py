"""Redfish requests given to the application itself, without a socket; and the resources it has."""

from __future__ import annotations

import asyncio
import base64
import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from nospoon.services.bmcs.ports import BmcConfig
from nospoon.services.bmcs.redfish.app import App, find
from nospoon.testing.bench import Bench, endpoint
from nospoon.testing.redfish import Answer

ROOT = "/redfish/v1"
_NAMES_LINK = frozenset({"@odata.id", "@Redfish.ActionInfo", "target", "Uri"})
NO_END = ("/SSE", "/$metadata")
"""Resources that are not read here: a stream, and one that is not JSON."""


@dataclass(frozen=True, slots=True)
class Login:
    """Basic credentials."""

    username: str
    password: str

    def header(self) -> tuple[bytes, bytes]:
        pair = f"{self.username}:{self.password}".encode()
        return b"authorization", b"Basic " + base64.b64encode(pair)


@dataclass(frozen=True, slots=True)
class Redfish:
    """The application of a bench, asked by one account; None: by no one who logs in."""

    app: App
    server: tuple[str, int]
    login: Login | None
    client: str = "127.0.0.1"

    @classmethod
    def of(cls, b: Bench, login: Login | None = None) -> Redfish:
        """`login`: that of the first BMC, unless another one is given."""
        own = Login(b.first.bmc.username, b.first.password)
        app = App(b.service.redfish, b.service.listeners.accounts)
        return cls(app, (b.first.bmc.address, b.first.bmc.redfish_port), login or own)

    def at(self, config: BmcConfig) -> Redfish:
        """The same, where this BMC answers."""
        return replace(self, server=endpoint(config))

    def without_login(self) -> Redfish:
        return replace(self, login=None)

    async def ask(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        """`body`: bytes as they are, None for none, else what becomes JSON."""
        data = body if isinstance(body, bytes) else b"" if body is None else _json(body)
        sent: list[Any] = []

        async def receive() -> dict[str, object]:
            return {"type": "http.request", "body": data, "more_body": False}

        async def send(message: object) -> None:
            sent.append(message)

        async with asyncio.timeout(30):
            await self.app(self._scope(method, path, headers), receive, send)
        found = {k.decode(): v.decode("latin-1") for k, v in sent[0]["headers"]}
        got = b"".join(each.get("body", b"") for each in sent[1:])
        return Answer(sent[0]["status"], found, got)

    def _scope(self, method: str, path: str, headers: dict[str, str]) -> dict[str, object]:
        place, _, query = path.partition("?")
        given = [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()]
        own = [self.login.header()] if self.login is not None else []
        return {
            "type": "http", "http_version": "1.1", "method": method, "path": place,
            "raw_path": place.encode(), "query_string": query.encode(), "root_path": "",
            "headers": [(b"host", b"bmc"), *own, *given],
            "server": self.server, "client": (self.client, 1), "scheme": "http",
        }  # fmt: skip

    async def resources(self) -> dict[str, dict[str, object]]:
        """Every resource that this account sees, by its path: reached by links from the root."""
        found: dict[str, dict[str, object]] = {}
        wanted, asked = deque([ROOT]), {ROOT}
        while wanted:
            path = wanted.popleft()
            answer = await self.ask("GET", path)
            if answer.status != 200:
                continue
            found[path] = answer.json
            for link in _links(answer.json):
                place = link.partition("#")[0]
                if place not in asked and find(place) and not place.endswith(NO_END):
                    asked.add(place)
                    wanted.append(place)
        return found


def state(b: Bench) -> object:
    """All that requests may change: what BMCs keep, machines, sessions, event services."""
    accounts = b.service.listeners.accounts
    return (
        [_of(b, each.bmc.uuid) for each in b.configs],
        list(b.machines.told),
        list(b.machines.orders),
        list(b.media.asked),
        accounts.tokens,
        dict(b.store.event_settings),
        len(b.store.records),
    )


def _of(b: Bench, uuid: Any) -> Any:
    served = b.service.status(uuid)
    assert served is not None, "the bench serves it"
    runtime, log = served.aggregate.runtime, served.aggregate.log
    return runtime, served.aggregate.is_on, list(log.records)


def _json(body: object) -> bytes:
    return json.dumps(body).encode()


def _links(body: object) -> Iterator[str]:
    if isinstance(body, dict):
        for name, value in body.items():
            if name in _NAMES_LINK and isinstance(value, str):
                yield value
            else:
                yield from _links(value)
    elif isinstance(body, list):
        for each in body:
            yield from _links(each)
