"""Serial over LAN, as conversations between a console and one activation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nospoon.protocols.ipmi.sol import (
    BREAK,
    BUFFER,
    DEACTIVATING,
    FLUSH_OUT,
    NACK,
    OVERRUN,
    PAUSE,
    Heard,
    Retries,
    Sol,
)
from nospoon.protocols.ipmi.wire import Garbage


def packet(number: int, text: bytes = b"", *, ack: int = 0, count: int = 0, op: int = 0) -> bytes:
    return bytes([number, ack, count, op]) + text


def test_what_is_typed_is_acknowledged_with_its_count() -> None:
    sol = Sol(1)
    heard = sol.receive(packet(1, b"ls\r"), 0.0)
    assert heard == Heard((bytes([0, 1, 3, 0]),), b"ls\r")


def test_a_packet_that_comes_again_is_acknowledged_again_and_typed_once() -> None:
    sol = Sol(1)
    first = sol.receive(packet(1, b"ls\r"), 0.0)
    again = sol.receive(packet(1, b"ls\r"), 0.1)
    assert (again.send, again.typed) == (first.send, b"")
    longer = sol.receive(packet(1, b"ls\rpwd"), 0.2)
    assert (longer.typed, longer.send[0][2]) == (b"pwd", 6)


def test_one_packet_is_under_way_at_a_time() -> None:
    sol = Sol(1)
    assert sol.say(b"one", 0.0) == (packet(1, b"one"),)
    assert sol.say(b"two", 0.1) == ()
    assert sol.receive(packet(0, ack=1, count=3), 0.2).send == (packet(2, b"two"),)
    assert sol.receive(packet(0, ack=2, count=3), 0.3).send == ()
    assert sol.deadline is None


@pytest.mark.parametrize("size", [1, 7, 64, 200, 255])
def test_long_output_goes_in_packets_of_the_size(size: int) -> None:
    sol, said = Sol(1, size=size), bytes(range(256)) * 3
    sent, out = sol.say(said, 0.0), b""
    numbers = []
    while sent:
        [data] = sent
        assert 0 < len(data) - 4 <= size
        numbers.append(data[0])
        out += data[4:]
        sent = sol.receive(packet(0, ack=data[0], count=len(data) - 4), 0.0).send
    assert out == said
    assert set(numbers) <= set(range(1, 16))


def test_what_is_not_acknowledged_is_sent_again_and_then_given_up() -> None:
    sol = Sol(1)
    [first] = sol.say(b"hello", 0.0)
    now = 0.0
    for _ in range(Retries().count):
        now += Retries().seconds
        assert sol.expire(now - 0.01) == ()
        assert sol.expire(now) == (first,)
    sol.say(b"more", now)
    assert sol.expire(now + Retries().seconds) == (packet(2, b"more"),)


def test_what_was_taken_in_part_goes_on_in_the_next_packet() -> None:
    sol = Sol(1)
    sol.say(b"abcdef", 0.0)
    assert sol.receive(packet(0, ack=1, count=2), 0.1).send == ()
    assert sol.expire(Retries().seconds) == (packet(2, b"cdef"),)
    assert sol.receive(packet(0, ack=2, count=4), 0.6).send == ()
    assert sol.deadline is None


def test_a_late_acknowledgement_of_another_packet_changes_nothing() -> None:
    sol = Sol(1)
    sol.say(b"abc", 0.0)
    assert sol.receive(packet(0, ack=9, count=3), 0.1).send == ()
    assert sol.deadline == Retries().seconds


def test_a_console_that_cannot_take_more_is_waited_for() -> None:
    sol = Sol(1)
    sol.say(b"abc", 0.0)
    assert sol.receive(packet(0, ack=1, count=0, op=NACK), 0.1).send == ()
    assert sol.say(b"def", 0.2) == ()
    assert sol.receive(packet(0), 0.3).send == (packet(2, b"abcdef"),)


def test_pause_flush_and_break() -> None:
    sol = Sol(1)
    sol.receive(packet(0, op=PAUSE), 0.0)
    assert sol.say(b"abc", 0.0) == ()
    assert sol.receive(packet(0, op=PAUSE | FLUSH_OUT), 0.1).send == ()
    assert sol.receive(packet(0), 0.2).send == ()
    assert sol.receive(packet(0, op=BREAK), 0.3).breaks


def test_a_flood_of_output_is_bounded_and_told() -> None:
    sol = Sol(1)
    sol.receive(packet(0, op=PAUSE), 0.0)
    sol.say(bytes(2 * BUFFER), 0.0)
    [data] = sol.receive(packet(0), 0.1).send
    assert data[3] == OVERRUN
    left = 0
    while data:
        left += len(data) - 4
        data = next(iter(sol.receive(packet(0, ack=data[0], count=len(data) - 4), 0.2).send), b"")
    assert left == BUFFER


def test_the_end_is_told() -> None:
    assert Sol(1).end() == packet(0, op=DEACTIVATING)


@given(st.lists(st.tuples(st.binary(max_size=300), st.floats(0, 100)), max_size=8))
def test_garbage_only_raises_garbage(payloads: list[tuple[bytes, float]]) -> None:
    sol = Sol(1)
    sol.say(b"something to acknowledge", 0.0)
    for payload, now in payloads:
        try:
            heard = sol.receive(payload, now)
        except Garbage:
            assert len(payload) < 4 or len(payload) > 259
        else:
            assert len(heard.typed) <= len(payload)
