"""One Redfish request being answered: who asks, what the path names, what its body is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote
from uuid import UUID

import msgspec
from starlette.requests import ClientDisconnect, Request

from nospoon.bmc.faults import HTTP, HTTP_LATE, Kind
from nospoon.bmc.users import ADMINISTRATOR
from nospoon.model.addresses import source_key
from nospoon.runtime import clock
from nospoon.runtime.json_depth import DEEPEST, is_too_deep
from nospoon.runtime.limited_http import logged_in
from nospoon.runtime.slices import Slice
from nospoon.services.bmcs.accounts import OPERATOR, Accounts, Place
from nospoon.services.bmcs.redfish.messages import errors
from nospoon.services.bmcs.redfish.messages.listed import Listed
from nospoon.services.bmcs.redfish.messages.listings import T, ordered

if TYPE_CHECKING:
    from nospoon.services.bmcs.redfish.http.service import Service
    from nospoon.services.bmcs.served import Served

MAX_BODY = 64 << 10
"""Bytes of a request's body."""
SAFE = frozenset({"GET", "HEAD"})
"""Methods that only look."""


@dataclass(slots=True)
class Exchange:
    """One request being answered: who asks. `account` b"": no one who logged in."""

    request: Request
    service: Service
    accounts: Accounts
    account: bytes = b""
    username: str = ""
    session: str = ""
    """The id of the session by whose token the caller logged in."""
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
    _headers: Mapping[bytes, bytes] = field(init=False)

    def __post_init__(self) -> None:
        self._headers = dict(reversed(self.request.scope["headers"]))

    def header(self, name: bytes) -> str | None:
        """The first header of a name in lower case; Starlette goes through all of them for each."""
        value = self._headers.get(name)
        return value.decode("latin-1") if value is not None else None

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
        token = self.header(b"x-auth-token")
        if token is not None:
            session = self.accounts.session(token, place=self.place, now=clock.monotonic())
            if session is not None:
                return session.account
        client = self.request.scope.get("client")
        return source_key(client[0]) if client else None

    async def rest(self) -> None:
        """Between parts of long work: others get their turn on the loop.

        Raises `ClientDisconnect` where no one waits for what is read any more.
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
        if int(self.header(b"content-length") or 0) > largest:
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
        kind = self.header(b"content-type")
        if kind is None:
            kind = "application/json"
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
