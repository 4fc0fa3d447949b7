"""Failed logins wait and are logged; who comes from another address does not wait for them."""

from __future__ import annotations

import asyncio
import socket
import threading
from dataclasses import replace
from pathlib import Path
from secrets import token_bytes

import bcrypt
import pytest
from structlog.testing import capture_logs

from nospoon.bmc.pdu import apc
from nospoon.bmc.pdu.device import Pdu as PowerUnit
from nospoon.model.resources import bmcs
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.resource import Resource
from nospoon.plan.redfish_cautions import open_redfish, plain_redfish
from nospoon.protocols.failures import (
    ENTRIES,
    FORGOTTEN,
    FREE,
    FREE_OF_SOURCE,
    LONGEST,
    PATIENCE,
    Failures,
)
from nospoon.protocols.ipmi.endpoint import Endpoint, LoginFailed, Send
from nospoon.protocols.ipmi.session import Identity
from nospoon.protocols.limit import BURST, OF_A_BMC, Budget, Limiter
from nospoon.protocols.snmp.agent import Access, Agent
from nospoon.protocols.snmp.ber import NULL
from nospoon.protocols.snmp.mib import TableMib
from nospoon.protocols.snmp.pdu import Binding, Message, Pdu, Type, Version, write_message
from nospoon.protocols.snmp.usm import User
from nospoon.runtime.fair_worker import MOST_OF_SOURCE
from nospoon.runtime.udp import Peer
from nospoon.services.bmcs.redfish.app import App
from nospoon.services.bmcs.redfish.messages.uris import ROOT
from nospoon.testing.bench import bench, config, free_port
from nospoon.testing.console import Console
from nospoon.testing.redfish import SYSTEMS, client
from nospoon.testing.redfish_app import Login, Redfish

HERE, THERE = "192.0.2.1", "192.0.2.2"


def after(failures: Failures, count: int, source: str = HERE, account: str = "admin") -> float:
    """What the next attempt waits after so many failures at once."""
    for _ in range(count):
        failures.failed("bmc", source, account, now=0.0)
    return failures.wait("bmc", source, account, now=0.0)


def test_the_first_failures_are_free_and_then_waits_double_up_to_a_limit() -> None:
    waits = [after(Failures(), count) for count in range(FREE - 1, FREE + 8)]
    assert waits[:4] == [0.0, 0.5, 1.0, 2.0]
    assert waits[-1] == LONGEST


def test_another_source_another_account_and_another_bmc_do_not_wait() -> None:
    failures = Failures()
    assert after(failures, 20) > 0
    assert failures.wait("bmc", THERE, "admin", now=0.0) == 0.0
    assert failures.wait("bmc", HERE, "bob", now=0.0) == 0.0
    assert failures.wait("other", HERE, "admin", now=0.0) == 0.0


def test_a_source_that_tries_many_accounts_waits_for_all() -> None:
    failures = Failures()
    for number in range(60):
        failures.failed("bmc", HERE, f"user{number}", now=0.0)
    assert failures.wait("bmc", HERE, "admin", now=0.0) > 0
    assert failures.wait("bmc", THERE, "admin", now=0.0) == 0.0


def test_what_failed_is_forgotten_after_a_login_and_after_a_while() -> None:
    failures = Failures()
    assert after(failures, 20) > 0
    assert failures.wait("bmc", HERE, "admin", now=FORGOTTEN + 1) == 0.0
    assert after(failures, 20) > 0
    failures.worked("bmc", HERE, "admin")
    assert failures.wait("bmc", HERE, "admin", now=0.0) == 0.0


def test_attempts_at_once_wait_one_after_the_other_and_not_without_an_end() -> None:
    failures = Failures()
    after(failures, 20)
    waits = [failures.queue("bmc", HERE, "admin", now=0.0) for _ in range(5)]
    assert waits == [LONGEST, 2 * LONGEST, None, None, None]
    assert PATIENCE == 2 * LONGEST


