"""Serial consoles of servers that can be typed at, by the WebSocket proxy of Nova.

https://docs.openstack.org/api-ref/compute/#create-console
https://docs.openstack.org/nova/latest/admin/remote-console-access.html#serial
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from nospoon.errors import Conflict, Gone, HostUnreachable, ProviderError, Unfetchable
from nospoon.providers.answers import text_of
from nospoon.providers.openstack.api import Api, Service
from nospoon.runtime.http import Streams, connected
from nospoon.runtime.reasons import reason

if TYPE_CHECKING:
    from websockets.client import ClientProtocol

PROTOCOL = "binary"
"""The subprotocol that Nova's proxy asks for (nova.console.websocketproxy)."""
LARGEST = 1 << 18
"""Bytes of a frame: the proxy sends at most 64 KiB at a time."""
PIECE = 1024
"""Bytes that are taken apart in one go: there may be a frame, with an answer, in each two."""
MOST_WAITING = 1 << 18
"""Bytes that wait for a proxy that takes none: answers to pings are, too."""
LONGEST_URL = 2048
SECONDS = 10.0
"""To connect to the proxy, and for it to take what is typed."""
SILENT_SECONDS = 20.0
"""After which a proxy is asked whether it is there, and then is gone: one that is between closes
connections that say nothing for a minute (HAProxy's `timeout client`).
"""
PORTS = {"ws": 80, "wss": 443}


class SerialConsole:
    """A `ConsoleStream`. Who wrote the file chose the cloud: what its proxy sends is taken a piece
    at a time, and only while it takes what is sent to it.
    """

    def __init__(self, streams: Streams, protocol: ClientProtocol) -> None:
        self._reader, self._writer = streams
        self._protocol = protocol
        self._said = bytearray()
        self._asked = self._over = False

    async def open(self) -> None:
        """Raises `OSError`, and what the library has for answers that are no WebSocket's."""
        from websockets.protocol import CONNECTING  # noqa: PLC0415  (heavy)

        self._protocol.send_request(self._protocol.connect())
        self._send()
        async with asyncio.timeout(SECONDS):
            while self._protocol.state is CONNECTING and not self._over:
                self._take(await self._reader.read(PIECE))
        if self._protocol.handshake_exc is not None:
            raise self._protocol.handshake_exc

    async def read(self) -> bytes:
        while not self._said and not self._over:
            try:
                async with asyncio.timeout(SILENT_SECONDS):
                    piece = await self._reader.read(PIECE)
            except OSError as error:
                if self._asked or not isinstance(error, TimeoutError):
                    self._end()
                    break
                self._asked = True
                self._protocol.send_ping(b"")
                self._send()
                continue
            self._asked = False
            self._take(piece)
            await asyncio.sleep(0)  # it may send as fast as it is read, and frames without content
        said = bytes(self._said)
        self._said.clear()
        return said

    def _take(self, piece: bytes) -> None:
        """What the proxy sent; b"" when it hung up."""
        from websockets.frames import DATA_OPCODES, Frame  # noqa: PLC0415  (heavy)

        if piece:
            self._protocol.receive_data(piece)
        else:
            self._protocol.receive_eof()
        for each in self._protocol.events_received():
            if isinstance(each, Frame) and each.opcode in DATA_OPCODES:
                self._said += each.data
        self._send()
        if not piece or self._protocol.close_expected():
            self._end()

    def _send(self) -> None:
        """Hand what waits to the transport; one that takes none for too long ends the console."""
        self._writer.writelines(each for each in self._protocol.data_to_send() if each)
        if self._writer.transport.get_write_buffer_size() > MOST_WAITING:
            self._end()

    def _end(self) -> None:
        """What the proxy has not taken by now is lost."""
        self._over = True
        if self._writer.transport.get_write_buffer_size():
            self._writer.transport.abort()
        else:
            self._writer.close()

    async def write(self, data: bytes) -> None:
        try:
            for at in range(0, len(data), PIECE):
                if self._over:
                    raise Gone("input is ignored: the cloud closed the console")
                self._protocol.send_binary(data[at : at + PIECE])
                self._send()
                async with asyncio.timeout(SECONDS):
                    await self._writer.drain()
        except OSError as error:
            self._end()
            raise Gone("input is ignored: the cloud takes none") from error

    async def send_break(self) -> None:
        raise Gone("no break was sent: the console proxy of a cloud passes none")

    async def close(self) -> None:
        if not self._over:
            self._protocol.send_close()
            self._send()
            self._end()


async def serial_console(api: Api, server: str) -> SerialConsole:
    """Of a server that is on. Raises `Gone` with the reason where the cloud gives none, and
    `HostUnreachable` where its proxy does not answer.
    """
    body = {"remote_console": {"protocol": "serial", "type": "serial"}}
    path = f"/servers/{server}/remote-consoles"
    try:
        url = await api.call(Service.NOVA, "POST", path, body, read=_url)
    except HostUnreachable:
        raise
    except (Conflict, ProviderError) as error:
        raise Gone(
            f"the console of server {server} cannot be typed at: {error}",
            hint="`nospoon node console --log` shows what it says.",
        ) from error
    return await _connected(url, api)


async def _connected(url: str, api: Api) -> SerialConsole:
    """Who wrote the file chose the cloud, and so the URL: its addresses are judged."""
    from websockets.client import ClientProtocol  # noqa: PLC0415  (heavy)
    from websockets.exceptions import WebSocketException  # noqa: PLC0415  (heavy)
    from websockets.typing import Subprotocol  # noqa: PLC0415  (heavy)
    from websockets.uri import parse_uri  # noqa: PLC0415  (heavy)

    try:
        uri, parts = parse_uri(url), urlsplit(url)
        port = parts.port or PORTS[parts.scheme]
    except (ValueError, WebSocketException) as error:
        raise Gone(
            f"the cloud's URL of a console is not one of a WebSocket: {url[:80]!r}"
        ) from error
    trust = await api.trust() if uri.secure else None
    try:
        async with asyncio.timeout(SECONDS):
            streams = await connected(uri.host, port, trust, api.reach)
        protocol = ClientProtocol(uri, subprotocols=[Subprotocol(PROTOCOL)], max_size=LARGEST)
        made = SerialConsole(streams, protocol)
        try:
            await made.open()
        except BaseException:
            streams[1].transport.abort()
            raise
    except Unfetchable as error:
        raise Gone(f"the cloud's console proxy: {error}", hint=error.hint) from error
    except (OSError, WebSocketException) as error:
        raise HostUnreachable(
            f"the console proxy at {uri.host}:{port} does not answer: {reason(error)}"
        ) from error
    return made


def _url(answer: Mapping[str, Mapping[str, str]]) -> str:
    return text_of(answer["remote_console"]["url"])[:LONGEST_URL]
