"""How answers look: JSON with its ETag (RFC 9110 §13), long lists, and long answers in pieces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from nospoon.services.bmcs.redfish.http.exchange import SAFE, Exchange
from nospoon.services.bmcs.redfish.messages import errors
from nospoon.services.bmcs.redfish.messages.bodies import collection, ref
from nospoon.services.bmcs.redfish.messages.encoding import JSON, encoded, long_tag_of, tag_of
from nospoon.services.bmcs.redfish.messages.listed import Listed, links_of
from nospoon.services.bmcs.redfish.messages.listings import BATCH

PIECE = 64 << 10
"""Bytes of a long answer that are handed over at a time."""
ODATA = {"OData-Version": "4.0", "Cache-Control": "no-cache, no-store"}
CLOCK = "DateTime"
"""The property that changes by itself."""

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
            await asyncio.sleep(0)  # it is written at the end of this turn (`CoalescingTransport`)


def is_known(exchange: Exchange, tag: str) -> bool:
    """Whether the client looks, and has what has this ETag."""
    known = exchange.header(b"if-none-match")
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
    check_tag(exchange, lambda: etag(shown()))


def check_tag(exchange: Exchange, tag: Callable[[], str]) -> None:
    """The same, where its ETag may be known."""
    wanted = exchange.header(b"if-match")
    if wanted is not None and wanted.strip() != "*" and tag() not in _tags(wanted):
        raise errors.precondition_failed()