def test_the_table_is_bounded() -> None:
    failures = Failures()
    for number in range(3 * ENTRIES):
        failures.failed("bmc", f"source{number}", f"user{number}", now=0.0)
    assert len(failures._past) == ENTRIES


class Bmc:
    """An endpoint of IPMI, and attempts at it."""

    def __init__(self) -> None:
        self.endpoint = Endpoint(Identity(b"admin", b"s3cret", bytes(16)))
        self.failed: list[LoginFailed] = []
        self._ids = iter(range(1, 1000))

    def tell(self, data: bytes, now: float, source: str) -> bytes:
        """What is answered; b"" for silence."""
        peer = Peer(source, 40000, "127.0.0.1")
        random = token_bytes
        found = self.endpoint.receive(data, peer, now=now, random=random)
        self.failed += [each for each in found if isinstance(each, LoginFailed)]
        return b"".join(each.data for each in found if isinstance(each, Send))

    def log_in(self, password: bytes, now: float, source: str = HERE) -> bool | None:
        """Whether it works; None: there is no answer."""
        console = Console(b"admin", password, 17, id=next(self._ids))
        console.take_open(self.tell(console.open_request(), now, source))
        second = self.tell(console.rakp1(), now, source)
        if not second:
            return None
        console.take_rakp2(second)
        return console.take_rakp4(self.tell(console.rakp3(), now, source))


def test_ipmi_lets_a_source_wait_after_wrong_passwords_and_no_other() -> None:
    bmc = Bmc()
    assert [bmc.log_in(b"guess", 0.0) for _ in range(FREE + 2)] == [False] * FREE + [None] * 2
    assert [each.count for each in bmc.failed] == list(range(1, FREE + 1))
    assert bmc.failed[0].user == b"admin"
    assert bmc.log_in(b"s3cret", 0.0) is None
    assert bmc.log_in(b"s3cret", 0.0, THERE)
    assert bmc.log_in(b"s3cret", 1.0)
    assert bmc.log_in(b"guess", 1.0) is False


def test_handshakes_opened_before_are_no_more_guesses() -> None:
    """Eight may be open; a proof that comes while its source waits is not looked at."""
    bmc, consoles = Bmc(), []
    for number in range(8):
        console = Console(b"admin", b"guess", 17, id=100 + number)
        console.take_open(bmc.tell(console.open_request(), 0.0, HERE))
        console.take_rakp2(bmc.tell(console.rakp1(), 0.0, HERE))
        consoles.append(console)
    answers = [bmc.tell(each.rakp3(), 0.0, HERE) for each in consoles]
    assert [bool(each) for each in answers] == [True] * FREE + [False] * (8 - FREE)


def test_a_user_that_is_not_there_is_logged() -> None:
    bmc, console = Bmc(), Console(b"eve", b"guess")
    console.take_open(bmc.tell(console.open_request(), 0.0, HERE))
    bmc.tell(console.rakp1(), 0.0, HERE)
    assert [each.user for each in bmc.failed] == [b"eve"]


def test_snmp_counts_wrong_communities_and_delays_nobody() -> None:
    """Sources of its datagrams can be forged: who waits there would be shut out by a stranger."""
    secret = b"secret-community"
    access = Access(secret, User(b"u", b"passphrase", b"passphrase"), b"engine", 1, 0.0)
    pdu = PowerUnit(name="pdu", serial="1", started=0.0)
    agent = Agent(access, TableMib(pdu, apc.COLUMNS, lambda each: each.rows))
    ask = Pdu(Type.GET_NEXT, 1, (Binding((1, 3), NULL),))
    for community, answered in ((b"guess", False), (secret, True)):
        sent = write_message(Message(Version.V2C, community, ask))
        for _ in range(20):
            got = agent.receive(sent, source=HERE, now=0.0, random=token_bytes)
            assert (got is not None) is answered
    assert agent.failed_logins == 20


