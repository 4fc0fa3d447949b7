"""The Redfish service: one table of resources, each with the methods that it answers.

Rules that hold for every resource (DSP0266): `OData-Version: 4.0` in every answer and 412 for
another one in a request; 405 with `Allow`; an ETag for what can be changed, with `If-Match` and
`If-None-Match`; errors with extended information. An account sees the systems that it may use.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from nospoon.runtime import clock
from nospoon.runtime.log_rate import RateLimitedLog
from nospoon.services.bmcs.accounts import Accounts
from nospoon.services.bmcs.redfish.http import query
from nospoon.services.bmcs.redfish.http.answers import (
    represented,
    respond,
)
from nospoon.services.bmcs.redfish.http.exchange import SAFE, Exchange
from nospoon.services.bmcs.redfish.http.logins import account_of, needs_no_login
from nospoon.services.bmcs.redfish.http.routes import Resource
from nospoon.services.bmcs.redfish.messages import errors
from nospoon.services.bmcs.redfish.messages.errors import RedfishError
from nospoon.services.bmcs.redfish.messages.listed import links_of
from nospoon.services.bmcs.redfish.resources import accounts as account_service
from nospoon.services.bmcs.redfish.resources import (
    bios,
    certificate_service,
    chassis,
    event_service,
    key_databases,
    managers,
    registries,
    root,
    secure_boot,
    sessions,
    systems,
    tasks,
    update,
    volumes,
)
from nospoon.services.bmcs.redfish.resources.parts import PARTS

if TYPE_CHECKING:
    from nospoon.services.bmcs.redfish.http.service import Service


MOST_AT_ONCE = 512
"""Requests of one account that one listener answers at the same time; others get 503."""
QUERIED_AT_ONCE = 8
"""Of those, with a query, or of a list that is made for each; others wait: it takes megabytes."""
VERBS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


_SECURE = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
]
"""No browser takes an answer for a page, or shows it in one."""
_OVER_TLS = [*_SECURE, (b"strict-transport-security", b"max-age=63072000")]
"""RFC 6797 §7.2: only over TLS."""

broken = RateLimitedLog()
"""Requests that broke: whoever finds one may send it again and again."""


class App:
    """The service for all BMCs that share one listener, as an ASGI application.

    It finds its resources itself: a framework's routing took as long as the rest of an answer.
    """

    def __init__(self, service: Service, accounts: Accounts) -> None:
        self._service, self._accounts = service, accounts
        self._in_progress: Counter[bytes] = Counter()
        """Requests of each account."""
        self._querying: WeakValueDictionary[bytes, asyncio.Semaphore] = WeakValueDictionary()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(Request(scope, receive), self._service, self._accounts)
        try:
            await self._answer(exchange, scope, receive, send)
        finally:
            self._release(exchange)

    async def _answer(self, exchange: Exchange, scope: Scope, receive: Receive, send: Send) -> None:
        request = exchange.request
        try:
            response = await self._respond(exchange)
        except ClientDisconnect:
            return  # in the middle of its body: no one is there to be answered
        except Exception:  # noqa: BLE001  (the outermost place; logged with its traceback)
            broken.exception("a Redfish request broke", method=request.method, path=scope["path"])
            response = _refused(errors.internal())
        response.raw_headers.extend(_OVER_TLS if scope["scheme"] == "https" else _SECURE)
        await response(scope, receive, send)

    def _admit(self, exchange: Exchange) -> None:
        """Raises `RedfishError` where the account has as many requests in progress as it may."""
        if self._in_progress[exchange.account] >= MOST_AT_ONCE:
            raise errors.too_many_requests()
        self._in_progress[exchange.account] += 1
        exchange.admitted = exchange.account

    async def _take_place(self, exchange: Exchange) -> None:
        """Wait for one of the account's places for long answers; it is held until the client has
        taken the answer. Raises `ClientDisconnect`.
        """
        places = self._querying.setdefault(exchange.account, asyncio.Semaphore(QUERIED_AT_ONCE))
        await places.acquire()
        exchange.querying = places
        if await exchange.request.is_disconnected():
            raise ClientDisconnect

    def _release(self, exchange: Exchange) -> None:
        if exchange.querying is not None:
            exchange.querying.release()
        if exchange.admitted is None:
            return
        self._in_progress[exchange.admitted] -= 1
        if not self._in_progress[exchange.admitted]:
            del self._in_progress[exchange.admitted]

    async def _respond(self, exchange: Exchange) -> Response:
        await exchange.begin()
        request, path = exchange.request, exchange.request.scope["path"]
        found = find(path) or find(path.removesuffix("/"))  # people write one too many
        if found is None:
            return _refused(errors.not_found(request.url.path))
        if request.method not in VERBS:
            return _refused(errors.not_implemented(request.method))
        resource, request.scope["path_params"] = found
        response = await _answer(resource, exchange, self._admit, self._take_place)
        if exchange.late is not None:
            served, seconds = exchange.late
            await served.wait_badly(seconds)
        if request.method in SAFE:
            response.raw_headers.append(_ALLOW[resource.path])
        return response


async def _answer(
    resource: Resource,
    exchange: Exchange,
    admit: Callable[[Exchange], None],
    take_place: Callable[[Exchange], Awaitable[None]],
) -> Response:
    method = "GET" if exchange.request.method == "HEAD" else exchange.request.method
    try:
        exchange.check_awake()
        _check_version(exchange)
        handler = resource.methods.get(method)
        if method not in resource.open_ or _asks_for_more(exchange):
            await _log_in(exchange)
            admit(exchange)
            if method == "GET" and _may_be_long(resource, exchange):
                await take_place(exchange)
        if method != "GET" and query.KNOWN.intersection(exchange.request.query_params):
            raise query.not_on_operation()
        if handler is None:
            raise errors.not_allowed(resource.allowed)
        if method != "GET":
            # later reads of it do not wait, so that no one comes between a look and the change
            await exchange.receive(resource.largest)
            await exchange.begin()  # bodies of many requests may have come at one moment
        response = await handler(exchange)
        if method == "GET" and exchange.request.scope["query_string"]:
            response = await _queried(exchange, response)
    except RedfishError as error:
        response = _refused(error)
    return response


def _may_be_long(resource: Resource, exchange: Exchange) -> bool:
    """Whether megabytes may be made for this request alone: what a query asks of a list, too."""
    asked = bool(exchange.request.scope["query_string"])
    return (asked or resource.lists) and not resource.endless


def _asks_for_more(exchange: Exchange) -> bool:
    """Whether what it asks of an open resource tells of others, which are not."""
    asked = exchange.request.scope["query_string"]
    return bool(asked) and query.looks_elsewhere(exchange.request.query_params)


async def _queried(exchange: Exchange, response: Response) -> Response:
    """The same answer, as query parameters want it.

    The resource's ETag is that of the answer, too, where nothing else is in it.
    """
    if response.status_code != 200 or "json" not in response.headers.get("content-type", ""):
        return response
    asked = exchange.request.query_params
    found, is_page = exchange.listed, asked.keys() <= {"$top", "$skip"}
    if found is not None and is_page and "Members" in found.body:
        # of a long list only what is asked for is made
        some = query.page({**found.body, "Members": found.paths}, asked)
        paths = some["Members"]
        assert isinstance(paths, Sequence), "a page of them"
        page = {**some, "Members": await links_of(paths, exchange.rest)}
        return await represented(exchange, page, _kept_headers(response), again=False)
    body = await _body_of(exchange, response)
    fetched = [0]
    fetch = partial(_fetch, exchange, fetched)
    wanted = await query.apply(body, asked, fetch, exchange.rest, size=lambda: fetched[0])
    again = query.looks_elsewhere(asked)
    return await represented(exchange, wanted, _kept_headers(response), again=again)


async def _body_of(exchange: Exchange, response: Response) -> dict[str, object]:
    """What this exchange is answered with; a long list is not decoded, but made in slices."""
    if exchange.listed is not None:
        return await exchange.listed.whole(exchange.rest)
    body: dict[str, object] = msgspec.json.decode(response.body)
    return body


def _kept_headers(response: Response) -> dict[str, str]:
    return {name: response.headers[name] for name in ("ETag", "Link") if name in response.headers}


async def _fetch(exchange: Exchange, fetched: list[int], path: str) -> dict[str, object] | None:
    """Another resource's body, for the same caller. `fetched`: counts its bytes."""
    found = find(path)
    if found is None or "GET" not in found[0].methods or found[0].endless:
        return None  # a client chooses links, too: origins of a subscription
    resource, params = found
    scope = {**exchange.request.scope, "path": path, "query_string": b"", "headers": [],
             "path_params": params}  # fmt: skip
    request = Request(scope, exchange.request.receive)  # long work looks whether its client is gone
    inner = replace(exchange, request=request, listed=None)
    try:
        response = await resource.methods["GET"](inner)
    except RedfishError:
        return None
    fetched[0] += len(response.body)
    return await _body_of(inner, response)


