"""IPMI over LAN: datagrams to the endpoint of a BMC, its calls to the command table, and back."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from nospoon.bmc import ipmi
from nospoon.bmc.faults import Kind
from nospoon.bmc.messages import Answer
from nospoon.bmc.runtime import Runtime
from nospoon.bmc.users import added
from nospoon.protocols.ipmi.endpoint import (
    MAX_SESSIONS,
    Call,
    Endpoint,
    LoginFailed,
    Send,
    Typed,
)
from nospoon.protocols.ipmi.session import Identity, Login, Privilege
from nospoon.runtime.log_rate import RateLimitedLog
from nospoon.runtime.udp import TOGETHER, Peer, UdpSocket
from nospoon.services.bmcs.effects import Effects
from nospoon.services.bmcs.lan import lan
from nospoon.services.bmcs.late import LateDatagrams
from nospoon.services.bmcs.ports import BmcConfig
from nospoon.services.bmcs.registry import Registry
from nospoon.services.bmcs.sol import SolLines

if TYPE_CHECKING:
    from nospoon.services.bmcs.served import Served


failed_logins = RateLimitedLog()

_DROP, _DELAY = frozenset({Kind.DROP}), frozenset({Kind.DELAY})
_REFUSE, _ERROR = frozenset({Kind.REFUSE_SESSIONS}), frozenset({Kind.IPMI_ERROR})
REST, AT_ONCE = 30.0, 200
"""Seconds after which endpoints let go of what is over, and how many do in one turn of the loop."""
OPEN_REQUEST = b"\x10"
"""Payload type, byte 6 of a datagram (§13.6, table 13-16)."""
UNSPECIFIED = 0xFF


class Rmcp:
    """What the sockets of all BMCs call. `sol` None: there are no consoles."""

    def __init__(self, registry: Registry, effects: Effects, sol: SolLines | None) -> None:
        self._registry, self._effects, self._sol = registry, effects, sol
        self._late = LateDatagrams(TOGETHER)
        self._awake: dict[Endpoint, Served] = {}

    def datagram(self, opened: UdpSocket, data: bytes, peer: Peer) -> None:
        """A datagram came; a BMC that no one knows, or that has no AC power, is silent."""
        served = self._registry.at((peer.local, opened.port))
        if served is None:
            return
        if served.faults is None:
            self._take(opened, served, data, peer)
        else:
            self._take_badly(opened, served, data, peer)

    def _take_badly(self, opened: UdpSocket, served: Served, data: bytes, peer: Peer) -> None:
        """There are faults on demand: some datagrams are not taken, or not now."""
        now = self._effects.now
        if served.strike(_DROP, now) is not None:
            return
        refused = data[5:6] == OPEN_REQUEST and served.strike(_REFUSE, now) is not None
        most = 0 if refused else MAX_SESSIONS
        late = served.strike(_DELAY, now)
        if late is None:
            self._take(opened, served, data, peer, most)
            return
        faults = served.faults

        def due() -> None:
            """A BMC that went away meanwhile, or lost its AC power, is silent. What is on its way
            when faults are cleared is lost.
            """
            if served.faults is faults and self._registry.at((peer.local, opened.port)) is served:
                self._take(opened, served, data, peer, most)

        self._late.put(served, late.seconds, due)

    def _take(
        self,
        opened: UdpSocket,
        served: Served,
        data: bytes,
        peer: Peer,
        most: int = MAX_SESSIONS,
    ) -> None:
        """`most`: so many sessions there may be."""
        now, active = self._effects.now, served.endpoint.sol
        served.endpoint.most = most
        heard = served.endpoint.receive(data, peer, now=now, random=secrets.token_bytes)
        if served.endpoint.is_awake:
            self._watch(served)
        for each in heard:
            match each:
                case Send():
                    opened.send(each.data, peer)
                case Call():
                    self._call(opened, served, each, peer)
                case Typed() if self._sol is not None:
                    self._sol.typed(served, each)
                case LoginFailed():
                    failed_logins.warning(
                        "login failed",
                        by="IPMI",
                        peer=peer.address,
                        node=served.config.node,
                        account=each.user.decode("latin-1"),
                        times=each.count,
                    )
        if self._sol is not None and active is not None:
            self._sol.heard(served)
            self._sol.check(served, active)

    def _watch(self, served: Served) -> None:
        """No timer of each: one of all, while there are any."""
        if not self._awake:
            asyncio.get_running_loop().call_later(REST, self._rest, deque[Endpoint]())
        self._awake[served.endpoint] = served

    def _rest(self, left: deque[Endpoint]) -> None:
        """`left`: those of this round, none where it begins."""
        loop, round_ = asyncio.get_running_loop(), left or deque(self._awake)
        for _ in range(min(AT_ONCE, len(round_))):
            endpoint = round_.popleft()
            served, active = self._awake[endpoint], endpoint.sol
            if not endpoint.rest(self._effects.now):
                del self._awake[endpoint]
            if self._sol is not None and active is not None:
                self._sol.check(served, active)
        if round_:
            loop.call_soon(self._rest, round_)
        elif self._awake:
            loop.call_later(REST, self._rest, round_)

    def _call(self, opened: UdpSocket, served: Served, call: Call, peer: Peer) -> None:
        if call.session and served.strike(_ERROR, self._effects.now) is not None:
            sent = served.endpoint.reply(call, UNSPECIFIED, random=secrets.token_bytes)
            if sent is not None:
                opened.send(sent.data, peer)
            return
        message, context = call.message, self._context(served, call)
        result = ipmi.answer(context, message.netfn, message.command, message.data)

        def reply(code: int, data: bytes = b"") -> None:
            sent = served.endpoint.reply(call, code, data, random=secrets.token_bytes)
            if sent is not None:
                opened.send(sent.data, peer)

        match result:
            case None:
                return
            case ipmi.Reply(code=code, data=data):
                reply(code, data)
            case ipmi.Ask(event=event, data=data):

                def answered(answer: Answer) -> None:
                    code = ipmi.CODES[answer.verdict]
                    reply(code, data if code == ipmi.OK else b"")

                ticket = self._effects.ticket(answered)
                self._effects.feed(served, replace(event, ticket=ticket))
            case ipmi.Close(session=session):
                reply(ipmi.OK)
                served.endpoint.close(session)
            case ipmi.Activate() | ipmi.Deactivate():
                self._serial(opened, served, result, reply)

    def _serial(
        self,
        opened: UdpSocket,
        served: Served,
        wanted: ipmi.Activate | ipmi.Deactivate,
        reply: Callable[..., None],
    ) -> None:
        assert self._sol is not None, "otherwise the command table refuses"
        match wanted:
            case ipmi.Deactivate():
                self._sol.deactivate(served)
                reply(ipmi.OK)
            case ipmi.Activate(session=session, data=data):

                def attached(worked: bool) -> None:  # noqa: FBT001  (a callback's one argument)
                    if worked:
                        reply(ipmi.OK, data)
                    else:
                        reply(ipmi.UNAVAILABLE)

                self._sol.activate(opened, served, session, attached)

    def _context(self, served: Served, call: Call) -> ipmi.Context:
        endpoint = served.endpoint
        sol = 0 if endpoint.sol is None else endpoint.sol.session
        return ipmi.Context(
            bmc=served.aggregate,
            identity=endpoint.identity,
            session=endpoint.sessions.get(call.session),
            now=self._effects.now,
            sessions=endpoint.sessions,
            lan=lambda: lan(served.config),
            sol=sol if self._sol is not None else None,
        )


def identity(config: BmcConfig, runtime: Runtime, smbios: UUID | None = None) -> Identity:
    """Who the BMC is, and who may log in.

    A key K_G that a client set goes before the file's. The GUID is the UUID that the machine's
    guest sees, the node's or `smbios`, least significant byte first (IPMI 2.0 §20.8).
    """
    others = (
        Login(
            name=user.name.encode(),
            password=user.password.encode(),
            id=user.id,
            limit=Privilege(user.privilege),
            sol=user.sol,
        )
        for user in added(runtime.settings.users)
        if user.may_log_in
    )
    return Identity(
        username=config.bmc.username.encode(),
        password=config.password.encode(),
        guid=(smbios or config.bmc.uuid).bytes[::-1],
        kg=bytes.fromhex(runtime.settings.kg or config.k_g),
        others=tuple(others),
    )
