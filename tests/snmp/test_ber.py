"""BER: what is written is read again; garbage is `Garbage` and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nospoon.protocols.snmp import ber, usm
from nospoon.protocols.snmp.ber import Garbage, Reader, Tag, Value
from nospoon.protocols.snmp.pdu import (
    Binding,
    Message,
    Pdu,
    Type,
    Version,
    read_message,
    write_message,
)

OIDS = st.tuples(
    st.integers(0, 1), st.integers(0, 39), *[st.integers(0, (1 << 32) - 1) for _ in range(6)]
)
NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1)
VALUES = st.one_of(
    NUMBERS.map(ber.integer),
    st.binary(max_size=300).map(lambda data: Value(Tag.OCTETS, data)),
    OIDS.map(lambda oid: Value(Tag.OID, oid)),
    st.just(ber.NULL),
)
PDUS = st.builds(
    Pdu,
    st.sampled_from(Type),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.lists(st.builds(Binding, OIDS, VALUES), max_size=4).map(tuple),
    st.integers(0, 18),
    st.integers(0, 100),
)


@given(st.sampled_from([Version.V1, Version.V2C]), st.binary(max_size=40), PDUS)
def test_a_message_that_was_written_is_read_again(
    version: Version, community: bytes, pdu: Pdu
) -> None:
    message = Message(version, community, pdu)
    assert read_message(write_message(message)) == message


@given(st.binary(max_size=200))
def test_garbage_raises_garbage_only(data: bytes) -> None:
    for read in (read_message, usm.read, lambda raw: Reader(raw).value()):
        try:
            read(data)
        except Garbage:
            continue


@given(PDUS, st.data())
def test_a_damaged_message_raises_garbage_only(pdu: Pdu, data: st.DataObject) -> None:
    wire = bytearray(write_message(Message(Version.V2C, b"public", pdu)))
    at = data.draw(st.integers(0, len(wire) - 1))
    wire[at] = data.draw(st.integers(0, 255))
    try:
        read_message(bytes(wire))
    except Garbage:
        return


def test_a_request_of_snmpget_is_read() -> None:
    """Captured from net-snmp 5.9: `snmpget -v2c -c public … sysDescr.0`."""
    wire = bytes.fromhex(
        "302602010104067075626c6963a019020101020100020100300e300c06082b060102010101000500"
    )
    assert read_message(wire) == Message(
        Version.V2C,
        b"public",
        Pdu(Type.GET, 1, (Binding((1, 3, 6, 1, 2, 1, 1, 1, 0)),)),
    )


@pytest.mark.parametrize("number", [0, 127, 128, -128, -129, 255, 256, (1 << 31) - 1])
def test_integers_take_as_few_bytes_as_hold_them(number: int) -> None:
    wire = ber.encode_int(number)
    assert Reader(wire).integer() == number
    shorter = wire[3:]
    assert not shorter or int.from_bytes(shorter, signed=True) != number


def test_keys_are_those_of_the_standard() -> None:
    """RFC 3414 A.3.2."""
    engine = bytes.fromhex("000000000000000000000002")
    key = usm.localized(b"maplesyrup", engine, "sha1")
    assert key.hex() == "6695febc9288e36282235fc7151f128497b38f3f"
