"""What the daemon itself does on a bridge: HTTP on its address, answers to iPXE's search for IPv6.

Listening on one address at a time keeps boot files off every other network of the host.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import socket
import struct
from dataclasses import replace
from ipaddress import ip_address

import structlog
from starlette.types import ASGIApp
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from nospoon.errors import Conflict, ProviderError
from nospoon.protocols.ipxe import advertisement
from nospoon.runtime.http_limits import Connections, HttpLimits
from nospoon.runtime.limited_http import LimitedHttp
from nospoon.runtime.serve import HttpServer
from nospoon.runtime.titled_head import TitledHead
from nospoon.runtime.udp import holder_of

LIMITS = HttpLimits(keep_alive=30, stalled=300, stranger_body=30, most_gives_way=True)
"""Boot loaders read slowly where a guest is emulated, and pause for as long as they unpack; the
probe sends its report without logging in. Four guests that read as slowly on purpose, each on as
many connections as it may have, keep others from no files.
"""

RELAYED = replace(LIMITS, per_peer=512, per_listener=512)
"""Of what comes through one relay: all machines behind it are one client."""

log = structlog.get_logger()

_SOL_PACKET, _ADD_MEMBERSHIP, _ALL_MULTICAST = 263, 1, 2  # packet(7)
_ATTACH_FILTER = 26  # SO_ATTACH_FILTER (asm-generic/socket.h)
_FRAME = 2048
PAUSE = 0.1


class BootHttp(LimitedHttp):
    """Names of headers reach the wire as the application writes them: GRUB wants `Content-Length`.

    uvicorn writes them in small letters, all of an answer's head at once.
    """

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        cycle.transport = TitledHead(cycle.transport)
        super()._start_asgi_task(cycle, app)


class HttpListeners:
    """The boot application on any number of addresses, all on one port."""

    def __init__(self, app: ASGIApp, *, port: int) -> None:
        self._app, self._port = app, port
        self._servers: dict[str, HttpServer] = {}
        self._connections = Connections(LIMITS)

    @property
    def port(self) -> int:
        return self._port

    def serves(self, address: str, port: int) -> bool:
        """Whether a connection to there, or to all addresses (0.0.0.0, ::), would be answered."""
        place = ip_address(address)
        here = {ip_address(each) for each in self._servers}
        return port == self._port and (place in here or (place.is_unspecified and bool(here)))

    def refuse(self, address: str) -> None:
        """Raises `ProviderError` for an address that this machine does not have, and `Conflict`
        where another process has the port there.
        """
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as tried:
            try:
                tried.bind((address, 0))
            except OSError as error:
                raise ProviderError(
                    f"{address} is not an address of this machine",
                    hint="`ip address` shows those that it has.",
                ) from error
        if address not in self._servers:
            self._bound(address).close()

    async def open(self, address: str) -> None:
        """Serve on this address; what is served already stays. Raises `Conflict` if it's taken."""
        if address in self._servers:
            return
        server = HttpServer(
            self._app,
            [self._bound(address)],
            limits=LIMITS,
            connections=self._connections,
            http=BootHttp,
            ws="none",
        )
        self._servers[address] = server
        await server.start()
        log.info("boot files are served", address=address, port=self._port)

    async def close(self, address: str) -> None:
        server = self._servers.pop(address, None)
        if server is not None:
            await server.close()

    async def close_all(self) -> None:
        for address in list(self._servers):
            await self.close(address)

    def _bound(self, address: str) -> socket.socket:
        six = ":" in address
        bound = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # the bridge may be away for a moment: its address can be bound before it is there (ip(7))
        level, option = (socket.IPPROTO_IPV6, _IPV6_FREEBIND) if six else (0, _IP_FREEBIND)
        bound.setsockopt(level, option, 1)
        try:
            bound.bind((address, self._port))
        except OSError as error:
            bound.close()
            raise self._refusal(address, error) from error
        bound.setblocking(False)  # noqa: FBT003  (socket's own signature)
        self._port = self._port or bound.getsockname()[1]
        return bound

    def _refusal(self, address: str, error: OSError) -> Conflict | ProviderError:
        where = f"{address}, TCP port {self._port}"
        if error.errno == errno.EADDRINUSE:
            holder = holder_of("tcp", self._port)
            return Conflict(
                f"another process listens on {where}{f', {holder}' if holder else ''}: boot files "
                "cannot be served there",
                hint="Set NOSPOON_BOOT_PORT to a free port.",
            )
        return ProviderError(f"cannot listen on {where}: {error.strerror}")


_IP_FREEBIND, _IPV6_FREEBIND = 15, 78  # linux/in.h, linux/in6.h


class Advertiser:
    """Answers router solicitations on one bridge with "nothing here"; see the protocol's module.

    All nodes hear an answer, so one now and then is enough, however many ask. The kernel drops what
    is no solicitation: guests may send each other IPv6 as fast as they can. `pause`: seconds from
    one answer to the next.
    """

    def __init__(self, bridge: str, *, pause: float = PAUSE) -> None:
        self._bridge, self._pause = bridge, pause
        self._socket: socket.socket | None = None
        self._waiting: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin; without the right to raw sockets network boot works too, 13 s slower."""
        try:
            self._socket = self._opened()
        except OSError as error:
            log.warning("no router advertisements", bridge=self._bridge, why=str(error))
            return
        self._listen()

    async def close(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        self._end()

    def _end(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def _opened(self) -> socket.socket:
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0))
        try:
            membership = struct.pack(
                "iHH8s", socket.if_nametoindex(self._bridge), _ALL_MULTICAST, 0, b""
            )
            opened.setsockopt(_SOL_PACKET, _ADD_MEMBERSHIP, membership)
            _take_solicitations_alone(opened)
            opened.bind((self._bridge, advertisement.ETHERTYPE))
            opened.setblocking(False)  # noqa: FBT003  (socket's own signature)
        except OSError:
            opened.close()
            raise
        return opened

    def _readable(self) -> None:
        assert self._socket is not None, "the reader is removed before the socket is closed"
        try:
            frame = self._socket.recv(_FRAME)
            if not advertisement.is_solicitation(frame):
                return
            mac = self._socket.getsockname()[4]
            self._socket.send(advertisement.nothing_here(mac))
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != errno.ENOBUFS:  # else guests have filled the bridge's queue
                log.info("router advertisements end", bridge=self._bridge, why=str(error))
                self._end()
                return
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._socket)
        self._waiting = loop.call_later(self._pause, self._listen)

    def _listen(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().add_reader(self._socket, self._readable)


def _take_solicitations_alone(opened: socket.socket) -> None:
    """What else comes is not kept for this socket (linux/filter.h, classic BPF)."""
    lines = b"".join(struct.pack("=HBBI", *each) for each in advertisement.FILTER)
    program = ctypes.create_string_buffer(lines, len(lines))
    pointer = struct.pack("@HP", len(advertisement.FILTER), ctypes.addressof(program))
    opened.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, pointer)