async def test_redfish_refuses_and_logs_who_goes_on_with_wrong_passwords() -> None:
    async with bench(1) as b:
        failures = b.service.listeners.accounts.failures
        wrong = Redfish.of(b, Login("admin", "wrong-password"))
        with capture_logs() as logs:
            for _ in range(FREE - 1):
                assert (await wrong.ask("GET", f"{ROOT}/Systems")).status == 401
            session = {"UserName": "admin", "Password": "wrong-password"}
            place = f"{ROOT}/SessionService/Sessions"
            assert (await wrong.without_login().ask("POST", place, session)).status == 401
        told = [each for each in logs if each["event"] == "login failed"]
        assert told
        assert {each["account"] for each in told} == {"admin"}
        assert "wrong-password" not in str(logs)
        now = asyncio.get_running_loop().time()
        while failures.queue(wrong.server, "127.0.0.1", "admin", now=now) is not None:
            """Others wait already."""
        for each in (wrong, Redfish.of(b)):
            refused = await each.ask("GET", f"{ROOT}/Systems")
            assert (refused.status, refused.headers["retry-after"]) == (503, "10")
        elsewhere = replace(Redfish.of(b), client="192.0.2.9")
        assert (await elsewhere.ask("GET", f"{ROOT}/Systems")).status == 200


async def test_the_wait_of_a_login_holds_up_nobody_else() -> None:
    async with bench(1) as b:
        wrong = Redfish.of(b, Login("admin", "wrong-password"))
        for _ in range(FREE):
            await wrong.ask("GET", f"{ROOT}/Systems")
        elsewhere = replace(Redfish.of(b), client="192.0.2.9")
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(Redfish.of(b).ask("GET", f"{ROOT}/Systems"))
            await asyncio.sleep(0)
            assert (await elsewhere.ask("GET", f"{ROOT}/Systems")).status == 200
            assert not waiting.done()
        assert waiting.result().status == 200


async def test_every_answer_of_redfish_has_security_headers(tmp_path: Path) -> None:
    async with bench(1, tls=tmp_path) as b:
        line = client(b.first)
        for path in (ROOT, f"{ROOT}/Systems", f"{ROOT}/$metadata", f"{ROOT}/none"):
            headers = (await line.get(path)).headers
            assert headers["x-content-type-options"] == "nosniff"
            assert "no-store" in headers["cache-control"] or path == ROOT + "/none"
            assert headers["strict-transport-security"].startswith("max-age=")
    async with bench(1) as b:
        assert "strict-transport-security" not in (await client(b.first).get(ROOT)).headers


def resource(bmc: bmcs.Bmc, name: str) -> Resource:
    return Resource(Key(Kind.BMC, "here", name), bmc)


def test_a_plan_cautions_where_passwords_cross_a_network_in_the_clear() -> None:
    plain = replace(config(0, redfish_port=8000).bmc, address="10.0.0.5")
    many = [resource(plain, "a"), resource(plain, "b")]
    (note,) = plain_redfish(many)
    assert note.startswith("Redfish of a and 1 more is served without TLS")
    assert "`bmc.tls: true`" in note
    for quiet in (
        replace(plain, tls=True),
        replace(plain, address="127.0.0.2"),
        replace(plain, redfish_port=0),
    ):
        assert list(plain_redfish([resource(quiet, "a")])) == []


def test_a_plan_cautions_where_no_login_is_needed() -> None:
    free = replace(config(0, redfish_port=8000).bmc, address="10.0.0.5", redfish_login=False)
    (note,) = open_redfish([resource(free, "a"), resource(free, "b")])
    assert note.startswith("Redfish of a and 1 more answers without a login: everyone who can")
    assert list(plain_redfish([resource(free, "a")])) == []  # no password crosses a network
    (note,) = open_redfish([resource(replace(free, address="127.0.0.2"), "a")])
    assert "every user and program of this machine" in note
    assert list(open_redfish([resource(replace(free, redfish_login=True), "a")])) == []


def test_logins_that_work_make_up_for_one_wrong_password_among_many_nodes() -> None:
    failures = Failures()
    for round_ in range(4 * FREE_OF_SOURCE):
        now = round_ * 60.0
        failures.failed("bmc", HERE, "wrong", now=now)
        failures.worked("bmc", HERE, "right")
    assert failures.wait("bmc", HERE, "right", now=now) == 0.0
    assert failures.wait("bmc", HERE, "wrong", now=now) > 0


