"""Serving an ASGI application inside the running loop, on sockets that are already bound."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, Self, TypedDict, Unpack
from weakref import finalize

import uvicorn
from starlette.types import ASGIApp

from nospoon.runtime.accepting import Acceptor, Authorize, Identify, by_address
from nospoon.runtime.http_limits import LIMITS, Connections, HttpLimits
from nospoon.runtime.limited_http import LimitedHttp
from nospoon.runtime.limited_websocket import WEBSOCKET, LimitedWebSocket
from nospoon.runtime.server_state import LimitedState
from nospoon.runtime.tasks import Tasks
from nospoon.runtime.tls import SESSIONS, restrict


class LongCertificates:
    """Contexts with long certificates, of which few are held: OpenSSL takes 35 times the bytes of a
    certificate that has thousands of names, and each of thousands of listeners may have one.
    """

    def __init__(self) -> None:
        self._held: dict[Contexts, None] = {}

    def use(self, contexts: Contexts) -> None:
        """It has a context now. The one that was not used for longest makes its own again."""
        self._held.pop(contexts, None)
        self._held[contexts] = None
        while len(self._held) > MOST_LONG:
            oldest = next(iter(self._held))
            self.drop(oldest)
            oldest.let_go()

    def drop(self, contexts: Contexts) -> None:
        self._held.pop(contexts, None)


LONG, MOST_LONG = 8 << 10, 32
"""Bytes of a file with a certificate, its chain and key that is a long one, and how many contexts
with such are held.
"""


class Contexts:
    """What TLS of a listener is served with, or of several: call it for each connection.

    OpenSSL keeps the sessions of clients of TLS 1.2 that take no ticket, 20,480 of 1.2 KiB for two
    hours, and Python has no way to forbid it: so a context with some is followed by another one.
    `long`: where it has a long certificate, it may be let go.
    """

    def __init__(
        self, certificate: Path, key: Path | None = None, *, long: LongCertificates | None = None
    ) -> None:
        """Raises `OSError`; what TLS says of files that do not fit is one."""
        self._files, self._long = (certificate, key), long
        self._context: ssl.SSLContext | None = self._made()

    @classmethod
    def of(cls, pem: bytes) -> Self:
        """Of a certificate and its key that are in no directory: it is read again for the next
        context, and whoever may write where it was once could have put another one there, or a FIFO
        without a writer, for which opening it waits.
        """
        descriptor = os.memfd_create("certificate")
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(pem)
            made = cls(Path(f"/proc/self/fd/{descriptor}"))
        except BaseException:
            os.close(descriptor)
            raise
        finalize(made, os.close, descriptor)
        return made

    def __call__(self) -> ssl.SSLContext:
        """Raises `OSError` where it was let go, and its files are not there any more."""
        if self._context is None:
            self._context = self._made()
        elif self._context.session_stats()["number"] >= SESSIONS:
            with contextlib.suppress(OSError):  # its files are not there, or do not fit just now
                self._context = self._made()
        elif self._is_long:
            self._use()
        return self._context

    def let_go(self) -> None:
        self._context = None

    def close(self) -> None:
        """It is not called any more."""
        if self._long is not None:
            self._long.drop(self)

    def renew(self, pem: Path) -> None:
        """Another certificate."""
        self._files, before = (pem, None), self._context
        fresh = self._made()

        def swap(connection: ssl.SSLObject, name: str | None, old: ssl.SSLContext) -> None:
            del name, old
            connection.context = fresh

        # Connections whose handshake waits have the one before, into which one could only add keys
        # of another kind. This is called for each of them before a certificate is chosen
        # (ssl.SSLContext.sni_callback).
        if before is not None:
            before.sni_callback = swap
        self._context = fresh

    def _made(self) -> ssl.SSLContext:
        fresh = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        fresh.load_cert_chain(*self._files)
        restrict(fresh)
        self._is_long = self._files[0].stat().st_size > LONG
        if self._is_long:
            self._use()
        return fresh

    def _use(self) -> None:
        if self._long is not None:
            self._long.use(self)


class _Server(uvicorn.Server):
    """uvicorn with our own accepting, and without its signal handlers: signals belong to the
    composition root.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        limits: HttpLimits,
        connections: Connections,
        identify: Identify,
        authorize: Authorize | None,
        contexts: Contexts | None,
    ) -> None:
        super().__init__(config)
        self.server_state: LimitedState = LimitedState(limits)
        self._limits, self._connections, self._identify = limits, connections, identify
        self._authorize = authorize
        self.contexts = contexts
        self._ending = asyncio.Event()

    def end(self) -> None:
        self.should_exit = True
        self._ending.set()

    async def main_loop(self) -> None:
        """uvicorn's looks ten times a second whether it is to end, each listener of thousands."""
        await self._ending.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """uvicorn's sleeps, also where there is no connection to wait for."""
        if self.server_state.connections or self.server_state.tasks:
            await super().shutdown(sockets)
            return
        for each in (*self.servers, *(sockets or ())):
            each.close()
        for server in self.servers:  # connections that have begun to connect
            await server.wait_closed()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()

        def make() -> LimitedHttp:
            made: LimitedHttp = self.config.http_protocol_class(  # type: ignore[call-arg, assignment]
                config=self.config, server_state=self.server_state, app_state={}, _loop=loop
            )
            return made

        self.server_state.default_headers = self.config.encoded_headers
        acceptors = [self._acceptor(each, make) for each in sockets or ()]
        self.servers = acceptors  # type: ignore[assignment]  # all that uvicorn does is to close them
        self.started = True

    def _acceptor(self, listener: socket.socket, make: Callable[[], LimitedHttp]) -> Acceptor:
        """In the place of an `asyncio.Server`."""
        return Acceptor(
            listener,
            make,
            limits=self._limits,
            connections=self._connections,
            identify=self._identify,
            authorize=self._authorize,
            context=self.contexts,
            backlog=self.config.backlog,
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Serving(TypedDict, total=False):
    """Settings of uvicorn, by its names for them."""

    ws: str | type[LimitedWebSocket]
    http: type[LimitedHttp]
    interface: Literal["asgi3"]


class HttpServer:
    """One application on some sockets. Start it, close it; closing ends open connections soon.

    `connections`: counts those of several servers together. `identify`: the peer that a connection
    is counted for; `authorize`: who may connect. `contexts`: of TLS, which several servers may
    have; None: it is served without.
    """

    def __init__(
        self,
        app: ASGIApp,
        sockets: list[socket.socket],
        *,
        limits: HttpLimits = LIMITS,
        connections: Connections | None = None,
        identify: Identify = by_address,
        authorize: Authorize | None = None,
        contexts: Contexts | None = None,
        **config: Unpack[Serving],
    ) -> None:
        settings: dict[str, Any] = {
            **WEBSOCKET,
            "lifespan": "off",
            "log_config": None,
            "access_log": False,
            "http": LimitedHttp,
            "timeout_keep_alive": limits.keep_alive,
            "timeout_graceful_shutdown": 1,
            "proxy_headers": False,  # no one stands between, who could say who asks
        }
        self._server = _Server(
            uvicorn.Config(app, **{**settings, **config}),
            limits,
            Connections(limits) if connections is None else connections,
            identify,
            authorize,
            contexts,
        )
        self._sockets = sockets
        for each in sockets:
            if each.family != socket.AF_UNIX:
                # What is accepted inherits it. asyncio sets it only where the protocol is named;
                # without it head and body of an answer are 40 ms apart (tcp(7), Nagle).
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._tasks = Tasks("http")
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Returns when requests are served."""
        self._task = self._tasks.start(self._server.serve(self._sockets), name="serve")
        while not self._server.started:
            if self._task.done():
                await self._task
            await asyncio.sleep(0.005)  # uvicorn tells its start by a flag only

    def renew(self, pem: Path) -> None:
        """Show this certificate to who connects from now on; those who are connected stay so."""
        if self._server.contexts is not None:
            self._server.contexts.renew(pem)

    async def close(self) -> None:
        if self._server.contexts is not None:
            self._server.contexts.close()
        self._server.end()
        if self._task is not None:
            await asyncio.wait([self._task])
        for each in self._sockets:
            each.close()
