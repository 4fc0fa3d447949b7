"""Where agents answer: one listener for all of one setting, each agent below a path of its own.

It stays open for a while after its last agent: the next one is rarely far.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from functools import partial
from typing import Protocol
from uuid import UUID

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from nospoon.errors import Busy, ProviderError
from nospoon.model.agent import Agents
from nospoon.protocols.agent.agent import AGENT_VERSION, Reply, fault
from nospoon.runtime.json_depth import DEEPEST, is_too_deep
from nospoon.runtime.limited_http import logged_in
from nospoon.runtime.request_turns import in_turns
from nospoon.runtime.serve import Contexts, HttpServer
from nospoon.runtime.slices import Slices
from nospoon.runtime.tasks import Tasks
from nospoon.runtime.tls import self_signed
from nospoon.services.agents.long_ones import LongOnes

BACKLOG = 1024
MAX_BODY = 8 << 20
"""Bytes of a command: a node and its ports as Ironic has them, and a config drive in base64."""
MAX_VALUES = 1 << 16
"""Values of it, as far as commas and brackets tell; those within strings count, too."""
QUOTES = 4
"""For each value: those of a name and of a text. Where others follow on one another, it is no JSON,
and to find that out took two seconds for 8 MiB of them.
"""
PIECE = 64 << 10
"""Bytes of an answer that wait for its client at a time."""
MOST, IDLE = 64, 60.0
"""Listeners of one user's agents, and seconds for which one stays open without an agent."""
Setting = tuple[str, int, bool]


@dataclass(frozen=True, slots=True)
class Listener:
    """One open place. `certificate` in PEM, "" without TLS."""

    url: str
    server: HttpServer
    certificate: str = ""


class Commanded(Protocol):
    """Agents that take commands; each answers 404 for a machine without one."""

    def refusal(self, machine: UUID, *, token: str) -> Reply | None:
        """Why this caller may command nothing; None where it may."""

    def owner(self, machine: UUID) -> int:
        """Whose the machine is."""

    def held(self, machine: UUID) -> int:
        """About so many bytes an answer about commands of its agent has."""

    def command(
        self, machine: UUID, body: object, *, token: str, size: int, values: int
    ) -> Reply: ...

    async def finished(self, machine: UUID, reply: Reply) -> None:
        """Until the command of that answer is not running any more."""

    def commands(self, machine: UUID, *, token: str) -> Reply:
        """What it was told to do so far."""

    def result(self, machine: UUID, command: str, *, token: str) -> Reply: ...


class Listeners:
    """Opens them for their first agent."""

    def __init__(self, agents: Commanded, tasks: Tasks, *, idle: float = IDLE) -> None:
        self._app, self._tasks, self._idle = _app(agents, Slices()), tasks, idle
        self._open: dict[Setting, Listener] = {}
        self._agents: defaultdict[Setting, Counter[int]] = defaultdict(Counter)
        """How many agents of each user are at each."""
        self._lock = asyncio.Lock()

    async def use(self, behaviour: Agents, owner: int) -> Listener:
        """Until `leave`. Raises `ProviderError` when it cannot be opened."""
        setting = _setting(behaviour)
        async with self._lock:
            if setting not in self._open:
                self._refuse_more(owner)
                self._open[setting] = await _opened(self._app, setting)
            self._agents[setting][owner] += 1
            return self._open[setting]

    def obstacle(self, behaviour: Agents) -> ProviderError | None:
        """Why agents could not answer where they are to, by a trial; None where they could."""
        setting = _setting(behaviour)
        if setting in self._open:
            return None
        try:
            _bound(*setting[:2]).close()
        except ProviderError as error:
            return error
        return None

    def leave(self, behaviour: Agents, owner: int) -> None:
        """One of this user's agents is there no more."""
        setting = _setting(behaviour)
        self._agents[setting] -= Counter({owner: 1})
        if not self._agents[setting]:
            self._tasks.start(self._close_unused(setting), name="close a listener of agents")

    def _refuse_more(self, owner: int) -> None:
        amount = sum(owner in users for users in self._agents.values())
        if amount >= MOST:
            raise ProviderError(
                f"your agents answer at {amount} addresses and ports, as many as may be",
                hint="Give simulated hosts the same `agents` address and port.",
            )

    async def _close_unused(self, setting: Setting) -> None:
        await asyncio.sleep(self._idle)
        async with self._lock:
            if not self._agents[setting] and setting in self._open:
                del self._agents[setting]
                await self._open.pop(setting).server.close()

    async def close(self) -> None:
        await asyncio.gather(*(each.server.close() for each in self._open.values()))
        self._open.clear()


def _setting(behaviour: Agents) -> Setting:
    return behaviour.address, behaviour.port, behaviour.tls


