"""SNMP of PDUs: what goes over the wire in the clear opens nothing else; answers are bounded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from nospoon.clusterfile.bmcs import PduSection
from nospoon.plan.identity import snmp_community
from nospoon.protocols.snmp import ber
from nospoon.protocols.snmp.agent import MAX_LOOKS, MAX_REPLY, Access, Agent
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
)
from nospoon.protocols.snmp.usm import User

SECRET = "correct-horse"


@dataclass
class Endless:
    """Objects without end, and how many were looked up."""

    looked: int = 0
    sets: list[Oid] = field(default_factory=list)

    def get(self, oid: Oid, now: float) -> Value:
        del oid, now
        return Value(ber.Tag.INTEGER, 1)

    def next(self, oid: Oid) -> Oid | None:
        self.looked += 1
        return (*oid[:-1], oid[-1] + 1)

    def check(self, oid: Oid, value: Value) -> Status:
        del oid, value
        return Status.NO_ERROR

    def set(self, oid: Oid, value: Value, now: float) -> None:
        del value, now
        self.sets.append(oid)


def agent(community: str) -> tuple[Callable[[bytes], bytes | None], Endless]:
    mib = Endless()
    phrase = SECRET.encode()
    access = Access(community.encode(), User(b"nospoon", phrase, phrase), b"engine", 1, 0.0)
    made = Agent(access, mib)
    return lambda data: made.receive(data, source="192.0.2.1", now=0.0, random=bytes), mib


def asked(community: str, pdu: Pdu, version: Version = Version.V2C) -> bytes:
    return write_message(Message(version, community.encode(), pdu))


GET = Pdu(Type.GET, 7, (Binding((1, 3, 6, 1), NULL),))


def test_the_community_is_no_pass_phrase_and_tells_none() -> None:
    community = snmp_community(SECRET)
    assert SECRET not in community
    assert community == snmp_community(SECRET) != snmp_community("battery-staple")
    assert len(community) == 24
    assert snmp_community("") == ""
    ask, _ = agent(community)
    assert ask(asked(community, GET)) is not None
    assert ask(asked(SECRET, GET)) is None


@pytest.mark.parametrize("version", [Version.V1, Version.V2C])
@pytest.mark.parametrize("given", ["", "public", snmp_community(SECRET), SECRET])
def test_v1_and_v2c_may_be_switched_off(version: Version, given: str) -> None:
    assert PduSection().v2c
    ask, _ = agent("")
    assert ask(asked(given, GET, version)) is None


@pytest.mark.parametrize(("once", "repeats"), [(0, 2**31 - 1), (2**31 - 1, 2**31 - 1), (5, 1000)])
@pytest.mark.parametrize("count", [1, 20, 60])
def test_a_bulk_request_looks_up_so_much_and_is_answered_with_so_much(
    once: int, repeats: int, count: int
) -> None:
    community = snmp_community(SECRET)
    ask, mib = agent(community)
    names = tuple(Binding((1, 3, 6, 1, number, 0), NULL) for number in range(count))
    bulk = Pdu(Type.GET_BULK, 7, names, once, repeats)
    answer = ask(asked(community, bulk))
    assert answer is not None
    assert len(answer) <= MAX_REPLY + 100, "what wraps it comes on top"
    assert mib.looked <= MAX_LOOKS
    assert read_message(answer).pdu.status == Status.NO_ERROR


def test_a_set_names_an_object_once() -> None:
    """One object may switch all outlets of a PDU: a request with sixty of them did it as often."""
    ask, mib = agent(SECRET)
    one, other = (Binding((1, 3, 6, number), ber.integer(1)) for number in (1, 2))
    refused = ask(asked(SECRET, Pdu(Type.SET, 7, (one, other, one))))
    assert refused is not None
    answer = read_message(refused).pdu
    assert (answer.status, answer.index) == (Status.INCONSISTENT_VALUE, 3)
    assert not mib.sets
    assert ask(asked(SECRET, Pdu(Type.SET, 7, (one, other)))) is not None
    assert mib.sets == [one.oid, other.oid]
