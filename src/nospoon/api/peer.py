"""Who is calling: SO_PEERCRED of the unix socket (unix(7)), carried in the ASGI scope."""

from __future__ import annotations

import asyncio
import grp
import json
import os
import pwd
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nospoon.api.errors import encode
from nospoon.errors import Forbidden
from nospoon.runtime.accepting import Identify, RefusedPeer
from nospoon.runtime.limited_http import LimitedHttp, LimitedWebSocket

_UCRED = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class Caller:
    """The user at the other end."""

    uid: int
    pid: int

    @property
    def admin(self) -> bool:
        return self.uid in (0, os.getuid())


class PeerHttp(LimitedHttp):
    """The protocol of all listeners, with the peer's uid and pid in the place of its address."""

    @property
    def is_known(self) -> bool:
        """As `members` admitted it."""
        return True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.client = _peer(transport)


class PeerWebSocket(LimitedWebSocket):
    """The same for a connection that became a websocket."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.client = _peer(transport)


def members(group: str) -> Identify:
    """Counts connections by user, and refuses those of users who may not use this daemon: before
    anything is read, so that they hold no descriptor.
    """

    def identify(connection: socket.socket) -> str:
        client = _credentials(connection)
        try:
            caller_of({"client": client}, group=group)
        except Forbidden as error:
            raise RefusedPeer(client[0], _answer(error)) from None
        return client[0]

    return identify


def _answer(error: Forbidden) -> bytes:
    body = json.dumps(encode(error)).encode()
    head = (
        "HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode("ascii") + body


def _peer(transport: asyncio.BaseTransport) -> tuple[str, int]:
    return _credentials(transport.get_extra_info("socket"))


def _credentials(peer: socket.socket) -> tuple[str, int]:
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    pid, uid, _gid = _UCRED.unpack(credentials)
    return f"uid={uid}", pid


def caller_of(scope: Mapping[str, Any], *, group: str) -> Caller:
    """The caller of a request. Raises `Forbidden` when they may not use this daemon."""
    host, pid = scope.get("client") or ("", 0)
    if not host.startswith("uid="):
        raise Forbidden("this connection carries no peer credentials", hint="Use the unix socket.")
    caller = Caller(uid=int(host.removeprefix("uid=")), pid=pid)
    if not caller.admin and not _in_group(caller.uid, group):
        raise Forbidden(
            f"user {caller.uid} may not use this daemon",
            hint=f"Join group {group!r}, or stop using root's daemon: set NOSPOON_RUNTIME_DIR.",
        )
    return caller


def _in_group(uid: int, group: str) -> bool:
    try:
        user, wanted = pwd.getpwuid(uid), grp.getgrnam(group)
    except KeyError:
        return False
    return user.pw_gid == wanted.gr_gid or user.pw_name in wanted.gr_mem
