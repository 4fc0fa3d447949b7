"""Sessions over RMCP+, as conversations between a console and an endpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nospoon.protocols.ipmi.endpoint import (
    HANDSHAKES_PER_ADDRESS,
    MAX_HANDSHAKES,
    MAX_SESSIONS,
    Call,
    Endpoint,
    Event,
    Send,
)
from nospoon.protocols.ipmi.session import (
    HANDSHAKE_TIMEOUT,
    SESSION_TIMEOUT,
    Identity,
    Login,
    Privilege,
)
from nospoon.protocols.limit import BURST, OF_A_BMC, SOURCES, Limiter
from nospoon.runtime.udp import Peer
from nospoon.testing.console import ALGORITHMS, Console, message, plain, setup

GUID = bytes(range(16))
IDENTITY = Identity(username=b"admin", password=b"s3cret", guid=GUID)
HERE = Peer("127.0.0.1", 40000, "127.0.0.1")
ELSEWHERE = Peer("127.0.0.2", 40000, "127.0.0.1")
SUITES = pytest.mark.parametrize("suite", [3, 17])
POWER_STATUS = (0x00, 0x01)
SETUP_PAYLOAD = 16
"""Where the payload of a handshake stands in its datagram."""


def counter() -> Callable[[int], bytes]:
    """Bytes that differ each time, as random ones do."""
    state = iter(range(1, 1 << 30))
    return lambda size: next(state).to_bytes(size, "little")


class Wire:
    """An endpoint and what comes back from it."""

    def __init__(self) -> None:
        self.endpoint = Endpoint(IDENTITY)
        self.random = counter()

    def tell(self, data: bytes, now: float = 0.0, source: Peer = HERE) -> list[Event]:
        return list(self.endpoint.receive(data, source, now=now, random=self.random))

    def ask(self, data: bytes, now: float = 0.0) -> bytes:
        [sent] = [each for each in self.tell(data, now) if isinstance(each, Send)]
        return sent.data

    def log_in(self, console: Console, now: float = 0.0) -> Console:
        console.take_open(self.ask(console.open_request(), now))
        assert console.take_rakp2(self.ask(console.rakp1(), now))
        assert console.take_rakp4(self.ask(console.rakp3(), now))
        return console

    def call(self, data: bytes, now: float = 0.0) -> Call:
        [call] = self.tell(data, now)
        assert isinstance(call, Call)
        return call


def admin(suite: int = 17, id: int = 0xA0A1A2A3) -> Console:  # noqa: A002  (the standard's word)
    return Console(b"admin", b"s3cret", suite, id=id)


@SUITES
def test_a_console_logs_in_and_gets_answers(suite: int) -> None:
    wire = Wire()
    console = wire.log_in(admin(suite))
    call = wire.call(console.request(*POWER_STATUS))
    assert (call.message.netfn, call.message.command, call.message.data) == (0, 1, b"")
    sent = wire.endpoint.reply(call, 0x00, b"\x01\x02\x03\x04", random=wire.random)
    assert sent is not None
    assert sent.to == HERE
    assert console.take(sent.data) == (0x00, b"\x01\x02\x03\x04")
    assert console.guid == GUID


@SUITES
@given(data=st.binary(max_size=40))
def test_requests_and_answers_of_any_length_survive(suite: int, data: bytes) -> None:
    wire = Wire()
    console = wire.log_in(admin(suite))
    call = wire.call(console.request(0x06, 0x01, data))
    assert call.message.data == data
    sent = wire.endpoint.reply(call, 0x00, data, random=wire.random)
    assert sent is not None
    assert console.take(sent.data) == (0x00, data)


@SUITES
def test_a_wrong_password_is_refused(suite: int) -> None:
    wire = Wire()
    console = Console(b"admin", b"guess", suite)
    console.take_open(wire.ask(console.open_request()))
    assert not console.take_rakp2(wire.ask(console.rakp1()))
    assert not console.take_rakp4(wire.ask(console.rakp3()))
    assert console.status == 0x0F
    assert wire.endpoint.sessions == {}


def test_a_name_that_is_too_long_is_refused_as_such() -> None:
    wire, console = Wire(), Console(b"seventeen letters", b"s3cret")
    console.take_open(wire.ask(console.open_request()))
    assert not console.take_rakp2(wire.ask(console.rakp1()))
    assert console.status == 0x0C


def test_a_console_that_gives_up_ends_its_handshake() -> None:
    wire, console = Wire(), admin()
    console.take_open(wire.ask(console.open_request()))
    assert console.take_rakp2(wire.ask(console.rakp1()))
    gave_up = bytearray(console.rakp3())
    gave_up[SETUP_PAYLOAD + 1] = 0x0F
    assert wire.tell(bytes(gave_up)) == []
    assert wire.endpoint.sessions == {}


def test_a_wrong_name_is_refused() -> None:
    wire = Wire()
    console = Console(b"root", b"s3cret")
    console.take_open(wire.ask(console.open_request()))
    assert not console.take_rakp2(wire.ask(console.rakp1()))
    assert console.status == 0x0D


@pytest.mark.parametrize("suite", sorted(set(ALGORITHMS) - {3, 17}))
def test_cipher_suites_that_protect_too_little_are_refused(suite: int) -> None:
    wire = Wire()
    console = admin(suite)
    console.take_open(wire.ask(console.open_request()))
    assert console.status == 0x11
    assert wire.endpoint.sessions == {}


def test_wildcards_get_the_strongest_suite() -> None:
    wire = Wire()
    blocks = b"".join(bytes([kind, 0, 0, 0, 0, 0, 0, 0]) for kind in range(3))
    answer = wire.ask(setup(0x10, b"\x01\x04\x00\x00\x01\x02\x03\x04" + blocks))
    assert [answer[16 + 12 + 8 * n + 4] for n in range(3)] == [3, 4, 1]


def test_a_privilege_beyond_administrator_is_refused() -> None:
    wire = Wire()
    console = Console(b"admin", b"s3cret", privilege=5)
    console.take_open(wire.ask(console.open_request()))
    assert console.status == 0x09


def test_a_role_above_what_was_asked_first_is_refused() -> None:
    wire = Wire()
    console = Console(b"admin", b"s3cret", privilege=2)
    console.take_open(wire.ask(console.open_request()))
    console.privilege = 4
    console.take_rakp2(wire.ask(console.rakp1()))
    assert console.status == 0x0A


def test_a_replayed_datagram_gets_no_reply() -> None:
    wire = Wire()
    console = wire.log_in(admin())
    data = console.request(*POWER_STATUS)
    wire.call(data)
    assert wire.tell(data) == []


@pytest.mark.parametrize(
    ("numbers", "taken"),
    [
        ([1, 2, 3], [1, 2, 3]),
        ([3, 1, 2], [3, 1, 2]),
        ([1, 17], [1, 17]),
        ([1, 18], [1]),
        ([16, 32, 17], [16, 32, 17]),
        ([16, 32, 16], [16, 32]),
        ([15, 30, 14], [15, 30]),
        ([0], []),
        ([1 << 31], []),
        ([5, 5, 4, 4], [5, 4]),
    ],
)
def test_sequence_numbers_are_taken_once_and_within_the_window(
    numbers: list[int], taken: list[int]
) -> None:
    wire = Wire()
    console = wire.log_in(admin())
    got = []
    for number in numbers:
        console.sequence = number
        if wire.tell(console.sealed(message(*POWER_STATUS))):
            got.append(number)
    assert got == taken


@SUITES
def test_a_flipped_bit_anywhere_gets_no_reply_and_uses_up_no_number(suite: int) -> None:
    wire = Wire()
    console = wire.log_in(admin(suite))
    data = console.request(*POWER_STATUS)
    for position in range(4, len(data)):
        broken = bytearray(data)
        broken[position] ^= 0x01
        assert wire.tell(bytes(broken)) == []
    assert wire.call(data)


def test_a_packet_in_the_clear_gets_no_reply_within_a_session() -> None:
    wire = Wire()
    console = wire.log_in(admin())
    payload = message(*POWER_STATUS)
    header = bytes.fromhex("0600ff070600") + console.session.to_bytes(4, "little")
    data = header + (1).to_bytes(4, "little") + len(payload).to_bytes(2, "little") + payload
    assert wire.tell(data) == []


def test_a_lost_answer_to_rakp_1_or_3_is_given_again() -> None:
    wire = Wire()
    console = admin()
    console.take_open(wire.ask(console.open_request()))
    assert wire.ask(console.rakp1()) == (second := wire.ask(console.rakp1()))
    assert console.take_rakp2(second)
    assert wire.ask(console.rakp3()) == (last := wire.ask(console.rakp3()))
    assert console.take_rakp4(last)
    assert wire.call(console.request(*POWER_STATUS))
    assert wire.tell(console.rakp3()) == []


def test_a_session_ends_after_a_minute_of_silence() -> None:
    wire = Wire()
    console = wire.log_in(admin(), 0.0)
    assert wire.call(console.request(*POWER_STATUS), 50.0)
    assert wire.endpoint.deadline == 50.0 + SESSION_TIMEOUT
    assert wire.call(console.request(*POWER_STATUS), 109.0)
    assert wire.tell(console.request(*POWER_STATUS), 170.0) == []
    assert wire.endpoint.deadline is None


def test_a_handshake_that_is_not_finished_is_forgotten() -> None:
    wire = Wire()
    wire.ask(admin().open_request())
    wire.endpoint.expire(HANDSHAKE_TIMEOUT)
    assert wire.endpoint.sessions == {}


def test_a_flood_of_open_requests_leaves_bounded_state_and_active_sessions_alone() -> None:
    wire = Wire()
    console = wire.log_in(admin())
    for number in range(1, 1000):
        wire.tell(admin(id=number).open_request(), source=Peer(f"10.0.0.{number % 50}", 1, ""))
    assert len(wire.endpoint.sessions) == 1 + MAX_HANDSHAKES
    assert wire.call(console.request(*POWER_STATUS))
    wire.log_in(admin(id=5000))


def test_a_flood_from_one_address_does_not_shut_out_another() -> None:
    wire = Wire()
    console = admin()
    console.take_open(wire.ask(console.open_request()))
    for number in range(1, 1000):
        wire.tell(admin(id=number).open_request(), source=ELSEWHERE)
    assert len(wire.endpoint.sessions) == 1 + HANDSHAKES_PER_ADDRESS
    assert console.take_rakp2(wire.ask(console.rakp1()))
    assert console.take_rakp4(wire.ask(console.rakp3()))


def test_the_number_of_sessions_is_bounded() -> None:
    wire = Wire()
    for number in range(1, MAX_SESSIONS + 1):
        wire.log_in(admin(id=number))
    console = admin(id=99)
    console.take_open(wire.ask(console.open_request()))
    assert console.status == 0x01


def handshaking(wire: Wire, number: int) -> Console:
    console = admin(id=number)
    console.take_open(wire.ask(console.open_request()))
    return console


def test_handshakes_that_began_in_time_do_not_pass_the_bound() -> None:
    wire = Wire()
    for number in range(1, MAX_SESSIONS):
        wire.log_in(admin(id=number))
    first, second, third = (handshaking(wire, number) for number in (97, 98, 99))
    for console in (first, second):
        assert console.take_rakp2(wire.ask(console.rakp1()))
    assert first.take_rakp4(wire.ask(first.rakp3()))
    assert not second.take_rakp4(wire.ask(second.rakp3()))
    assert not third.take_rakp2(wire.ask(third.rakp1()))
    assert (second.status, third.status) == (0x01, 0x01)
    assert len(wire.endpoint.sessions) == MAX_SESSIONS, "what was refused is forgotten"
    assert wire.ask(first.rakp3()), "a repeated message 3 of a session that is open"


def test_other_credentials_end_the_sessions() -> None:
    wire = Wire()
    console = wire.log_in(admin())
    wire.endpoint.renew(Identity(b"admin", b"other", GUID))
    assert wire.tell(console.request(*POWER_STATUS)) == []


def test_the_presence_ping_is_answered() -> None:
    ping = bytes.fromhex("0600ff06000011be80420000")
    assert Wire().ask(ping).hex() == (
        "0600ff06000011be404200100000" + "11be" + "00000000" + "8100" + "000000000000"
    )


def test_what_is_answered_without_login_is_at_most_three_times_the_request() -> None:
    wire = Wire()
    console = admin()
    requests = [bytes.fromhex("0600ff06000011be80420000"), console.open_request()]
    replies = [wire.ask(each) for each in requests]
    console.take_open(replies[-1])
    for make in (console.rakp1, console.rakp3):
        requests.append(make())
        replies.append(wire.ask(requests[-1]))
        console.take_rakp2(replies[-1])
    for request, reply in zip(requests, replies, strict=True):
        assert len(reply) <= 3 * len(request)


def test_who_did_not_log_in_gets_so_many_answers_and_others_still_get_theirs() -> None:
    wire = Wire()
    console = wire.log_in(admin())
    ping = bytes.fromhex("0600ff06000011be80420000")
    flood = [wire.tell(ping, 1.0, ELSEWHERE) for _ in range(int(BURST) + 50)]
    answered = sum(len(each.data) for events in flood for each in events if isinstance(each, Send))
    assert answered <= len(flood) * len(ping) + OF_A_BMC.most
    assert sum(map(bool, flood)) <= BURST
    assert wire.ask(ping, 1.0)
    assert wire.call(console.request(*POWER_STATUS), 1.0)
    assert wire.tell(ping, 2.0, ELSEWHERE)


def test_the_limits_state_is_bounded() -> None:
    limiter = Limiter()
    for number in range(10 * SOURCES):
        assert limiter.allows(str(number), 0.0)
    assert len(limiter._buckets) == SOURCES


def test_a_further_user_logs_in_up_to_its_privilege() -> None:
    wire = Wire()
    bob = Login(b"bob", b"hunter22", 3, Privilege.USER)
    wire.endpoint.renew(replace(IDENTITY, others=(bob,)))
    console = wire.log_in(Console(b"bob", b"hunter22", privilege=2))
    [session] = wire.endpoint.sessions.values()
    assert (session.user, session.limit) == (3, Privilege.USER)
    high = Console(b"bob", b"hunter22", privilege=4, id=9)
    high.take_open(wire.ask(high.open_request()))
    high.take_rakp2(wire.ask(high.rakp1()))
    assert high.status == 0x0A
    wire.endpoint.renew(IDENTITY)
    assert wire.tell(console.request(*POWER_STATUS)) == []


def test_the_nodes_account_goes_before_a_user_whom_a_client_gave_the_same_name() -> None:
    wire = Wire()
    others = (Login(IDENTITY.username, b"another1", 3), Login(b"bob", b"hunter22", 4))
    wire.endpoint.renew(replace(IDENTITY, others=others))
    wire.log_in(admin())
    [session] = wire.endpoint.sessions.values()
    assert session.user == Login(IDENTITY.username, b"").id


def test_a_change_of_other_users_leaves_a_session_alone() -> None:
    wire = Wire()
    console = wire.log_in(admin())
    wire.endpoint.renew(replace(IDENTITY, others=(Login(b"bob", b"hunter22", 3),)))
    assert wire.call(console.request(*POWER_STATUS))


@given(st.binary(max_size=200))
def test_garbage_gets_no_reply_and_leaves_no_state(data: bytes) -> None:
    wire = Wire()
    assert wire.tell(data) == []
    assert wire.endpoint.sessions == {}


@given(st.data())
def test_truncated_datagrams_get_no_reply(data: st.DataObject) -> None:
    wire = Wire()
    console = admin()
    stages: list[bytes] = [plain(0x06, 0x38, b"\x8e\x04"), console.open_request()]
    console.take_open(wire.ask(stages[-1]))
    stages.append(console.rakp1())
    console.take_rakp2(wire.ask(stages[-1]))
    stages.append(console.rakp3())
    console.take_rakp4(wire.ask(stages[-1]))
    stages.append(console.request(*POWER_STATUS))
    whole = data.draw(st.sampled_from(stages))
    cut = data.draw(st.integers(0, len(whole) - 1))
    before = len(wire.endpoint.sessions)
    assert wire.tell(whole[:cut]) == []
    assert len(wire.endpoint.sessions) == before


@given(kind=st.sampled_from([0x00, 0x10, 0x12, 0x14]), payload=st.binary(max_size=80))
def test_garbage_in_a_set_up_payload_never_raises(kind: int, payload: bytes) -> None:
    Wire().tell(setup(kind, payload))