def test_a_network_of_ipv6_is_one_source_wherever_something_is_counted() -> None:
    """Who has a /64 has 2**64 addresses; IPv4 as IPv6 writes it is IPv4."""
    network = [f"2001:db8:0:1::{number:x}" for number in range(1, 1000)]
    failures, limiter, budget = Failures(), Limiter(), Budget(OF_A_BMC)
    for source in network[: FREE + 1]:
        failures.failed("bmc", source, "admin", now=0.0)
    assert failures.wait("bmc", network[-1], "admin", now=0.0) > 0
    assert failures.wait("bmc", "2001:db8:0:2::1", "admin", now=0.0) == 0
    allowed = sum(limiter.allows(network[each % 999], 0.0) for each in range(int(BURST) + 100))
    assert allowed == BURST
    for source in network:
        budget.came(source, 0, 0.0)
        budget.pays(source, 64)
    assert not budget.pays(network[0], 64)
    assert failures.failed("bmc", "::ffff:192.0.2.9", "bob", now=0.0) == 1
    assert failures.failed("bmc", "192.0.2.9", "bob", now=0.0) == 2


async def test_checks_of_hashes_of_one_owner_hold_up_a_login_at_anothers_by_one_check() -> None:
    async with bench(2) as b, asyncio.timeout(20):
        hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
        other = replace(b.configs[1], password=hashed, owner=1)
        port = free_port(socket.SOCK_STREAM)
        other = replace(other, bmc=replace(other.bmc, redfish_port=port))
        await b.service.put(other)
        worker, order = b.service.listeners.accounts.checked.worker, list[object]()
        first, later = threading.Event(), threading.Event()

        async def flood(number: int) -> None:
            gate = later if number else first
            await worker.run(gate.wait, group=0, source=HERE, key=number)
            order.append(number)

        async def log_in() -> None:
            answer = await Redfish.of(b, Login("admin", "secret")).at(other).ask("GET", SYSTEMS)
            order.append(answer.status)
            later.set()

        try:
            async with asyncio.TaskGroup() as group:
                for number in range(MOST_OF_SOURCE):
                    group.create_task(flood(number))
                group.create_task(log_in())
                while worker.waiting(1) == 0:  # noqa: ASYNC110  (nobody tells)
                    await asyncio.sleep(0)
                first.set()
        finally:
            first.set()
            later.set()
        assert order[:2] == [0, 200]


@pytest.mark.parametrize("there", ["127.9.9.9", "::ffff:127.0.0.1"])
def test_all_of_loopback_is_one_source(there: str) -> None:
    """Any user of this machine has each of its addresses."""
    failures = Failures()
    for number in range(FREE + 1):
        failures.failed("bmc", f"127.0.0.{number + 1}", "admin", now=0.0)
    assert failures.wait("bmc", there, "admin", now=0.0) > 0
    assert failures.wait("bmc", "::1", "admin", now=0.0) == 0.0
    assert failures.wait("bmc", HERE, "admin", now=0.0) == 0.0


async def test_failed_logins_at_all_addresses_of_a_bmc_count_together() -> None:
    async with bench(0) as b:
        one = config(0, redfish_port=free_port(socket.SOCK_STREAM))
        anywhere = replace(one, bmc=replace(one.bmc, address="0.0.0.0"))
        await b.service.put(anywhere)
        app = App(b.service.redfish, b.service.listeners.accounts)
        wrong, port = Login("admin", "wrong-password"), one.bmc.redfish_port
        with capture_logs() as logs:
            for number in range(FREE - 1):
                there = Redfish(app, (f"192.0.2.{number + 1}", port), wrong, client=HERE)
                assert (await there.ask("GET", f"{ROOT}/Systems")).status == 401
        assert [each["times"] for each in logs] == list(range(1, FREE))
