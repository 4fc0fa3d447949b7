"""Serving an ASGI application inside the running loop, on sockets that are already bound."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn

from nospoon.runtime.tasks import Tasks


class _Quiet(uvicorn.Server):
    """uvicorn without its signal handlers: signals belong to the composition root."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpServer:
    """One application on some sockets. Start it, close it; closing ends open connections soon."""

    def __init__(self, app: Any, sockets: list[socket.socket], **config: Any) -> None:
        settings = {
            "lifespan": "off",
            "log_config": None,
            "access_log": False,
            "http": "httptools",
            "proxy_headers": False,  # nobody stands between, who could say who asks
        }
        self._server = _Quiet(
            uvicorn.Config(app, timeout_graceful_shutdown=1, **{**settings, **config})
        )
        self._sockets = sockets
        for each in sockets:
            if each.family != socket.AF_UNIX:
                # What is accepted inherits it. asyncio sets it only where the protocol is named;
                # without it head and body of an answer are 40 ms apart (tcp(7), Nagle).
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._tasks = Tasks("http")
        self._task: asyncio.Task[Any] | None = None

    async def start(self) -> None:
        """Returns when requests are served."""
        self._task = self._tasks.start(self._server.serve(self._sockets), name="serve")
        while not self._server.started:
            if self._task.done():
                await self._task
            await asyncio.sleep(0.005)  # uvicorn tells its start by a flag only

    def renew(self, pem: Path) -> None:
        """Show this certificate to who connects from now on; those who are connected stay so."""
        context = self._server.config.ssl
        if context is None:
            return
        fresh = ssl.SSLContext(context.protocol)
        fresh.load_cert_chain(pem)
        fresh.minimum_version = context.minimum_version
        fresh.options = context.options
        if self._server.config.ssl_ciphers:
            fresh.set_ciphers(self._server.config.ssl_ciphers)

        def swap(connection: ssl.SSLObject, name: str | None, old: ssl.SSLContext) -> None:
            del name, old
            connection.context = fresh

        # Into the context that the listener has one could only add keys of another kind. This is
        # called for each handshake, before a certificate is chosen (ssl.SSLContext.sni_callback).
        context.sni_callback = swap

    async def close(self) -> None:
        self._server.should_exit = True
        if self._task is not None:
            await asyncio.wait([self._task])
        for each in self._sockets:
            each.close()
