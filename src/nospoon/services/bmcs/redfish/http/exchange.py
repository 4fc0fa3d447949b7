"""One Redfish request being answered: who asks, what the path names, and how answers look."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import aclosing
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import quote
from uuid import UUID

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from nospoon.bmc.faults import HTTP, HTTP_LATE, Kind
from nospoon.bmc.users import ADMINISTRATOR
from nospoon.model.addresses import source_key
from nospoon.runtime import clock
from nospoon.runtime.json_depth import DEEPEST, is_too_deep
from nospoon.runtime.limited_http import logged_in
from nospoon.runtime.slices import Slice
from nospoon.services.bmcs.accounts import OPERATOR, Accounts, Place
from nospoon.services.bmcs.redfish.messages import errors
from nospoon.services.bmcs.redfish.messages.encoding import JSON, encoded, long_tag_of, tag_of
from nospoon.services.bmcs.redfish.messages.listings import BATCH, Rest, T, ordered
from nospoon.services.bmcs.redfish.messages.metadata import odata_type
from nospoon.services.bmcs.redfish.messages.uris import ROOT

if TYPE_CHECKING:
    from nospoon.services.bmcs.redfish.http.service import Service
    from nospoon.services.bmcs.served import Served

PIECE = 64 << 10
"""Bytes of a long answer that are handed over at a time."""
MAX_BODY = 64 << 10
"""Bytes of a request's body."""
ODATA = {"OData-Version": "4.0", "Cache-Control": "no-cache, no-store"}


CLOCK = "DateTime"
"""The property that changes by itself."""
SAFE = frozenset({"GET", "HEAD"})
"""Methods that only look."""


