"""Who is calling: SO_PEERCRED of the unix socket (unix(7)), carried in the ASGI scope."""

from __future__ import annotations

import asyncio
import grp
import json
import pwd
import socket
import struct
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from nospoon.api.errors import encode
from nospoon.errors import Forbidden
from nospoon.model.principal import Administrators, OwnerId, Principal
from nospoon.runtime.accepting import RefusedPeer
from nospoon.runtime.clock import monotonic
from nospoon.runtime.limited_http import LimitedHttp, LimitedWebSocket
from nospoon.runtime.log_rate import RateLimitedLog

_UCRED = struct.Struct("3i")
KEPT = 10.0
"""Seconds for which it is remembered whether a user is in the group."""
PATIENCE = 5.0
"""Seconds for which a caller waits until that is known."""
THREADS = 4
"""In which it is looked up."""
IsMember = Callable[[OwnerId, str], bool]
"""Whether a user, by uid, is in a group; may block."""

log = RateLimitedLog()


class PeerHttp(LimitedHttp):
    """The protocol of all listeners, with the peer's uid and pid in the place of its address."""

    @property
    def is_known(self) -> bool:
        """As `Members` admitted it."""
        return True

    @property
    def account(self) -> Hashable:
        """The user; a websocket's, too."""
        return None if self.is_waiting or self.client is None else self.client[0]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.client = _peer(transport)


class PeerWebSocket(LimitedWebSocket):
    """The same for a connection that became a websocket."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.client = _peer(transport)


def _in_group(uid: OwnerId, group: str) -> bool:
    try:
        user, wanted = pwd.getpwuid(uid), grp.getgrnam(group)
    except KeyError:
        return False
    return user.pw_gid == wanted.gr_gid or user.pw_name in wanted.gr_mem


class Members:
    """Who may use this daemon: its administrators, and members of a group.

    The system's databases of users and groups may be on another machine (nsswitch.conf(5), LDAP):
    they are asked in threads of their own, once for a user in `KEPT` seconds, and whose answer does
    not come is refused.
    """

    def __init__(
        self,
        group: str,
        admins: Administrators,
        *,
        is_member: IsMember = _in_group,
        patience: float = PATIENCE,
    ) -> None:
        self._admins = admins
        self._group, self._is_member, self._patience = group, is_member, patience
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="members")
        self._known: dict[OwnerId, tuple[float, asyncio.Future[bool]]] = {}

    def identify(self, connection: socket.socket) -> str:
        """Counts connections by user. See `runtime.accepting.Identify`."""
        return _credentials(connection)[0]

    async def authorize(self, peer: str) -> None:
        """Raises `RefusedPeer` for users who may not use this daemon: before anything is read, so
        that they hold no descriptor.
        """
        try:
            await self.caller({"client": (peer, 0)})
        except Forbidden as error:
            raise RefusedPeer(peer, _answer(error)) from None

    async def caller(self, scope: Mapping[str, object]) -> Principal:
        """Who sent a request. Raises `Forbidden` when they may not use this daemon."""
        caller = self.caller_of(scope)
        if not caller.admin and not await self._has(caller.uid):
            raise Forbidden(
                f"user {caller.uid} may not use this daemon",
                hint=f"Join group {self._group!r}, or stop using root's daemon: "
                "set NOSPOON_RUNTIME_DIR.",
            )
        return caller

    async def _has(self, uid: OwnerId) -> bool:
        now = monotonic()
        asked, answer = self._known.get(uid, (float("-inf"), None))
        if answer is None or (answer.done() and now - asked > KEPT):
            for other, (then, found) in list(self._known.items()):
                if found.done() and now - then > KEPT:
                    del self._known[other]
            answer = asyncio.wrap_future(self._threads.submit(self._is_member, uid, self._group))
            self._known[uid] = now, answer
        await asyncio.wait([answer], timeout=self._patience)  # it goes on for those who ask next
        if not answer.done():
            log.warning("the group of a user is not known yet", uid=uid)
            return False
        return answer.result()

    def caller_of(self, scope: Mapping[str, Any]) -> Principal:
        """Who sent a request that was let in. Raises `Forbidden` without peer credentials."""
        host, _pid = scope.get("client") or ("", 0)
        if not host.startswith("uid="):
            raise Forbidden(
                "this connection carries no peer credentials", hint="Use the unix socket."
            )
        return self._admins.principal(int(host.removeprefix("uid=")))

    def close(self) -> None:
        """What runs is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)


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
