"""The agent, datagram by datagram: what those who did not log in get from it."""

from __future__ import annotations

from dataclasses import replace
from secrets import token_bytes

from hypothesis import given
from hypothesis import strategies as st

from nospoon.protocols.limit import BURST, OF_A_BMC, OF_THE_DAEMON, Budget
from nospoon.protocols.snmp import ber, usm
from nospoon.protocols.snmp.agent import Access, Agent
from nospoon.protocols.snmp.ber import NULL, Oid, Value
from nospoon.protocols.snmp.pdu import (
    Binding,
    Message,
    Pdu,
    Status,
    Type,
    Version,
    read_message,
    write_message,
    write_pdu,
)
from nospoon.protocols.snmp.usm import PRIV, REPORTABLE, Secured, Security, User

NAME = (1, 3, 6, 1, 2, 1, 1, 5, 0)


class OneName:
    """A MIB with one object."""

    def get(self, oid: Oid, now: float) -> Value:
        del oid, now
        return Value(ber.Tag.OCTETS, b"pdu")

    def next(self, oid: Oid) -> Oid | None:
        return NAME if oid < NAME else None

    def check(self, oid: Oid, value: Value) -> Status:
        del oid, value
        return Status.NOT_WRITABLE

    def set(self, oid: Oid, value: Value, now: float) -> None:
        raise AssertionError(f"nothing may set {oid}, {value} at {now}")


class Anything(OneName):
    """A MIB that would take anything."""

    def check(self, oid: Oid, value: Value) -> Status:
        del oid, value
        return Status.NO_ERROR


def agent(shared: Budget | None = None) -> Agent:
    access = Access(b"secret", User(b"u", b"passphrase", b"passphrase"), b"engine", 1, 0.0)
    return Agent(access, OneName(), shared)


GET = Pdu(Type.GET, 7, (Binding(NAME, NULL),))


def discovery() -> bytes:
    """What every client of v3 asks first: who are you? (RFC 3414 §4)."""
    scoped = ber.sequence(ber.encode_octets(b""), ber.encode_octets(b""), write_pdu(GET))
    nobody = Security(b"", 0, 0, b"", b"", b"")
    return usm.write(Secured(1, ber.MAX_MESSAGE, REPORTABLE, nobody, scoped))


def reported(served: Agent, source: str, now: float, times: int) -> int:
    """Bytes that a source is sent for so many requests of strangers, and with each of them."""
    asked = discovery()
    answers = (
        served.receive(asked, source=source, now=now, random=token_bytes) for _ in range(times)
    )
    return sum(len(each or b"") for each in answers)


def test_a_source_is_reported_no_more_than_it_sent_but_for_an_allowance() -> None:
    served, shared = agent(), Budget(OF_THE_DAEMON)
    sent = 5000 * len(discovery())
    assert reported(agent(), "192.0.2.1", 0.0, 1) > len(discovery())
    assert reported(served, "192.0.2.1", 0.0, 5000) <= sent + OF_A_BMC.most
    assert reported(served, "192.0.2.2", 0.0, 1), "another source"
    assert reported(served, "192.0.2.1", 10.0, 1), "a moment later"
    many = [agent(shared) for _ in range(40)]
    total = sum(reported(each, "192.0.2.1", 0.0, 100) for each in many)
    assert total <= 4000 * len(discovery()) + OF_THE_DAEMON.most


def test_who_knows_the_community_is_not_limited() -> None:
    served = agent()
    data = write_message(Message(Version.V2C, b"secret", GET))
    for _ in range(int(BURST) + 50):
        answer = served.receive(data, source="192.0.2.1", now=0.0, random=token_bytes)
        assert answer is not None
        assert read_message(answer).pdu.bindings[0].value == Value(ber.Tag.OCTETS, b"pdu")


@given(st.binary(max_size=300), st.binary(max_size=40))
def test_garbage_gets_no_answer_and_raises_nothing(data: bytes, tail: bytes) -> None:
    served = agent()
    for each in (data, discovery()[: len(data)] + tail):
        answer = served.receive(each, source="192.0.2.1", now=0.0, random=token_bytes)
        assert answer is None or each.startswith(discovery())


def test_a_wrong_community_is_met_with_silence() -> None:
    wrong = Message(Version.V2C, b"guess", GET)
    for message in (wrong, replace(wrong, version=Version.V1)):
        data = write_message(message)
        assert agent().receive(data, source="192.0.2.1", now=0.0, random=token_bytes) is None


def test_an_answer_that_would_be_too_big_keeps_a_set_from_being_done() -> None:
    served = Agent(agent().access, Anything())
    long = tuple(Binding(NAME, Value(ber.Tag.OCTETS, bytes(100))) for _ in range(14))
    data = write_message(Message(Version.V2C, b"secret", Pdu(Type.SET, 7, long)))
    answer = served.receive(data, source="192.0.2.1", now=0.0, random=token_bytes)
    assert answer is not None
    assert read_message(answer).pdu.status == Status.TOO_BIG


def test_what_is_encrypted_and_not_signed_is_met_with_silence() -> None:
    served = agent()
    nobody = Security(b"engine", 1, 0, b"u", b"", bytes(8))
    data = usm.write(Secured(1, ber.MAX_MESSAGE, REPORTABLE | PRIV, nobody, b"cipher"))
    assert served.receive(data, source="192.0.2.1", now=0.0, random=token_bytes) is None
