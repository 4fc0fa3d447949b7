"""Sockets of BMCs: opened with the first BMC that needs one, closed with the last."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID
from weakref import WeakValueDictionary

import structlog
from starlette.types import ASGIApp

from nospoon.errors import Conflict, NospoonError, ProviderError
from nospoon.model.resources.bmcs import Bmc
from nospoon.runtime import process
from nospoon.runtime.clock import monotonic
from nospoon.runtime.http_limits import LIMITS, Connections
from nospoon.runtime.reasons import reason
from nospoon.runtime.serve import Contexts, HttpServer, LongCertificates
from nospoon.runtime.udp import CannotServe, Peer, UdpSocket, family_of, ports_in_use
from nospoon.runtime.worker import Worker
from nospoon.services.bmcs.accounts import Accounts
from nospoon.services.bmcs.certificates import Certificates
from nospoon.services.bmcs.needs import (
    FIELDS,
    ByPort,
    Need,
    Reach,
    fields_of,
    needs_of,
    refuse_conflict,
)
from nospoon.services.bmcs.redfish.http.methods import RedfishHttp
from nospoon.services.bmcs.served import bind_address

ROUTE_PROTOCOL = "242"
"""Protocol number of the routes that we add: the owner tag that a route can carry."""
BACKLOG = 2048
Datagram = Callable[[UdpSocket, bytes, Peer], None]

log = structlog.get_logger()


@dataclass(slots=True)
class _Shared:
    """A socket or route and the BMCs that use it. `owners`: whose these are, or were."""

    users: set[UUID] = field(default_factory=set)
    owners: frozenset[int] = frozenset()
    udp: UdpSocket | None = None
    http: HttpServer | None = None


MOST_LOOKED, LOOKED_SECONDS = 8, 8.0
"""Ports of which it is looked up who has them, in so many seconds, or of one plan."""


class Listeners:
    """Opens and closes what BMCs answer on, one at a time."""

    def __init__(
        self,
        rmcp: Datagram,
        snmp: Datagram,
        redfish: Callable[[], ASGIApp],
        certificates: Certificates | None,
        account_key: bytes,
    ) -> None:
        self._datagram = {Reach.IPMI: rmcp, Reach.SNMP: snmp}
        self._redfish, self._certificates = redfish, certificates
        self._open: dict[Need, _Shared] = {}
        self._by_port = ByPort()
        """Those of `_open`."""
        self._opening: set[Need] = set()
        self._lock, self._naming = asyncio.Lock(), asyncio.Lock()
        self._looked = deque[float](maxlen=MOST_LOOKED)
        self.accounts = Accounts(account_key)
        self._connections = Connections()
        self._given: WeakValueDictionary[tuple[Path, Path], Contexts] = WeakValueDictionary()
        """By the files of certificates that cluster files give."""
        self._long = LongCertificates()
        self.keys = Worker("certificates")

    async def open(self, bmc: Bmc, *, instead_of: Bmc | None = None, owner: int = 0) -> None:
        """As `_open_all`, and the error says who has a port, while few are asked for. `owner`: the
        user whose BMC it is.
        """
        try:
            await self._open_all(bmc, instead_of, owner)
        except CannotServe as error:
            async with self._naming:
                raise await self._named(error) from error

    async def _named(self, error: CannotServe) -> ProviderError:
        """Thousands of ports may be another process's: the files of all processes are looked
        through for a few of them.
        """
        now = monotonic()
        if len(self._looked) == MOST_LOOKED and now - self._looked[0] < LOOKED_SECONDS:
            return error
        self._looked.append(now)
        return await asyncio.to_thread(error.named)

    async def _open_all(self, bmc: Bmc, instead_of: Bmc | None, owner: int) -> None:
        """Make sure that this BMC can be reached, and no more where it was before.

        What it leaves is closed when what it wants is open; only what hinders that (the same port
        with or without TLS, or of all addresses) is closed before, for its other users too: they
        are about to move as well, plans keep other clusters off. Raises `ProviderError`, and all
        is as before then, or `serves` denies it.
        """
        wanted = needs_of(bmc)
        left = needs_of(instead_of) if instead_of is not None else ()
        if set(left) <= set(wanted) <= self._open.keys():  # as of a pool, of which all share these
            for need in wanted:
                self._use(need, self._open[need], bmc.uuid, owner)
            return
        joined: list[Need] = []
        closed: dict[Need, _Shared] = {}
        async with self._lock:
            await asyncio.sleep(0)  # thousands may come at once: one in each turn of the loop
            try:
                await self._clear(left, wanted, bmc.uuid, closed)
                for need in wanted:
                    await self._join(need, bmc.uuid, joined, owner)
            except BaseException:
                for need in joined:
                    await self._leave(need, bmc.uuid)
                await self._reopen(closed)
                raise
            for need in set(left) - set(wanted):
                await self._leave(need, bmc.uuid)

    def violations(self, bmcs: Collection[Bmc], *, coming: Collection[str] = ()) -> list[str]:
        """Why `open` of these would fail, in its words; nothing stays open.

        `coming`: addresses that this machine will have by then. Of UDP ports that no one has, one
        of each address is tried: ten thousand BMCs have as many. May be called in any thread.
        """
        users = {bmc.uuid for bmc in bmcs}
        is_open = {need: shared.users for need, shared in list(self._open.items())}
        by_port = ByPort(is_open)
        held = {port for _, port in ports_in_use("udp")}
        tried, found = set[tuple[Reach, str]](), list[str]()
        for need in dict.fromkeys(need for bmc in bmcs for need in needs_of(bmc)):
            free = need.port not in held and (need.kind, need.address) in tried
            if need in is_open or need.address in coming or free:
                continue
            if any(is_open[each] & users for each in by_port.hindering(need)):
                continue  # it is closed before
            tried.add((need.kind, need.address))
            try:
                refuse_conflict(need, by_port)
                _tried(need)
            except (ProviderError, Conflict) as error:
                if need not in self._opening and need not in self._open:  # in this order
                    if isinstance(error, CannotServe) and len(found) < MOST_LOOKED:
                        error = error.named()
                    found.append(str(error))
                # else we opened it ourselves meanwhile
        return found

    def serves(self, bmc: Bmc) -> bool:
        """Whether all is open that it is reached by."""
        there = map(self._open.get, needs_of(bmc))
        return all(shared is not None and bmc.uuid in shared.users for shared in there)

    async def close(self, bmc: Bmc) -> None:
        """This BMC needs its sockets no more."""
        async with self._lock:
            for need in needs_of(bmc):
                await self._leave(need, bmc.uuid)

    async def close_all(self) -> None:
        """Sockets only: routes are for the next daemon."""
        self.keys.close()
        self.accounts.checked.worker.close()
        for need, shared in list(self._open.items()):
            if need.kind is not Reach.ROUTE:
                await self._shut(need, shared)

    async def _clear(
        self,
        left: Iterable[Need],
        wanted: Iterable[Need],
        user: UUID,
        closed: dict[Need, _Shared],
    ) -> None:
        """Close what this user leaves and that hinders what it wants."""
        for need in left:
            shared = self._open.get(need)
            if shared is None or user not in shared.users:
                continue
            if any(need.hinders(each) for each in wanted):
                closed[need] = shared
                await self._shut(need, shared)

    async def _join(self, need: Need, user: UUID, joined: list[Need], owner: int) -> None:
        shared = self._open.get(need)
        if shared is None:
            refuse_conflict(need, self._by_port)
            self._opening.add(need)
            try:
                shared = await self._opened(need, frozenset({owner}))
                self._keep(need, shared)
            finally:
                self._opening.discard(need)
        if user not in shared.users:
            joined.append(need)
        self._use(need, shared, user, owner)

    def _use(self, need: Need, shared: _Shared, user: UUID, owner: int) -> None:
        shared.users.add(user)
        if owner not in shared.owners:
            shared.owners |= {owner}
            self._renew(need, shared)

    async def _leave(self, need: Need, user: UUID) -> None:
        shared = self._open.get(need)
        if shared is None:
            return
        shared.users.discard(user)
        if not shared.users:
            await self._shut(need, shared)

    async def _reopen(self, closed: Mapping[Need, _Shared]) -> None:
        for need, before in closed.items():
            try:
                shared = await self._opened(need, before.owners)
            except NospoonError as error:
                log.error("BMCs stopped", by=str(need), nodes=len(before.users), why=str(error))
                continue
            shared.users |= before.users
            self._keep(need, shared)

    def _keep(self, need: Need, shared: _Shared) -> None:
        self._open[need] = shared
        self._by_port.add(need)

    async def _opened(self, need: Need, owners: frozenset[int]) -> _Shared:
        _require_descriptors(need)
        match need.kind:
            case Reach.ROUTE:
                _require_routes(need.address)
                await _route("replace", need.address)
                return _Shared(owners=owners)
            case Reach.REDFISH:
                return _Shared(owners=owners, http=await self._http(need, owners))
            case Reach.IPMI | Reach.SNMP:
                return self._udp(need, owners)

    async def _shut(self, need: Need, shared: _Shared) -> None:
        self._open.pop(need, None)
        self._by_port.remove(need)
        if shared.udp is not None:
            shared.udp.close()
            shared.udp = None  # each has the other
        elif shared.http is not None:
            await shared.http.close()
        elif need.kind is Reach.ROUTE:
            await _route("del", need.address)

    def _udp(self, need: Need, owners: frozenset[int]) -> _Shared:
        shared, datagram = _Shared(owners=owners), self._datagram[need.kind]
        shared.udp = UdpSocket(
            need.address,
            need.port,
            lambda data, peer: _take(shared, datagram, data, peer),
            fields=fields_of(need),
            owner=lambda: shared.owners,
        )
        return shared

    async def _http(self, need: Need, owners: frozenset[int]) -> HttpServer:
        """Returned when it serves. Raises `ProviderError` and leaves nothing."""
        contexts, listener = self._tls(need, owners), _bound(need.address, need.port)
        http = HttpServer(
            self._redfish(),
            [listener],
            connections=self._connections,
            contexts=contexts,
            ws="none",
            http=RedfishHttp,
        )
        try:
            await http.start()
        except OSError as error:
            await http.close()
            raise ProviderError(f"cannot serve {need}: {reason(error)}") from error
        except BaseException:
            await http.close()
            raise
        return http

    def _tls(self, need: Need, owners: frozenset[int]) -> Contexts | None:
        """TLS 1.2 and 1.3 (DSP0266 §13.2.2). A certificate that a file gives is held once, however
        many addresses it is for. Raises `ProviderError`.
        """
        if not need.tls:
            return None
        if self._certificates is None:
            raise ProviderError("this service has no place for certificates")
        pair = self._certificates.pair(need.address, need.certificate, _alone(owners))
        found = self._given.get(pair) if need.certificate else None
        if found is None:
            try:
                found = Contexts(*pair, long=None if need.certificate else self._long)
            except OSError as error:  # that of TLS is one, for a certificate that cannot be served
                raise ProviderError(f"cannot serve {need}: {reason(error)}") from error
        if need.certificate:
            self._given[pair] = found
        return found

    def certificates(self, bmc: Bmc) -> Certificates | None:
        """Where its certificate is kept; None: it is served without TLS."""
        return self._certificates if bmc.tls else None

    def certificate_owner(self, bmc: Bmc) -> int | None:
        """Whose BMCs alone are where this one is; None: those of several users."""
        found = (self._open.get(need) for need in needs_of(bmc) if need.kind is Reach.REDFISH)
        return next((_alone(shared.owners) for shared in found if shared is not None), None)

    def renew_certificate(self, bmc: Bmc) -> None:
        """Serve its own certificate that is kept now, on every port of its address."""
        address, owner = bind_address(bmc), self.certificate_owner(bmc)
        for need, shared in self._open.items():
            if need.address == address and _alone(shared.owners) == owner:
                self._renew(need, shared)

    def _renew(self, need: Need, shared: _Shared) -> None:
        if shared.http is not None and need.tls and not need.certificate:
            assert self._certificates is not None, "it is served with TLS"
            owner = _alone(shared.owners)
            shared.http.renew(self._certificates.path(need.address, owner))

    def beside(self, bmc: Bmc) -> set[UUID]:
        """All BMCs that show the same certificate."""
        address, owner = bind_address(bmc), self.certificate_owner(bmc)
        found = set[UUID]()  # of ten thousand, hashes are not made again
        for need, shared in self._open.items():
            if need.tls and need.address == address and need.certificate == bmc.certificate:
                found |= shared.users if _alone(shared.owners) == owner else set()
        return found


def _alone(owners: frozenset[int]) -> int | None:
    """The one owner of all BMCs at a socket; None: there are several."""
    return next(iter(owners)) if len(owners) == 1 else None


def _take(shared: _Shared, datagram: Datagram, data: bytes, peer: Peer) -> None:
    if shared.udp is not None:
        datagram(shared.udp, data, peer)


def _bound(address: str, port: int) -> socket.socket:
    listener = socket.socket(family_of(address), socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address, port))
        listener.listen(BACKLOG)  # of two that may both bind, one may listen (SO_REUSEADDR)
    except OSError as error:
        listener.close()
        fields = FIELDS[Reach.REDFISH]
        raise CannotServe("Redfish on", "tcp", (address, port), error, fields) from error
    return listener


def _tried(need: Need) -> None:
    """Open and close it, as `_opened` would. Raises `ProviderError`."""
    _require_descriptors(need)
    match need.kind:
        case Reach.ROUTE:
            _require_routes(need.address)
        case Reach.REDFISH:
            _bound(need.address, need.port).close()
        case Reach.IPMI | Reach.SNMP:
            with socket.socket(family_of(need.address), socket.SOCK_DGRAM) as probe:
                place = need.address, need.port
                try:
                    probe.bind(place)
                except OSError as error:
                    raise CannotServe("UDP", "udp", place, error, fields_of(need)) from error


def _require_descriptors(need: Need) -> None:
    """Raises `ProviderError` where so few are left that others need them: the next socket has the
    lowest that is free (POSIX, "File Descriptor Allocation").
    """
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            is_left = probe.fileno() <= LIMITS.highest_descriptor
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        is_left = False
    if not is_left:
        raise ProviderError(
            f"cannot serve {need}: too few descriptors are left",
            hint="Give the daemon more (`LimitNOFILE=` of its systemd unit), or use `bmc.pool`, in "
            "which all BMCs share a socket.",
        )


def _require_routes(pool: str) -> None:
    """Raises `ProviderError` where this process may not change routes (capabilities(7))."""
    rows = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    effective = next(int(row[1], 16) for row in rows if row[0] == "CapEff:")
    if not effective >> _CAP_NET_ADMIN & 1:
        raise ProviderError(
            f"cannot add a route to {pool}: only root may change routes",
            hint="Take a `bmc.pool` of loopback's such as 127.20.0.0/24, or leave it out for one "
            "address with a port for each BMC.",
        )


_CAP_NET_ADMIN = 12  # linux/capability.h


async def _route(verb: str, pool: str) -> None:
    """This machine answers to every address of the pool (AnyIP; ip-route(8), type local)."""
    argv = ["ip", "route", verb, "local", pool, "dev", "lo", "proto", ROUTE_PROTOCOL]
    await process.run(argv, check=verb != "del")