async def _opened(app: ASGIApp, setting: Setting) -> Listener:
    address, port, tls = setting
    bound = _bound(address, port)
    host = f"[{address}]" if ":" in address else address
    url = f"{'https' if tls else 'http'}://{host}:{bound.getsockname()[1]}"
    if not tls:
        server = HttpServer(app, [bound], ws="none")
        await server.start()
        return Listener(url, server)
    key, certificate = self_signed(address, name="simulated agents")
    server = HttpServer(app, [bound], contexts=Contexts.of(key + certificate), ws="none")
    await server.start()
    return Listener(url, server, certificate.decode())


def _bound(address: str, port: int) -> socket.socket:
    try:
        return socket.create_server(
            (address, port),
            family=socket.AF_INET6 if ":" in address else socket.AF_INET,
            backlog=BACKLOG,
        )
    except OSError as error:
        raise ProviderError(
            f"agents cannot answer on {address} port {port}: {error.strerror}",
            hint="Give the simulated host's `agents` another address or port.",
        ) from error


def _app(agents: Commanded, slices: Slices) -> ASGIApp:
    long_ones = LongOnes()

    def answer(machine: UUID, reply: Callable[[], Reply]) -> Response:
        """Made when it is its turn: it may be as long as all that its agent was given."""
        size, owner = agents.held(machine), agents.owner(machine)
        return _Answer(reply, partial(long_ones.turn, machine, owner, size))

    async def commands(request: Request) -> Response:
        machine, token = _machine(request), request.query_params.get("agent_token", "")
        if machine is None:
            return _response(fault(404, "not found"))
        if request.method != "POST":
            return answer(machine, lambda: agents.commands(machine, token=token))
        refused = agents.refusal(machine, token=token)  # strangers have nothing parsed
        if refused is not None:
            return _response(refused)
        logged_in(request.scope, machine)
        try:
            async with long_ones.turn(machine, agents.owner(machine), _announced(request)):
                reply = _commanded(agents, machine, await _received(request), token=token)
        except Busy as error:
            return _response(fault(503, error.message))
        if request.query_params.get("wait", "").lower() == "true":
            await agents.finished(machine, reply)
        return answer(machine, lambda: reply)

    async def command(request: Request) -> Response:
        machine, token = _machine(request), request.query_params.get("agent_token", "")
        if machine is None:
            return _response(fault(404, "not found"))
        wanted = request.path_params["command"]
        return answer(machine, lambda: agents.result(machine, wanted, token=token))

    async def status(request: Request) -> Response:
        del request
        return _response(Reply(200, {"version": AGENT_VERSION}))

    app = Starlette(
        routes=[
            Route("/{machine}/v1/commands", commands, methods=["GET", "POST"]),
            Route("/{machine}/v1/commands/", commands, methods=["GET", "POST"]),
            Route("/{machine}/v1/commands/{command}", command),
            Route("/{machine}/v1/status", status),
        ]
    )
    return in_turns(app, slices)


def _commanded(agents: Commanded, machine: UUID, data: bytes | None, *, token: str) -> Reply:
    """`data`: the body, None for one that is too long."""
    if data is None:
        return fault(413, f"expected a body of at most {MAX_BODY} bytes, got more")
    values = sum(data.count(mark) for mark in (b",", b"[", b"{"))
    ends, quotes = data.count(b"]") + data.count(b"}"), data.count(b'"')
    if max(values, ends, quotes // QUOTES) > MAX_VALUES:
        return fault(400, f"expected at most {MAX_VALUES} values, got more")
    if is_too_deep(data):
        return fault(400, f"expected at most {DEEPEST} levels, got more")
    try:
        body = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return fault(400, "The body is not JSON")
    return agents.command(machine, body, token=token, size=len(data), values=values)


def _announced(request: Request) -> int:
    """Bytes of its body, as many as it may have where it does not say."""
    length = request.headers.get("content-length", "")
    return int(length) if length.isdigit() else MAX_BODY


async def _received(request: Request) -> bytes | None:
    """None: it is too long, by what it says or by what comes (RFC 9112 §7.1)."""
    if _announced(request) > MAX_BODY:
        return None
    found = bytearray()
    async with aclosing(request.stream()) as chunks:
        async for chunk in chunks:
            found += chunk
            if len(found) > MAX_BODY:
                return None
    return bytes(found)


def _machine(request: Request) -> UUID | None:
    try:
        return UUID(request.path_params["machine"])
    except ValueError:
        return None


class _Answer(Response):
    """Sent in pieces, as its client takes it."""

    def __init__(
        self, reply: Callable[[], Reply], turn: Callable[[], AbstractAsyncContextManager[None]]
    ) -> None:
        super().__init__()
        self._reply, self._turn = reply, turn

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with self._turn():
                await self._send(_response(self._reply()), send)
        except Busy as error:
            await _response(fault(503, error.message))(scope, receive, send)

    async def _send(self, made: Response, send: Send) -> None:
        start = {"type": "http.response.start", "status": made.status_code}
        await send({**start, "headers": made.raw_headers})
        body = memoryview(made.body)
        for at in range(0, len(body), PIECE):
            piece = bytes(body[at : at + PIECE])
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def _response(reply: Reply) -> Response:
    return Response(msgspec.json.encode(reply.body), reply.status, media_type="application/json")
