"""Ironic's API by openstacksdk, whose calls block: they run in threads of their user.

https://docs.openstack.org/api-ref/baremetal/
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from nospoon.errors import Gone, HostUnreachable, NospoonError, ProviderError
from nospoon.model.ironic import IronicPlace
from nospoon.providers.answers import (
    Answered,
    How,
    decoded,
    judged,
    received,
    refusal,
    text_of,
    undo,
)
from nospoon.providers.cloud_calls import Calls, Means
from nospoon.providers.clouds import connection, login_errors
from nospoon.providers.ironic.errors import Crowded, is_full
from nospoon.providers.ironic.errors import said as words
from nospoon.providers.ironic.records import Record
from nospoon.runtime import clock
from nospoon.runtime.reach import Reach
from nospoon.runtime.reasons import reason
from nospoon.runtime.telling import is_heard, tell

if TYPE_CHECKING:
    from keystoneauth1.adapter import Adapter

NEWEST = (1, 95)
"""The newest version of the API whose answers are known here."""
PURPOSE = "enroll nodes"
PAGE = 1000
"""What is asked for a call. A server may give less (`api.max_limit`), and says where more is."""
MARKER = 255
"""Characters of one: a UUID."""
LIST_TRIES = 5
LOCKED_TRIES = 20
LOCKED_DELAY = 0.5
MAX_LISTED = 256 << 20
"""Bytes of all pages of a list: 20,000 nodes in full are some 200 million."""
MAX_LISTED_VALUES = 8_000_000
"""Values of all pages: a node in full has some 200."""
MAX_PAGES = 2000
MOST_RECORDS = 200_000
"""Of a list: ten ports of each of 20,000 nodes."""
MOST_PARTS = 600_000
"""Settings, traits and volumes that are kept of all records of a list: 30 of each of 20,000."""
LONGEST_RECORD, LONGEST_ANSWER = 1 << 20, 4 << 20
"""Bytes of JSON of one record; of an answer of which little is kept, as a node's history."""
MOST_VALUES = 65_536
"""Of one record that is kept as it is: hundreds may be, each for an hour."""
_VERSION = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})")
REFUSED = 400
R = TypeVar("R")
Read = Callable[[object], object]


@dataclass(frozen=True, slots=True)
class _Page(Generic[R]):
    """`count`: of records in it; `values`: of those that count. `marker`: of the next, or "".
    `parts`: of its values.
    """

    count: int
    values: list[R]
    marker: str
    parts: int


def _free(found: list[R]) -> None:
    """Piece by piece: all of it at once would be the event loop's time, too."""
    while found:
        found.pop()


def _whole(value: object) -> int:  # noqa: ARG001  (any)
    return 0


