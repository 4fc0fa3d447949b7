"""Who is calling: SO_PEERCRED of the unix socket (unix(7)), carried in the ASGI scope."""

from __future__ import annotations

import asyncio
import grp
import os
import pwd
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from nospoon.errors import Forbidden

_UCRED = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class Caller:
    """The user at the other end."""

    uid: int
    pid: int

    @property
    def admin(self) -> bool:
        return self.uid in (0, os.getuid())


class PeerHttp(HttpToolsProtocol):
    """uvicorn's protocol, which puts the peer's uid and pid where the client address would be."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.client = _peer(transport)


class PeerWebSocket(WebSocketsSansIOProtocol):
    """The same for a connection that became a websocket."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.client = _peer(transport)


def _peer(transport: asyncio.BaseTransport) -> tuple[str, int]:
    peer = transport.get_extra_info("socket")
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
