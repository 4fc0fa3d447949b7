"""Requests that come at one moment, and the ends of their bodies, spread over turns of the loop."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nospoon.model.addresses import source_key
from nospoon.runtime.slices import Slices


def source_of(scope: Scope) -> Hashable:
    """Where a request comes from; None through a socket that does not say."""
    client = scope.get("client")
    return source_key(client[0]) if client else None


def in_turns(app: ASGIApp, slices: Slices, key: Callable[[Scope], Hashable] = source_of) -> ASGIApp:
    """Each request begins in a slice, and goes on in one when something of its body has come.
    `key`: who take turns.
    """

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        work = slices.begin(key(scope))

        async def turn() -> None:
            if not work.share():
                await work.rest()

        async def received() -> Message:
            message = await receive()
            await turn()
            return message

        await turn()
        await app(scope, received, send)

    return wrapped
