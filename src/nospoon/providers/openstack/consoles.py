"""Serial consoles of servers that can be typed at, by the WebSocket proxy of Nova.

https://docs.openstack.org/api-ref/compute/#create-console
https://docs.openstack.org/nova/latest/admin/remote-console-access.html#serial
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from nospoon.errors import Conflict, Gone, HostUnreachable, ProviderError
from nospoon.providers.openstack.api import Api, Service
from nospoon.runtime.reach import places_of
from nospoon.runtime.reasons import reason

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

PROTOCOL = "binary"
"""The subprotocol that Nova's proxy asks for (nova.console.websocketproxy)."""
LARGEST, WAITING = 1 << 18, 4
"""Bytes of a message, and messages that wait: the proxy sends at most 64 KiB at a time."""
LONGEST_URL = 2048
SECONDS = 10.0
"""To connect to the proxy, and to close a connection."""
PORTS = {"ws": 80, "wss": 443}


@dataclass(frozen=True, slots=True)
class SerialConsole:
    """A `ConsoleStream`."""

    socket: ClientConnection

    async def read(self) -> bytes:
        from websockets.exceptions import ConnectionClosed  # noqa: PLC0415  (heavy)

        try:
            while not (data := await self.socket.recv()):
                pass
        except ConnectionClosed:
            return b""
        return data.encode() if isinstance(data, str) else data

    async def write(self, data: bytes) -> None:
        from websockets.exceptions import ConnectionClosed  # noqa: PLC0415  (heavy)

        try:
            await self.socket.send(data)
        except ConnectionClosed as error:
            raise Gone("input is ignored: the cloud closed the console") from error

    async def send_break(self) -> None:
        raise ProviderError("no break was sent: the console proxy of a cloud passes none")

    async def close(self) -> None:
        await self.socket.close()


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
    return SerialConsole(await _connected(url, api))


async def _connected(url: str, api: Api) -> ClientConnection:
    """Who wrote the file chose the cloud, and so the URL: its addresses are judged."""
    from websockets.asyncio.client import connect  # noqa: PLC0415  (heavy)
    from websockets.exceptions import WebSocketException  # noqa: PLC0415  (heavy)
    from websockets.typing import Subprotocol  # noqa: PLC0415  (heavy)

    parts = urlsplit(url)
    if parts.scheme not in PORTS or not parts.hostname:
        raise Gone(f"the cloud's URL of a console is not one of a WebSocket: {url[:80]}")
    port = parts.port or PORTS[parts.scheme]
    place, *_ = await places_of(parts.hostname, port, api.reach)
    trust = await api.trust() if parts.scheme == "wss" else None
    try:
        return await connect(
            url,
            host=place,
            port=port,
            subprotocols=[Subprotocol(PROTOCOL)],
            compression=None,
            proxy=None,
            user_agent_header=None,
            open_timeout=SECONDS,
            close_timeout=SECONDS,
            max_size=LARGEST,
            max_queue=WAITING,
            ssl=trust,
        )
    except (OSError, ValueError, WebSocketException) as error:  # the second: a redirect elsewhere
        raise HostUnreachable(
            f"the console proxy at {parts.hostname}:{port} does not answer: {reason(error)}"
        ) from error


def _url(answer: Mapping[str, Mapping[str, str]]) -> str:
    return str(answer["remote_console"]["url"])[:LONGEST_URL]
