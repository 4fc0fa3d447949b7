"""The PDUs that feed nodes: SNMP in, AC power of BMCs switched; nothing runs per outlet."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from uuid import UUID

from nospoon.bmc.messages import AcLost, AcReturned, Answer, SettingsRequested, Verdict
from nospoon.bmc.pdu import apc, device
from nospoon.bmc.pdu.device import Configure, Effect, Pdu, Switch
from nospoon.model.resources.bmcs import Outlet
from nospoon.plan.enrollment.enrol import PDU_USER
from nospoon.plan.identity import snmp_community
from nospoon.protocols.limit import OF_THE_DAEMON, Budget
from nospoon.protocols.snmp.agent import Access, Agent
from nospoon.protocols.snmp.mib import TableMib
from nospoon.protocols.snmp.usm import User
from nospoon.runtime import clock
from nospoon.runtime.log_rate import RateLimitedLog
from nospoon.runtime.tasks import Tasks
from nospoon.runtime.udp import Peer, UdpSocket
from nospoon.services.bmcs.effects import Effects
from nospoon.services.bmcs.ports import BmcConfig
from nospoon.services.bmcs.registry import Registry, places_at

if TYPE_CHECKING:
    from nospoon.services.bmcs.served import Served

log = RateLimitedLog()
failed_logins = RateLimitedLog()

ENGINE = bytes.fromhex("8000013e05")
"""RFC 3411 §5, snmpEngineID: APC's enterprise number, and octets of our choice."""


@dataclass(slots=True)
class _Served:
    pdu: Pdu
    agent: Agent
    place: tuple[str, int]
    secret: str = field(repr=False)
    v2c: bool
    timer: asyncio.TimerHandle | None = None
    deadline: float | None = None


class Pdus:
    """PDUs by id; made with their first outlet, gone with the last."""

    def __init__(self, registry: Registry, effects: Effects, tasks: Tasks) -> None:
        self._registry, self._effects, self._tasks = registry, effects, tasks
        self._pdus: dict[UUID, _Served] = {}
        self._by_place: dict[tuple[str, int], _Served] = {}
        self._strangers = Budget(OF_THE_DAEMON)

    def plug(self, served: Served) -> None:
        """This BMC is fed by the outlet of its shape."""
        outlet, config = served.bmc.outlet, served.config
        if outlet is None:
            return
        known = self._pdus.get(outlet.pdu)
        if known is None:
            known = self._pdus[outlet.pdu] = self._made(outlet, config)
            self._by_place[known.place] = known
        elif (known.secret, known.v2c) != (config.pdu_secret, outlet.v2c):
            known.secret, known.v2c = config.pdu_secret, outlet.v2c
            known.agent = self._agent(known.pdu, outlet, config)
        now = self._effects.now
        known.pdu.plug(
            outlet.number, device.Outlet(config.bmc.uuid, config.node, served.aggregate), now
        )
        self._set_timer(known)

    def unplug(self, outlet: Outlet | None) -> None:
        """Harmless when it is not known."""
        known = self._pdus.get(outlet.pdu) if outlet is not None else None
        if known is None or outlet is None:
            return
        known.pdu.unplug(outlet.number)
        if not known.pdu.rows:
            del self._pdus[outlet.pdu], self._by_place[known.place]
        self._set_timer(known)

    def _made(self, outlet: Outlet, config: BmcConfig) -> _Served:
        serial = outlet.pdu.hex[:12].upper()
        pdu = Pdu(name=outlet.name, serial=serial, started=self._effects.now)
        agent = self._agent(pdu, outlet, config)
        return _Served(pdu, agent, (outlet.address, outlet.port), config.pdu_secret, outlet.v2c)

    def _agent(self, pdu: Pdu, outlet: Outlet, config: BmcConfig) -> Agent:
        secret = config.pdu_secret.encode()
        access = Access(
            community=snmp_community(config.pdu_secret).encode() if outlet.v2c else b"",
            user=User(PDU_USER.encode(), secret, secret),
            engine=ENGINE + outlet.pdu.bytes,
            boots=int(clock.unix()) & 0x7FFFFFFF,
            started=self._effects.now,
        )
        mib = TableMib(pdu, apc.COLUMNS, lambda each: each.rows)
        return Agent(access, mib, self._strangers)

    def datagram(self, opened: UdpSocket, data: bytes, peer: Peer) -> None:
        """A request came; it is answered when what it switched is durable, and not if it is not."""
        here = (self._by_place.get(each) for each in places_at((peer.local, opened.port)))
        served = next(filter(None, here), None)
        if served is None:
            return
        now, failed = self._effects.now, served.agent.failed_logins
        answer = served.agent.receive(
            data, source=peer.address, now=now, random=secrets.token_bytes
        )
        if served.agent.failed_logins != failed:
            failed_logins.warning("login failed", by="SNMP", peer=peer.address, pdu=served.pdu.name)
        told = self._carry_out(served)
        if answer is None:
            return
        if told:
            self._tasks.start(_send_after(told, opened, answer, peer), name="pdu answer")
        else:
            opened.send(answer, peer)

    def _carry_out(self, served: _Served) -> list[asyncio.Future[Answer]]:
        """Do what the PDU wants; returns what the BMCs that were told will answer."""
        effects = served.pdu.drain()
        if served.pdu.deadline != served.deadline:
            self._set_timer(served)
        told = (self._effect(served, each) for each in effects)
        return [each for each in told if each is not None]

    def _effect(self, served: _Served, effect: Effect) -> asyncio.Future[Answer] | None:
        outlet = served.pdu.outlets[effect.outlet]
        bmc = self._registry.status(outlet.uuid)
        if bmc is None:
            return None
        match effect:
            case Switch(on=on):
                return self._effects.ask(bmc, AcReturned if on else AcLost)
            case Configure(settings=settings):
                changed = replace(bmc.aggregate.runtime.settings, outlet=settings)
                return self._effects.ask(bmc, lambda ticket: SettingsRequested(changed, ticket))

    def _set_timer(self, served: _Served) -> None:
        if served.timer is not None:
            served.timer.cancel()
            served.timer = None
        served.deadline = served.pdu.deadline
        if served.deadline is not None:
            loop = asyncio.get_running_loop()
            served.timer = loop.call_at(served.deadline, self._expired, served)

    def _expired(self, served: _Served) -> None:
        served.timer = served.deadline = None
        served.pdu.expire(self._effects.now)
        self._carry_out(served)
        self._set_timer(served)

    def close(self) -> None:
        for each in self._pdus.values():
            if each.timer is not None:
                each.timer.cancel()


async def _send_after(
    told: Iterable[asyncio.Future[Answer]], opened: UdpSocket, answer: bytes, peer: Peer
) -> None:
    verdicts = {each.verdict for each in await asyncio.gather(*told)}
    if verdicts == {Verdict.DONE}:
        opened.send(answer, peer)
    else:
        log.warning("PDU does not answer: the change could not be stored", peer=peer.address)