@dataclass(slots=True)
class Exchange:
    """One request being answered: who asks. `account` b"": nobody who logged in."""

    request: Request
    service: Service
    accounts: Accounts
    account: bytes = b""
    username: str = ""
    late: tuple[Served, float] | None = None
    """The BMC whose fault on demand delays the answer, and by how many seconds."""
    listed: Listed | None = None
    """The resource that it is answered with, where that is a long list."""
    admitted: bytes | None = None
    """The account whose requests in progress this one is counted with."""
    querying: asyncio.Semaphore | None = None
    """Where this one holds one of its account's places for long answers."""
    _data: bytes | None = None
    """The body, once it was received."""
    _slice: Slice | None = None
    """Of long work for this request."""

    @property
    def path(self) -> str:
        return self.request.url.path

    @property
    def place(self) -> Place:
        """The endpoint that was asked, of which there is one for all addresses of a wildcard."""
        return self.service.registry.endpoint(self.request.scope["server"])

    def served(self, system: str | None = None) -> Served:
        """The BMC that the path names, or that of this system, when this caller may see it."""
        given = self.request.path_params["id"] if system is None else system
        try:
            uuid = UUID(given)
        except ValueError:
            raise self._by_name(given) from None
        if str(uuid) != given.lower():  # there are other ways to write one (RFC 9562 §4)
            raise errors.not_found(self.path)
        found = self.service.registry.status(uuid)
        if found is None:
            raise self._by_name(str(uuid))
        if not all(uuid in each for each in self._seen):
            raise errors.not_found(self.path)
        if self.request.method not in SAFE and not self._may_change(uuid):
            raise errors.forbidden()
        if found.aggregate.is_restarting:
            raise errors.restarting()
        self._fail_on_demand(found)
        return found

    def _by_name(self, name: str) -> errors.RedfishError:
        """Where a node is that the path names, or whose machine is called so, or has this id at its
        cloud: sushy-emulator's clients may use names of machines (its AliasAccessError).
        """
        found = [uuid for uuid in self.service.registry.named(name) if self.sees(uuid)]
        if len(found) != 1:
            return errors.not_found(self.path)
        first, _, rest = self.path.partition(f"/{name}")
        return errors.elsewhere(self.path, quote(f"{first}/{found[0]}{rest}"))

    def administered(self, system: str | None = None) -> Served:
        """The same, when this caller may configure the BMC itself."""
        served = self.served(system)
        if self.accounts.privilege(self.account, served.bmc.uuid) < ADMINISTRATOR:
            raise errors.forbidden()
        return served

    def check_awake(self) -> None:
        """A BMC with an address of its own answers nothing there while it restarts."""
        here = self.service.registry.redfish_at(self.request.scope["server"])
        if len(here) == 1:
            served = self.service.registry.status(next(iter(here)))
            if served is not None and served.aggregate.is_restarting:
                raise errors.restarting()

    def _fail_on_demand(self, found: Served) -> None:
        late = found.strike(HTTP_LATE, self.service.effects.now)
        self.late = (found, late.seconds) if late is not None else self.late
        fault = found.strike(HTTP, self.service.effects.now)
        if fault is not None:
            status = 500 if fault.kind is Kind.HTTP_500 else 503
            headers = {"Retry-After": f"{fault.seconds:.0f}"} if status == 503 else {}
            raise errors.general(status, "An injected fault.", headers=headers)

    def _may_change(self, system: UUID) -> bool:
        return self.accounts.privilege(self.account, system) >= OPERATOR

    async def members(self) -> tuple[str, ...]:
        """Ids of the systems that this caller may see, steadily ordered."""

        async def make() -> tuple[int, tuple[str, ...]]:
            found = await ordered(self.systems(), self.rest)
            return len(found), found

        return await self.kept("members", make)

    async def kept(self, what: str, make: Callable[[], Awaitable[tuple[int, T]]]) -> T:
        """What follows from who may see which BMCs, for this account and address."""
        key = self.account, self.place, what
        return await self.service.listings.get(key, self._version, make)

    def _version(self) -> tuple[int, int]:
        return self.accounts.changes, self.service.registry.changes

    def sees(self, system: UUID) -> bool:
        """Whether this caller may see a system here."""
        return all(system in each for each in self._seen)

    def systems(self) -> AbstractSet[UUID]:
        """Those that this caller may see here."""
        own, here = self._seen
        return own & here

    def least_privilege(self) -> int:
        """The least that the caller may do with any system that it sees here."""
        return self.accounts.least_privilege(self.account, self._seen[1])

    def log_in(self, account: bytes | None) -> bool:
        """Whether this is an account that may see something here."""
        self.account = account or b""
        own, here = self._seen
        if own.isdisjoint(here):
            return False
        logged_in(self.request.scope, self.account)
        return True

    @property
    def _seen(self) -> tuple[AbstractSet[UUID], AbstractSet[UUID]]:
        """The account's systems, and those at the address that the request came to.

        A BMC with an address of its own is seen there only, and alone.
        """
        own = self.accounts.systems(self.account)
        return own, self.service.registry.redfish_at(self.request.scope["server"])

    async def begin(self) -> None:
        """Before any work: much of it at a time is done in several turns of the loop.

        Raises `ClientDisconnect` as `rest` does.
        """
        self._slice = self.service.slices.begin(self._whose_turn())
        if not self._slice.share():
            await self.rest()

    def _whose_turn(self) -> Hashable:
        """The account of a session, which clients without a login at the same address do not delay;
        else where the request comes from.
        """
        token = self.request.headers.get("x-auth-token")
        if token is not None:
            session = self.accounts.session(token, place=self.place, now=clock.monotonic())
            if session is not None:
                return session.account
        client = self.request.scope.get("client")
        return source_key(client[0]) if client else None

    async def rest(self) -> None:
        """Between parts of long work: others get their turn on the loop.

        Raises `ClientDisconnect` where nobody waits for what is read any more.
        """
        if self._slice is None:
            self._slice = self.service.slices.begin()
        waited = await self._slice.rest()
        if waited and self.request.method in SAFE and await self.request.is_disconnected():
            raise ClientDisconnect

    async def receive(self, largest: int = MAX_BODY) -> bytes:
        """The request's body, which is kept. Raises `RedfishError`."""
        if self._data is None:
            self._data = await self._received(largest)
        return self._data

    async def _received(self, largest: int) -> bytes:
        """However it is framed: chunks tell no length before they come (RFC 9112 §7.1)."""
        found = bytearray()
        if int(self.request.headers.get("content-length") or 0) > largest:
            raise errors.too_large()
        async with aclosing(self.request.stream()) as chunks:
            async for chunk in chunks:
                found += chunk
                if len(found) > largest:
                    raise errors.too_large()
        return bytes(found)

    async def body(self) -> dict[str, object]:
        """The request's JSON object. Raises `RedfishError`."""
        data = await self.receive()
        kind = self.request.headers.get("content-type", "application/json")
        if kind.partition(";")[0].strip().lower() != "application/json":
            raise errors.header_invalid(415, f"Content-Type: {kind}", "Use application/json")
        if is_too_deep(data):
            raise errors.malformed(f"expected at most {DEEPEST} levels, got more")
        try:
            value = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise errors.malformed("it is not JSON in UTF-8") from None
        if not isinstance(value, dict):
            raise errors.malformed(f"expected an object, got {type(value).__name__}")
        return value

    async def given(self) -> dict[str, object]:
        """The same; {} where the body may be left out, and is. Raises `RedfishError`."""
        return await self.body() if await self.receive() else {}


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