class Api:
    """One Ironic. Raises `HostUnreachable` when it is away, `Gone`, `Conflict`, `Crowded`,
    `ProviderError`.

    `patience`: seconds for which an operation waits for it while it is away. Only looks are
    repeated here; who changes something looks again first (`nospoon.engine.execute`).
    """

    def __init__(self, place: IronicPlace, means: Means, *, patience: float = 0.0) -> None:
        self.place, self.patience, self._reach = place, patience, means.reach
        self._calls = Calls(means, parallel=place.calls.at_once)
        self._adapter: Adapter | None = None
        self._base, self._version = "", ""
        self._connecting = asyncio.Lock()
        self._tries = 0
        self._refused: NospoonError | None = None
        self._reading = Lock()  # an answer takes many times its size until it is read

    async def listed(
        self,
        what: str,
        *,
        read: Callable[[Record], R | None],
        query: str = "",
        parts: Callable[[R], int] = _whole,
    ) -> list[R]:
        """What `read` makes of each record of one kind (`nodes`, `ports`, `volume/targets` …), None
        left out, page by page; from the beginning again where the last one of a page went before
        the next was asked for. It is called in a thread and should keep little, and no lists or
        objects of a record: of the 8 million values of a list half a gigabyte would be. `parts`
        counts of what it keeps much.
        """
        for _ in range(LIST_TRIES):
            try:
                return await self._listed(what, read, query, parts)
            except Gone as error:
                gone = error
        raise gone

    async def _listed(
        self,
        what: str,
        read: Callable[[Record], R | None],
        query: str,
        parts: Callable[[R], int],
    ) -> list[R]:
        found: list[R] = []
        marker, count, size, values, held = "", 0, 0, 0, 0
        for _ in range(MAX_PAGES):
            path = f"/{what}?limit={PAGE}{query}{marker}"
            answered = await self._answer("GET", path, None, partial(self._page, what, read, parts))
            size, values = size + answered.size, values + answered.values
            if size > MAX_LISTED or values > MAX_LISTED_VALUES:
                break
            page = self._judged(answered, "GET", path)
            if not isinstance(page, _Page):
                raise self._not_ironic(path, page)
            found += page.values
            count += page.count
            held += page.parts
            if held > MOST_PARTS:
                page.values.clear()
                await asyncio.to_thread(_free, found)
                raise ProviderError(
                    f"Ironic at {self.place}: expected a list of /{what} with at most {MOST_PARTS} "
                    "settings, got more"
                )
            if count > MOST_RECORDS:
                break
            if not page.marker:
                return found
            marker = f"&marker={page.marker}"
        raise ProviderError(
            f"Ironic at {self.place}: expected a list of /{what} of at most {MAX_LISTED} bytes, "
            f"{MAX_LISTED_VALUES} values, {MAX_PAGES} pages and {MOST_RECORDS} records, got more"
        )

    def _page(
        self,
        what: str,
        read: Callable[[Record], R | None],
        parts: Callable[[R], int],
        answer: object,
    ) -> _Page[R]:
        """Of an answer with records. Raises `HostUnreachable` for one without, `ProviderError` for
        a page of more than was asked for, or with a record that is longer than Ironic's.
        """
        answer = self._object(f"/{what}", answer)
        page = answer.get(what.rpartition("/")[2])
        if not isinstance(page, list) or not all(map(_is_record, page[: PAGE + 1])):
            raise self._not_ironic(f"/{what}", answer)
        if len(page) > PAGE:
            raise ProviderError(
                f"Ironic at {self.place}: a page of /{what} has {len(page)} records: {PAGE} were "
                "asked for"
            )
        if max(map(_size, page), default=0) > LONGEST_RECORD:
            raise ProviderError(
                f"Ironic at {self.place}: expected records of /{what} of at most {LONGEST_RECORD} "
                "bytes, got more"
            )
        values, held = list[R](), 0
        for each in page:
            if (value := read(each)) is not None and (held := held + parts(value)) <= MOST_PARTS:
                values.append(value)
        goes_on = page and answer.get("next")
        marker = text_of(page[-1]["uuid"])[:MARKER] if goes_on else ""
        return _Page(len(page), values, marker, held)

    async def get(self, path: str, *, read: Callable[[Record], Record] | None = None) -> Record:
        """`read`: what is kept of it, in a thread."""
        call, most = f"Ironic's GET {path}", LONGEST_RECORD if read is None else LONGEST_ANSWER
        kept = None if read is None else lambda answer: read(self._object(path, answer))
        answered = await self._answer("GET", path, None, kept)
        if answered.size > most:
            raise ProviderError(f"{call}: expected at most {most} bytes, got {answered.size}")
        if read is None and answered.values > MOST_VALUES:
            raise ProviderError(f"{call}: expected at most {MOST_VALUES} values, got more")
        return self._object(path, self._judged(answered, "GET", path))

    def _object(self, path: str, answer: object) -> Record:
        if not isinstance(answer, dict):
            raise self._not_ironic(path, answer)
        return answer

    def _not_ironic(self, path: str, answer: object) -> HostUnreachable:
        told = "".join(islice(json.JSONEncoder().iterencode(answer), 60))[:60]
        return HostUnreachable(f"{self.place} is not an Ironic: it answered GET {path} with {told}")

    async def post(self, path: str, body: object) -> None:
        await self._call("POST", path, body)

    async def patch(self, path: str, operations: Sequence[Mapping[str, object]]) -> None:
        """JSON Patch (RFC 6902)."""
        await self._call("PATCH", path, operations)

    async def put(self, path: str, body: object) -> None:
        await self._call("PUT", path, body)

    async def delete(self, path: str) -> None:
        await self._call("DELETE", path, None)

    async def _call(self, method: str, path: str, body: object) -> None:
        self._judged(await self._answer(method, path, body, _nothing), method, path)

    async def _answer(
        self, method: str, path: str, body: object, read: Read | None = None
    ) -> Answered:
        end, said = clock.monotonic() + self.patience, False
        while True:
            try:
                return await self._asked(method, path, body, read)
            except HostUnreachable:
                if method != "GET" or not is_heard() or clock.monotonic() >= end:
                    raise
            if not said:
                tell(f"Ironic at {self.place} does not answer: waiting up to {self.patience:.0f} s")
            said = True
            await asyncio.sleep(min(self.place.calls.pauses))  # it sends no event when it is back

    async def _asked(self, method: str, path: str, body: object, read: Read | None) -> Answered:
        await self._connected()
        for _ in range(LOCKED_TRIES):
            answer = await self._thread(lambda: self._send(method, path, body, read))
            if not _busy(answer):
                break
            await asyncio.sleep(LOCKED_DELAY)  # it sends no event when it is free again
        return answer

    def _judged(self, answer: Answered, method: str, path: str) -> object:
        if is_full(answer.status_code, answer.text):
            why = f"Ironic's {method} {path}: {words(answer.text)}"
            raise Crowded(why, retry_after=answer.retry_after)
        return judged(answer, f"Ironic's {method} {path}", said=words)

    async def _connected(self) -> None:
        """Of those who come meanwhile, all hear what the first one is told."""
        before = self._tries
        async with self._connecting:
            if self._base:
                return
            if self._tries != before and self._refused is not None:
                raise self._refused
            try:
                if self._adapter is None:
                    self._adapter = await self._thread(lambda: _adapter(self.place, self._reach))
                self._base, self._version = await self._thread(self._meet)
            except NospoonError as error:
                self._refused = error
                raise
            finally:
                self._tries += 1

    async def _thread(self, call: Callable[[], R]) -> R:
        try:
            return await self._calls.run(self._guarded(call))
        except _Away as away:
            raise HostUnreachable(
                f"Ironic at {self.place} does not answer: {away}",
                hint="`nospoon dev ironic status` shows the one that nospoon started.",
            ) from away

    def _guarded(self, call: Callable[[], R]) -> Callable[[], R]:
        def guarded() -> R:
            exceptions = login_errors(PURPOSE)
            try:
                return call()
            except exceptions.DiscoveryFailure as error:  # which keeps no cause
                raise _Away("nothing offers Ironic's API there; it may not run") from error
            except exceptions.ConnectionError as error:
                raise _Away(reason(error)) from error
            except exceptions.ClientException as error:
                raise ProviderError(f"Ironic at {self.place}: {refusal(error)}") from error
            except RecursionError as error:  # of keystoneauth's own look at a service
                raise _Away("it answers with JSON that is nested too deeply") from error

        return guarded

    def _meet(self) -> tuple[str, str]:
        """Where the API's version 1 is, and the newest minor version that both know."""
        adapter = self._adapter
        assert adapter is not None, "it is connected first"
        base = str(adapter.get_endpoint() or self.place.endpoint).rstrip("/")
        base = base if base.endswith("/v1") else f"{base}/v1"
        answer = adapter.get(base, raise_exc=False)
        newest = answer.headers.get("X-OpenStack-Ironic-API-Maximum-Version", "1.80")
        found = _VERSION.fullmatch(newest)
        if found is None:
            raise _Away(f"expected a version such as 1.80, got {newest[:60]!r}")
        known = min((int(found[1]), int(found[2])), NEWEST)
        return base, f"{known[0]}.{known[1]}"

    def _send(self, method: str, path: str, body: object, read: Read | None) -> Answered:
        """`read`: of a list, what is kept of its answer."""
        how: How = {"headers": {"X-OpenStack-Ironic-API-Version": self._version}}
        if body is not None:
            how["json"] = body
        if method == "PUT":  # keystoneauth would repeat it, and keep a thread for many seconds
            how["status_code_retries"] = 0
        assert self._adapter is not None, "it is connected first"
        raw = received(self._adapter, f"{self._base}{path}", method, **how)
        if read is None:
            return decoded(raw)
        with self._reading:
            answer = decoded(raw)
            if answer.status_code >= REFUSED or answer.wrong:
                return answer
            try:
                return replace(answer, value=read(answer.value))
            finally:
                undo(answer.value)


def _nothing(answer: object) -> None:
    """What is kept of an answer to a change."""


def _is_record(entry: object) -> bool:
    return isinstance(entry, dict) and "uuid" in entry


def _size(record: Record) -> int:
    return len(msgspec.json.encode(record))


def _busy(answer: Answered) -> bool:
    """A conductor looks at the node, or someone else writes into its SQLite."""
    conductor = answer.status_code == 409 and "is locked by host" in answer.text
    return conductor or (answer.status_code == 500 and "database is locked" in answer.text)


class _Away(Exception):
    """No one answers; carried out of a thread."""


def _adapter(place: IronicPlace, reach: Reach) -> Adapter:
    auth = {"endpoint": place.endpoint}
    if place.username:
        auth |= {"username": place.username, "password": place.password}
    told: Mapping[str, object] = {
        "auth_type": str(place.auth),
        "auth": auth,
        "baremetal_endpoint_override": place.endpoint,
    }
    told = json.loads(place.cloud) if place.cloud else told
    found: Adapter = connection(told, purpose=PURPOSE, reach=reach).baremetal
    return found
