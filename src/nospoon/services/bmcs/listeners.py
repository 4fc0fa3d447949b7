"""Sockets of BMCs: opened with the first BMC that needs one, closed with the last."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from nospoon.errors import Conflict, ProviderError
from nospoon.model.resources import Bmc, Outlet
from nospoon.runtime import process
from nospoon.runtime.serve import HttpServer
from nospoon.runtime.udp import Peer, UdpSocket, family_of, holder_of
from nospoon.services.bmcs.accounts import Accounts
from nospoon.services.bmcs.certificates import Certificates
from nospoon.services.bmcs.redfish.app import App
from nospoon.services.bmcs.redfish.methods import RedfishHttp
from nospoon.services.bmcs.served import bind_address

if TYPE_CHECKING:
    from nospoon.services.bmcs.service import BmcService

LOOPBACK = IPv4Network("127.0.0.0/8")
ROUTE_PROTOCOL = "242"
"""Protocol number of the routes that we add: the owner tag that a route can carry."""
K = TypeVar("K")
Datagram = Callable[[UdpSocket, bytes, Peer], None]


@dataclass(slots=True)
class _Shared:
    """A socket or route and the BMCs that use it."""

    users: set[UUID] = field(default_factory=set)
    udp: UdpSocket | None = None
    http: HttpServer | None = None
    tls: bool = False


class Listeners:
    """Opens and closes what BMCs answer on."""

    def __init__(
        self,
        rmcp: Datagram,
        snmp: Datagram,
        service: BmcService,
        certificates: Certificates | None,
        account_key: bytes,
    ) -> None:
        self._rmcp, self._snmp, self._service = rmcp, snmp, service
        self._certificates = certificates
        self._udp: dict[tuple[str, int], _Shared] = {}
        self._http: dict[tuple[str, int], _Shared] = {}
        self._routes: dict[str, _Shared] = {}
        self.accounts = Accounts(account_key)

    async def open(self, bmc: Bmc) -> None:
        """Make sure that this BMC can be reached. Raises `ProviderError` and leaves nothing."""
        try:
            await self._open(bmc)
        except BaseException:
            await self.close(bmc)
            raise

    async def _open(self, bmc: Bmc) -> None:
        if bmc.pool and not IPv4Network(bmc.pool).subnet_of(LOOPBACK):
            await self._open_route(bmc)
        if bmc.ipmi_port:
            self._open_udp((bind_address(bmc), bmc.ipmi_port), bmc.uuid, self._rmcp)
        if bmc.outlet is not None:
            self._open_udp(_pdu_place(bmc, bmc.outlet), bmc.uuid, self._snmp)
        if bmc.redfish_port:
            await self._open_http(bmc)

    async def close(self, bmc: Bmc) -> None:
        """This BMC needs its sockets no more."""
        address = bind_address(bmc)
        _leave(self._udp, (address, bmc.ipmi_port), bmc.uuid, _close_udp)
        if bmc.outlet is not None:
            _leave(self._udp, _pdu_place(bmc, bmc.outlet), bmc.uuid, _close_udp)
        http = _leave(self._http, (address, bmc.redfish_port), bmc.uuid, lambda _: None)
        if http is not None and http.http is not None:
            await http.http.close()
        if _leave(self._routes, bmc.pool, bmc.uuid, lambda _: None) is not None:
            await _route("del", bmc.pool)

    async def close_all(self) -> None:
        for shared in self._udp.values():
            _close_udp(shared)
        for shared in self._http.values():
            if shared.http is not None:
                await shared.http.close()
        self._udp.clear()
        self._http.clear()

    def _open_udp(self, key: tuple[str, int], user: UUID, datagram: Datagram) -> None:
        shared = self._udp.get(key)
        if shared is None:
            shared = self._udp[key] = _Shared()
            try:
                shared.udp = UdpSocket(*key, lambda data, peer: _take(shared, datagram, data, peer))
            except ProviderError:
                del self._udp[key]
                raise
        shared.users.add(user)

    async def _open_http(self, bmc: Bmc) -> None:
        key = (bind_address(bmc), bmc.redfish_port)
        shared = self._http.get(key)
        if shared is None:
            shared = self._http[key] = _Shared(tls=bmc.tls)
            try:
                app = App(self._service, self.accounts)
                settings = {"ws": "none", "http": RedfishHttp, **self._tls(bmc)}
                shared.http = HttpServer(app, [_bound(*key)], **settings)
                await shared.http.start()
            except ProviderError:
                del self._http[key]
                raise
        elif shared.tls is not bmc.tls:
            raise Conflict(
                f"Redfish on {key[0]}:{key[1]} is served {'with' if shared.tls else 'without'} TLS "
                "for other nodes",
                hint="Give this cluster another `bmc.redfish_port`, or the same `bmc.tls`.",
            )
        shared.users.add(bmc.uuid)

    def _tls(self, bmc: Bmc) -> dict[str, object]:
        """TLS 1.2 and 1.3 (DSP0266 §13.2.2)."""
        if not bmc.tls:
            return {}
        if self._certificates is None:
            raise ProviderError("this service has no place for certificates")
        pem = str(self._certificates.path(bind_address(bmc)))
        return {"ssl_certfile": pem, "ssl_keyfile": pem, "ssl_version": ssl.PROTOCOL_TLS_SERVER}

    def certificates(self, bmc: Bmc) -> Certificates | None:
        """Where its certificate is kept; None: it is served without TLS."""
        return self._certificates if bmc.tls else None

    def renew_certificate(self, bmc: Bmc) -> None:
        """Serve the certificate that is kept now, on every port of its address."""
        assert self._certificates is not None, "it is served with TLS"
        address = bind_address(bmc)
        for (place, _), shared in self._http.items():
            if place == address and shared.http is not None and shared.tls:
                shared.http.renew(self._certificates.path(address))

    def beside(self, bmc: Bmc) -> set[UUID]:
        """All BMCs that show the same certificate."""
        address = bind_address(bmc)
        return {
            user
            for (place, _), shared in self._http.items()
            if place == address and shared.tls
            for user in shared.users
        }

    async def _open_route(self, bmc: Bmc) -> None:
        if bmc.pool not in self._routes:
            await _route("replace", bmc.pool)
            self._routes[bmc.pool] = _Shared()
        self._routes[bmc.pool].users.add(bmc.uuid)


def _take(shared: _Shared, datagram: Datagram, data: bytes, peer: Peer) -> None:
    if shared.udp is not None:
        datagram(shared.udp, data, peer)


def _pdu_place(bmc: Bmc, outlet: Outlet) -> tuple[str, int]:
    """PDUs with addresses of a pool share one socket, as BMCs do."""
    return (bind_address(bmc) if bmc.pool else outlet.address), outlet.port


def _leave(
    table: dict[K, _Shared], key: K, user: UUID, close: Callable[[_Shared], None]
) -> _Shared | None:
    """Take a user out; the shared thing when that was its last one."""
    shared = table.get(key)
    if shared is None:
        return None
    shared.users.discard(user)
    if shared.users:
        return None
    del table[key]
    close(shared)
    return shared


def _close_udp(shared: _Shared) -> None:
    if shared.udp is not None:
        shared.udp.close()


def _bound(address: str, port: int) -> socket.socket:
    listener = socket.socket(family_of(address), socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address, port))
    except OSError as error:
        listener.close()
        holder = holder_of("tcp", port)
        by = f" by {holder}" if holder else ""
        raise ProviderError(
            f"cannot serve Redfish on {address}:{port}: {error.strerror}{by}",
            hint="Stop that, or choose another `bmc.redfish_port` in the cluster file.",
        ) from error
    return listener


async def _route(verb: str, pool: str) -> None:
    """This machine answers to every address of the pool (AnyIP; ip-route(8), type local)."""
    argv = ["ip", "route", verb, "local", pool, "dev", "lo", "proto", ROUTE_PROTOCOL]
    await process.run(argv, check=verb != "del")
