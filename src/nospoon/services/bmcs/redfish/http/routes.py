"""Paths and what their methods do, and the handlers that many of them share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from starlette.responses import Response

from nospoon.services.bmcs.redfish.http.answers import listed, tagged
from nospoon.services.bmcs.redfish.http.exchange import MAX_BODY, Exchange
from nospoon.services.bmcs.redfish.messages import errors
from nospoon.services.bmcs.redfish.messages.bodies import collection
from nospoon.services.bmcs.served import Served

Handler = Callable[[Exchange], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Resource:
    """A path and what its methods do. `open_`: methods that need no login.

    `largest`: bytes of a body. `endless`: its answer takes as long as its client likes. `lists`: it
    is a list that is made for each request, perhaps of many megabytes.
    """

    path: str
    methods: Mapping[str, Handler]
    open_: frozenset[str] = frozenset()
    largest: int = MAX_BODY
    endless: bool = False
    lists: bool = False

    @property
    def allowed(self) -> str:
        """The Allow header (RFC 9110 §10.2.1)."""
        head = ["HEAD"] if "GET" in self.methods else []
        return ", ".join(sorted({*self.methods, *head}))


def read(make: Callable[[Served], dict[str, object] | None]) -> Handler:
    """One resource of a BMC; None: this one has none."""

    async def handler(exchange: Exchange) -> Response:
        found = make(exchange.served())
        if found is None:
            raise errors.not_found(exchange.path)
        return tagged(exchange, found)

    return handler


def of_each_system(kind: str, path: str) -> Handler:
    """A collection with one for each system of the caller, called as that is."""

    async def handler(exchange: Exchange) -> Response:
        return await listed(exchange, kind, path, lambda system: (system,))

    return handler


def listing(kind: str, path: str, ids: Callable[[Served], Iterable[str] | None]) -> Handler:
    """A collection below a system, manager or chassis, None: this one has none; `path` with {id} as
    in the table.
    """

    async def handler(exchange: Exchange) -> Response:
        served = exchange.served()
        place = path.format(id=served.bmc.uuid, **_others(exchange))
        members = ids(served)
        if members is None:
            raise errors.not_found(exchange.path)
        return tagged(exchange, collection(kind, place, members))

    return handler


def member(make: Callable[[Served, str], dict[str, object] | None]) -> Handler:
    """A member of such a collection, by {member}; None: there is none."""

    async def handler(exchange: Exchange) -> Response:
        found = make(exchange.served(), exchange.request.path_params["member"])
        if found is None:
            raise errors.not_found(exchange.path)
        return tagged(exchange, found)

    return handler


def _others(exchange: Exchange) -> dict[str, str]:
    return {key: value for key, value in exchange.request.path_params.items() if key != "id"}
