"""Who is calling: SO_PEERCRED of the unix socket (unix(7)), carried in the ASGI scope."""

from __future__ import annotations

import asyncio
import grp
import json
import pwd
import socket
import struct
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor

from starlette.types import Scope

from nospoon.api.errors import encode
from nospoon.errors import Forbidden
from nospoon.model.principal import Administrators, OwnerId, Principal
from nospoon.runtime.accepting import RefusedPeer
from nospoon.runtime.clock import Clock, monotonic
from nospoon.runtime.limited_http import LimitedHttp
from nospoon.runtime.limited_websocket import LimitedWebSocket
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
        clock: Clock = monotonic,
    ) -> None:
        self._admins, self._clock = admins, clock
        self._group, self._is_member, self._patience = group, is_member, patience
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="members")
        self._known: dict[OwnerId, tuple[float, asyncio.Future[bool]]] = {}

    @property
    def known(self) -> int:
        """How many users are remembered."""
        return len(self._known)

    def identify(self, connection: socket.socket) -> str:
        """Counts connections by user. See `runtime.accepting.Identify`. Raises `RefusedPeer` for a
        user who was refused a moment ago: others wait to be accepted meanwhile.
        """
        peer = _credentials(connection)[0]
        caller = self._admins.principal(_uid(peer))
        if not caller.admin and self._recent(caller.uid, self._clock()) is False:
            raise RefusedPeer(peer, _answer(self.refusal(caller)))
        return peer

    async def authorize(self, peer: str) -> None:
        """Raises `RefusedPeer` for users who may not use this daemon: before anything is read, so
        that they hold no descriptor.
        """
        try:
            await self.caller({"client": (peer, 0)})
        except Forbidden as error:
            raise RefusedPeer(peer, _answer(error)) from None

    async def caller(self, scope: Scope) -> Principal:
        """Who sent a request. Raises `Forbidden` when they may not use this daemon."""
        caller = self.caller_of(scope)
        if not caller.admin and not await self._has(caller.uid):
            raise self.refusal(caller)
        return caller

    def refusal(self, caller: Principal) -> Forbidden:
        return Forbidden(
            f"user {caller.uid} may not use this daemon",
            hint=f"Join group {self._group!r}, or stop using root's daemon: "
            "set NOSPOON_RUNTIME_DIR.",
        )

    def _recent(self, uid: OwnerId, now: float) -> bool | None:
        """Whether a user is in the group; None where that is not known, or too old."""
        asked, answer = self._known.get(uid, (0.0, None))
        is_known = answer is not None and answer.done() and now - asked <= KEPT
        return answer.result() if is_known and answer is not None else None

    def asked(self, uid: OwnerId) -> asyncio.Future[bool]:
        """Whether a user is in the group, as it was found of late, or will be; not to be cancelled:
        others wait for it, too.
        """
        now = self._clock()
        _, answer = self._known.get(uid, (0.0, None))
        if answer is None or (answer.done() and self._recent(uid, now) is None):
            self._known.pop(uid, None)
            self._forget(now)
            answer = asyncio.wrap_future(self._threads.submit(self._is_member, uid, self._group))
            self._known[uid] = now, answer
        return answer

    async def _has(self, uid: OwnerId) -> bool:
        answer = self.asked(uid)
        await asyncio.wait([answer], timeout=self._patience)  # it goes on for those who ask next
        if not answer.done():
            log.warning("the group of a user is not known yet", uid=uid)
            return False
        return answer.result()

    def _forget(self, now: float) -> None:
        """Old answers, which come first: one user may have thousands of ids (subuid(5)), and a look
        at all of them for each would take ever longer.
        """
        while self._known:
            uid, (then, answer) = next(iter(self._known.items()))
            if now - then <= KEPT or not answer.done():
                return
            del self._known[uid]

    def caller_of(self, scope: Scope) -> Principal:
        """Who sent a request that was let in. Raises `Forbidden` without peer credentials."""
        host, _pid = scope.get("client") or ("", 0)
        if not host.startswith("uid="):
            raise Forbidden(
                "this connection carries no peer credentials", hint="Use the unix socket."
            )
        return self._admins.principal(_uid(host))

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


def _uid(peer: str) -> OwnerId:
    return int(peer.removeprefix("uid="))


def _credentials(peer: socket.socket) -> tuple[str, int]:
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    pid, uid, _gid = _UCRED.unpack(credentials)
    return f"uid={uid}", pid