_JSON_HEADERS = (
    *((name.lower().encode("ascii"), value.encode("ascii")) for name, value in ODATA.items()),
    (b"content-type", b"application/json;charset=utf-8"),
)


def respond(
    body: object, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """An answer with a JSON body."""
    return _written(JSON.encode(body), status, headers or {})


def _written(data: bytes, status: int, headers: Mapping[str, str]) -> Response:
    """Its headers are not built again: this is the hot path."""
    response = Response(data, status)
    response.raw_headers = [
        *_JSON_HEADERS,
        (b"content-length", str(len(data)).encode("ascii")),
        *((k.lower().encode("latin-1"), v.encode("latin-1")) for k, v in headers.items()),
    ]
    return response


def tagged(exchange: Exchange, body: dict[str, object]) -> Response:
    """A resource with its ETag; 304 when the client has it (RFC 9110 §13.1.2).

    With query parameters the client has something else: they are to be looked at first.
    """
    data = JSON.encode(body)
    tag = tag_of(data) if CLOCK not in body else etag(body)
    return tagged_json(exchange, data, tag, str(body["@odata.type"]))


def tagged_json(exchange: Exchange, data: bytes, tag: str, odata_type: str) -> Response:
    """The same of what is encoded, whose ETag is known."""
    if not exchange.request.scope["query_string"] and is_known(exchange, tag):
        return not_modified(tag)
    headers = {"ETag": tag, "Link": _described_by(odata_type)}
    # encoding it again with the tag in it would take as long as all the rest
    data = data[:-1] + b',"@odata.etag":' + JSON.encode(tag) + b"}"
    return _written(data, 200, headers)


@dataclass(frozen=True, slots=True)
class Listed:
    """A resource with a long list of links: `body` has none of them, `paths` are those.

    `place`: the names that lead to the list. `data`: all of it as JSON, `tag`: its ETag.
    """

    body: dict[str, object]
    paths: Sequence[str]
    data: bytes
    tag: str
    place: tuple[str, ...] = ("Members",)

    async def whole(self, rest: Rest) -> dict[str, object]:
        """The body with its links."""
        links = await links_of(self.paths, rest)
        return {**_with_links(self.body, self.place, links), "@odata.etag": self.tag}


async def links_of(paths: Sequence[str], rest: Rest) -> list[dict[str, str]]:
    """Made in slices."""
    links = list[dict[str, str]]()
    for start in range(0, len(paths), BATCH):
        await rest()
        links.extend(ref(each) for each in paths[start : start + BATCH])
    return links


def _with_links(
    body: Mapping[str, object], place: Sequence[str], links: list[dict[str, str]]
) -> dict[str, object]:
    first, *further = place
    if not further:
        return {**body, first: links}
    inner = body[first]
    assert isinstance(inner, Mapping), "a list below it has that place"
    return {**body, first: _with_links(inner, further, links)}


async def listed(
    exchange: Exchange, kind: str, path: str, names: Callable[[str], Iterable[str]], **more: str
) -> Response:
    """A collection of what all systems of the caller have. `names`: those of a system's."""

    def empty(count: int) -> dict[str, object]:
        return {**collection(kind, path, ()), **more, "Members@odata.count": count}

    return await linked(exchange, path, names, empty, ("Members",))


async def linked(
    exchange: Exchange,
    path: str,
    names: Callable[[str], Iterable[str]],
    empty: Callable[[int], dict[str, object]],
    place: tuple[str, ...],
) -> Response:
    """A resource with links, below `path`, to what all systems of the caller have; it is kept.

    `empty`: the resource for so many links, without them; its list at `place` is its last one.
    """

    async def make() -> tuple[int, Listed]:
        members = await exchange.members()
        paths, pieces = [], []
        for start in range(0, len(members), BATCH):
            await exchange.rest()
            batch = [f"{path}/{name}" for each in members[start : start + BATCH]
                     for name in names(each)]  # fmt: skip
            if batch:
                paths.extend(batch)
                pieces.append(JSON.encode([ref(each) for each in batch])[1:-1])
        body = empty(len(paths))
        head, members_, tail = JSON.encode(body).rpartition(b"[]")
        data = b"".join((head, members_[:1], b",".join(pieces), members_[1:], tail))
        tag = await long_tag_of(data, exchange.rest)
        return len(paths), Listed(body, paths, data, tag, place)

    exchange.listed = found = await exchange.kept("/".join((path, *place)), make)
    return tagged_json(exchange, found.data, found.tag, str(found.body["@odata.type"]))


async def long(exchange: Exchange, empty: dict[str, object], paths: Sequence[str]) -> Response:
    """A collection that may have thousands of members, as `tagged` answers it; encoded in slices,
    and not decoded for query parameters.
    """
    body = {**empty, "Members@odata.count": len(paths)}
    links = await links_of(paths, exchange.rest)
    data = await encoded({**body, "Members": links}, exchange.rest)
    tag = await long_tag_of(data, exchange.rest)
    exchange.listed = Listed(body, paths, data, tag)
    return tagged_json(exchange, data, tag, str(body["@odata.type"]))


async def represented(
    exchange: Exchange, body: Mapping[str, object], headers: dict[str, str], *, again: bool
) -> Response:
    """What query parameters made of a resource. `again`: what had an ETag has one of its own."""
    data = await encoded(body, exchange.rest)
    if "ETag" in headers:
        tag = await long_tag_of(data, exchange.rest) if again else headers["ETag"]
        headers = {**headers, "ETag": tag}
        if is_known(exchange, tag):
            return not_modified(tag)
    return Paced(_written(data, 200, headers))


class Paced(Response):
    """A long answer, handed over in pieces as its client reads it. So a server's buffers do not
    hold much, and it is known when all was taken.
    """

    def __init__(self, whole: Response) -> None:
        super().__init__(whole.body, whole.status_code)
        self.raw_headers = whole.raw_headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        start = {"type": "http.response.start", "status": self.status_code}
        await send({**start, "headers": self.raw_headers})
        view = memoryview(self.body)
        for at in range(0, len(view), PIECE):
            piece, more = bytes(view[at : at + PIECE]), at + PIECE < len(view)
            await send({"type": "http.response.body", "body": piece, "more_body": more})
            await asyncio.sleep(0)  # it is written at the end of this turn (`Joined`)


def is_known(exchange: Exchange, tag: str) -> bool:
    """Whether the client looks, and has what has this ETag."""
    known = exchange.request.headers.get("if-none-match")
    looks = known is not None and exchange.request.method in SAFE
    return looks and not _tags(known).isdisjoint({tag, "*"})


def not_modified(tag: str) -> Response:
    return Response(status_code=304, headers={**ODATA, "ETag": tag})


@cache
def _described_by(odata_type: str) -> str:
    """The Link header (DSP0266 §8.2.3): the JSON schema of a resource's type."""
    name = odata_type.removeprefix("#").rpartition(".")[0]
    return f"<http://redfish.dmtf.org/schemas/v1/{name}.json>; rel=describedby"


def etag(body: dict[str, object]) -> str:
    """Of a resource. That its clock goes on is no change of it."""
    return tag_of(JSON.encode({name: body[name] for name in body if name != CLOCK}))


def _tags(header: str | None) -> set[str]:
    return {tag.strip() for tag in (header or "").split(",")}


def check_match(exchange: Exchange, shown: Callable[[], dict[str, object]]) -> None:
    """The client changes what it has seen, if it says what that was (RFC 9110 §13.1.1). `shown`:
    makes the resource as it is, which few clients need.
    """
    wanted = exchange.request.headers.get("if-match")
    if wanted is not None and wanted.strip() != "*" and etag(shown()) not in _tags(wanted):
        raise errors.precondition_failed()


def read(make: Callable[[Served], dict[str, object] | None]) -> Handler:
    """One resource of a BMC; None: this one has none."""

    async def handler(exchange: Exchange) -> Response:
        found = make(exchange.served())
        if found is None:
            raise errors.not_found(exchange.path)
        return tagged(exchange, found)

    return handler


def listing(kind: str, path: str, ids: Callable[[Served], Iterable[str]]) -> Handler:
    """A collection below a system, manager or chassis; `path` with {id} as in the table."""

    async def handler(exchange: Exchange) -> Response:
        served = exchange.served()
        place = path.format(id=served.bmc.uuid, **_others(exchange))
        return tagged(exchange, collection(kind, place, ids(served)))

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


def ref(path: str) -> dict[str, str]:
    """A link; `path` below the service root."""
    return {"@odata.id": f"{ROOT}/{path}"}


def collection(kind: str, path: str, members: Iterable[str]) -> dict[str, object]:
    """A resource collection, for example of ComputerSystem at Systems."""
    refs = [ref(f"{path}/{each}") for each in members]
    return {
        "@odata.type": f"#{kind}Collection.{kind}Collection",
        "@odata.id": f"{ROOT}/{path}",
        "Name": f"{kind} Collection",
        "Members@odata.count": len(refs),
        "Members": refs,
    }


def resource(kind: str, path: str, id_: str, name: str) -> dict[str, object]:
    """What every resource begins with."""
    return {
        "@odata.type": odata_type(kind),
        "@odata.id": f"{ROOT}/{path}",
        "Id": id_,
        "Name": name,
    }


OK = {"State": "Enabled", "Health": "OK"}
