"""The APIs of one project by openstacksdk, whose calls block: they run in threads of their own.

https://docs.openstack.org/api-ref/compute/, …/network/v2/, …/image/v2/
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, overload
from urllib.parse import unquote, urlencode

from nospoon.errors import Gone, HostUnreachable, OutOfSpace, ProviderError
from nospoon.model.declared import CallLimits
from nospoon.providers.answers import (
    SENDS,
    Adapter,
    Answered,
    How,
    decoded,
    judged,
    received,
    retry_after,
    text_of,
    words_of,
)
from nospoon.providers.cloud_calls import Calls, Means
from nospoon.providers.clouds import connection, failures_of
from nospoon.runtime.lookups import Place, resolve
from nospoon.runtime.paced import paced
from nospoon.runtime.reach import Reach
from nospoon.runtime.tls import client_context

if TYPE_CHECKING:
    from openstack.connection import Connection

A = TypeVar("A")
"""What the API says that an answer is: a class of `nospoon.providers.openstack.shown`."""
R = TypeVar("R")

PURPOSE = "use a cloud"
TOO_MANY, UNAVAILABLE = 429, 503
MARKER = 255
"""Characters of one: an id."""
PAGE, MOST_PAGES, MOST_LISTED = 1000, 50, 20_000
"""Things of one collection: asked for at a time, pages of them, and all that are taken."""
LARGEST_LIST = 128 << 20
"""Bytes of all its pages: 20,000 servers are some 100 million."""
MOST_PARTS = 100_000
"""Disks, NICs, VLANs and addresses of all things of a list: a cluster has no more of each."""
MOST_ROLES, LONGEST_ROLE = 100, 255
LARGEST = 1 << 20
"""Bytes of an answer that is kept as it is; of others only what was read stays."""


class Service(StrEnum):
    """A service, by what a connection of openstacksdk calls it."""

    NOVA = "compute"
    NEUTRON = "network"
    GLANCE = "image"
    CINDER = "block_storage"


_LISTED_AS = {"/os-keypairs": "keypairs", "/os-server-groups": "server_groups"}
"""Collections whose lists have other names than their paths."""
MICROVERSION = "2.61"
"""Of Nova (Queens): flavors are shown with servers, with their extra specs."""
CALLED = {
    Service.NOVA: "Nova",
    Service.NEUTRON: "Neutron",
    Service.GLANCE: "Glance",
    Service.CINDER: "Cinder",
}


@dataclass(frozen=True, slots=True)
class _Page(Generic[R]):
    """`count`: of things in it; `values`: of those that count. `marker`: of the next one, or "".
    `parts`: of its values; `size`: bytes of its answer.
    """

    count: int
    values: list[R]
    marker: str
    parts: int = 0
    size: int = 0


def _as_it_is(value: object) -> object:
    return value


def _whole(value: object) -> int:  # noqa: ARG001  (any)
    return 0


def _page(
    name: str, read: Callable[[A], R | None], parts: Callable[[R], int], answer: Any
) -> _Page[R]:
    things = answer[name]
    if len(things) > PAGE:
        raise ProviderError(f"a page of {name} has {len(things)} of them: {PAGE} were asked for")
    links = answer.get(f"{name}_links") or ()
    goes_on = "next" in answer or any(each["rel"] == "next" for each in links)
    values, count = list[R](), 0
    for each in things:
        if (value := read(each)) is not None and (count := count + parts(value)) <= MOST_PARTS:
            values.append(value)
    marker = text_of(things[-1]["id"])[:MARKER] if goes_on and things else ""
    return _Page(len(things), values, marker, count)


class Api:
    """Calls with one login, as `limits` say. Raises `HostUnreachable`, `Gone`, `Conflict`,
    `ProviderError`.
    """

    def __init__(
        self,
        name: str,
        settings: Callable[[], Mapping[str, object]],
        means: Means,
        limits: CallLimits,
    ) -> None:
        self.name, self.limits = name, limits
        self._settings, self._reach = settings, replace(means.reach, names=self._look_up)
        self._calls = Calls(means, parallel=limits.at_once)
        self._connection: Connection | None = None
        self._decoding = Lock()  # an answer takes many times its size until it is read

    @overload
    async def call(
        self,
        service: Service,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        *,
        read: Callable[[A], R],
        sends: float = 0.0,
        **how: Unpack[How],
    ) -> R: ...

    @overload
    async def call(
        self,
        service: Service,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        *,
        sends: float = 0.0,
        **how: Unpack[How],
    ) -> object: ...

    async def call(
        self,
        service: Service,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        *,
        read: Callable[[Any], object] = _as_it_is,
        sends: float = 0.0,
        **how: Unpack[How],
    ) -> object:
        """What `read` makes of the decoded answer, None for nothing, in the call's thread; without
        it an answer of at most `LARGEST` bytes. What the cloud puts off is asked again, as late as
        it says. `sends`: seconds that what it sends may take; `how`: more for requests.

        One call is repeated here, for looks and BMCs as well: a driver's call, which the engine
        would repeat, is many of these, and its cloud has enough of them. keystoneauth's own retries
        (`status_code_retries`) would keep a thread for as long as the cloud likes.
        """
        if sends:
            how["headers"] = {**how.get("headers", {}), SENDS: f"{sends:.3f}"}
        for usual in (*self.limits.pauses, None):
            asked = partial(self._asked, service, method, path, body, how, read, usual)
            value, pause = await self._calls.run(asked, longer=sends)
            if pause is None:
                break
            await asyncio.sleep(pause)
        return value

    async def listed(
        self,
        service: Service,
        path: str,
        query: Mapping[str, object] | None = None,
        *,
        read: Callable[[A], R | None],
        parts: Callable[[R], int] = _whole,
        name: str = "",
    ) -> AsyncIterator[R]:
        """What `read` makes of each thing of a collection, None left out, page by page: it should
        keep little, and `parts` counts of what it keeps much. `name`: of the collection, where the
        path has another. Raises `ProviderError` for one without an end.
        """
        name = name or path.strip("/").partition("/")[0]
        marker, found, size, held = "", 0, 0, 0
        for _ in range(MOST_PAGES):
            parameters = {"limit": PAGE, **(query or {}), **({"marker": marker} if marker else {})}
            page = await self.call(
                service,
                "GET",
                f"{path}?{urlencode(parameters)}",
                read=partial(_page, name, read, parts),
            )
            found += page.count
            size += page.size
            held += page.parts
            if held > MOST_PARTS:
                raise ProviderError(
                    f"{CALLED[service]} of cloud {self.name} lists {path} with more than "
                    f"{MOST_PARTS} parts"
                )
            async for each in paced(page.values):
                yield each
            if not page.marker:
                return
            if page.marker == marker or found > MOST_LISTED or size > LARGEST_LIST:
                break
            marker = page.marker
        raise ProviderError(
            f"{CALLED[service]} of cloud {self.name} lists {path} without an end, or more than "
            f"{MOST_LISTED}, or {LARGEST_LIST >> 20} MiB"
        )

    async def get(self, service: Service, path: str, *, read: Callable[[A], R]) -> R | None:
        """What `read` makes of it, None for what is not there."""
        try:
            return await self.call(service, "GET", path, read=read)
        except Gone:
            return None

    async def delete(self, service: Service, path: str) -> None:
        """Have nothing at this path."""
        try:
            await self.call(service, "DELETE", path)
        except Gone as error:
            await self.require_unlisted(error, service, path)

    async def require_unlisted(self, why: Gone, service: Service, path: str) -> None:
        """A call says that what is at this path is gone: it is if its collection does not list it.
        Raises `HostUnreachable` otherwise.
        """
        collection, _, last = path.rpartition("/")
        query = {"id": last} if service is Service.NEUTRON else {}

        def same(record: Mapping[str, object]) -> bool | None:
            return _last_of(record) == unquote(last) or None

        name = _LISTED_AS.get(collection, "")
        listed = self.listed(service, collection, query, read=same, name=name)
        try:
            is_there = bool([each async for each in listed])
        except Gone as error:
            raise HostUnreachable(f"{why}, and so is {collection}") from error
        if is_there:
            raise HostUnreachable(
                f"{why}, though {collection} lists it",
                hint=f"What is in front of {CALLED[service]}, such as a proxy, may have answered.",
            )

    async def _look_up(self, host: str, port: int, _owner: Hashable) -> Sequence[Place]:
        """In threads of its own: a cloud chooses the names of its consoles, and so the servers that
        are asked, which may be silent.
        """
        return await self._calls.run(partial(resolve, host, port))

    @property
    def reach(self) -> Reach:
        """Where connections to what the cloud names may go."""
        return self._reach

    async def trust(self) -> ssl.SSLContext:
        """By what TLS of the cloud is judged, beside its APIs."""
        return await self._calls.run(self._trust)

    def _trust(self) -> ssl.SSLContext:
        """Of the same authorities as with keystoneauth1 (`clouds`)."""
        verify = self._settings().get("verify", True) is not False
        file = os.environ.get("REQUESTS_CA_BUNDLE", "")
        return client_context(verify=verify, authorities=file)

    async def project(self) -> str:
        """The id of the project that the login has."""
        return await self._calls.run(self._project)

    async def roles(self) -> tuple[str, ...]:
        """Those that the login has in its project."""
        return await self._calls.run(self._roles)

    def _roles(self) -> tuple[str, ...]:
        with failures_of(f"Keystone of cloud {self.name}", PURPOSE):
            session = self._connected().session
            from keystoneauth1.identity.base import BaseIdentityPlugin  # noqa: PLC0415  (an extra)

            auth = session.auth
            if not isinstance(auth, BaseIdentityPlugin):
                return ()
            names = auth.get_access(session).role_names or []
            return tuple(sorted(text_of(each)[:LONGEST_ROLE] for each in names[:MOST_ROLES]))

    async def microversion(self) -> tuple[int, ...]:
        """The last one of Nova, () where it does not say."""
        return await self._calls.run(self._microversion)

    def _microversion(self) -> tuple[int, ...]:
        with failures_of(f"Nova of cloud {self.name}", PURPOSE):
            data = self._connected().compute.get_endpoint_data()
            last = data.max_microversion if data is not None else None
            return tuple(int(each) for each in last or ())

    async def has_volumes(self) -> bool:
        """Whether the region has Cinder."""
        return await self._calls.run(self._has_volumes)

    def _has_volumes(self) -> bool:
        with failures_of(f"Keystone of cloud {self.name}", PURPOSE):
            return bool(self._connected().endpoint_for("block-storage"))

    def _project(self) -> str:
        with failures_of(f"Keystone of cloud {self.name}", PURPOSE):
            return text_of(self._connected().session.get_project_id() or "")[:MARKER]

    def _asked(
        self,
        service: Service,
        method: str,
        path: str,
        body: Mapping[str, object] | None,
        how: How,
        read: Callable[[Any], object],
        usual: float | None,
    ) -> tuple[object, float | None]:
        """An answer as it was read, and None; or in how many seconds to ask again. `usual`: where
        the cloud does not say; None: it is not asked any more.
        """
        asked = how.copy()
        if body is not None:
            asked["json"] = body
        asked["status_code_retries"] = 0  # of Glance openstacksdk has five
        if service is Service.NOVA:
            asked.setdefault("microversion", MICROVERSION)
        called = CALLED[service]
        with failures_of(f"{called} of cloud {self.name}", PURPOSE):
            adapter: Adapter = getattr(self._connected(), service)
            raw = received(adapter, path, method, **asked)
        put_off = raw.status_code == TOO_MANY or (
            raw.status_code == UNAVAILABLE and method in {"GET", "DELETE", "PUT"}
        )
        if put_off and usual is not None:
            return None, self.limits.pause(usual, retry_after(raw))
        said, size = f"{called}'s {method} {path.partition('?')[0]}", len(raw.content)
        if read is _as_it_is and size > LARGEST:
            raise ProviderError(
                f"{said} was answered with {size} bytes: expected {LARGEST} at most"
            )
        with self._decoding:
            answer = decoded(raw)
            _require_quota(answer, said)
            value = read(judged(answer, said, said=words_of))
        return (replace(value, size=size) if isinstance(value, _Page) else value), None

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = connection(self._settings(), purpose=PURPOSE, reach=self._reach)
        return self._connection


def _last_of(record: Mapping[str, object]) -> object:
    """The end of the path of a thing of a list: key pairs have names, all others ids."""
    pair = record.get("keypair")
    return pair["name"] if isinstance(pair, dict) else record["id"]


def is_full(words: str) -> bool:
    """Whether a refusal, or the fault of a server, says that there is no capacity now: a quota
    (also of unified limits) is used up, or Nova's scheduler found no host.
    """
    return any(each in words.lower() for each in ("quota", "over a limit")) or is_nowhere(words)


def is_nowhere(fault: str) -> bool:
    """Whether the fault of a server says that Nova's scheduler found no host (`NoValidHost`)."""
    return "no valid host" in fault.lower()


def _require_quota(answer: Answered, said: str) -> None:
    """Raises `OutOfSpace` where a quota is used up: Nova refuses with 403, Neutron with 409, Cinder
    and Glance with 413.
    """
    if answer.status_code in {403, 409, 413} and is_full(words_of(answer.text)):
        words = words_of(answer.text)
        raise OutOfSpace(f"{said} was refused with {answer.status_code}: {words}")