def _check_version(exchange: Exchange) -> None:
    asked = exchange.header(b"odata-version")
    if asked is not None and asked != "4.0":
        raise errors.header_invalid(412, f"OData-Version: {asked}", "Use 4.0")


def _refused(error: RedfishError) -> Response:
    return respond(error.body(), status=error.status, headers=error.headers)


async def _log_in(exchange: Exchange) -> None:
    """Basic (RFC 7617) or a session's token; 401 when neither fits."""
    token = exchange.header(b"x-auth-token")
    if token is not None:
        session = exchange.accounts.session(token, place=exchange.place, now=clock.monotonic())
        if session is None or not exchange.log_in(session.account):
            raise errors.unauthorized(exchange.path)
        exchange.username, exchange.session = session.username, session.id
        return
    credentials = _basic(exchange.header(b"authorization") or "")
    if credentials is None:
        if not needs_no_login(exchange):
            raise errors.unauthorized(exchange.path)
        return
    await account_of(exchange, *credentials)
    exchange.username = credentials[0]


def _basic(header: str) -> tuple[str, str] | None:
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        text = base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    username, colon, password = text.partition(":")
    return (username, password) if colon else None


RESOURCES: tuple[Resource, ...] = (
    # paths are tried in this order: what clients ask for most comes first
    *systems.RESOURCES,
    *root.RESOURCES,
    *sessions.RESOURCES,
    *PARTS,
    *tasks.RESOURCES,
    *account_service.RESOURCES,
    *update.RESOURCES,
    *bios.RESOURCES,
    *volumes.RESOURCES,
    *managers.RESOURCES,
    *chassis.RESOURCES,
    *secure_boot.RESOURCES,
    *key_databases.RESOURCES,
    *registries.RESOURCES,
    *event_service.RESOURCES,
    *certificate_service.RESOURCES,
)


def _pattern(path: str) -> re.Pattern[str]:
    words = re.split(r"{(\w+)}", path)
    parts = (f"(?P<{w}>[^/]+)" if n % 2 else re.escape(w) for n, w in enumerate(words))
    return re.compile("".join(parts) + r"\Z")


PATTERNS: Mapping[int, list[tuple[re.Pattern[str], Resource]]] = {
    depth: [(_pattern(each.path), each) for each in RESOURCES if each.path.count("/") == depth]
    for depth in {each.path.count("/") for each in RESOURCES}
}
"""By the number of slashes, each in the table's order."""
_ALLOW = {each.path: (b"allow", each.allowed.encode("ascii")) for each in RESOURCES}


def find(path: str) -> tuple[Resource, dict[str, str]] | None:
    """The resource at a path, and what the path names."""
    for pattern, resource in PATTERNS.get(path.count("/"), ()):
        match = pattern.match(path)
        if match is not None:
            return resource, match.groupdict()
    return None
