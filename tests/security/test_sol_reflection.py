"""Clients of Serial over LAN that take nothing of what they are sent: where packets go is chosen by
the source of one packet, which may be forged.
"""

from __future__ import annotations

import pytest

from nospoon.protocols.ipmi.sol import MAX_CHARACTERS, NACK, Retries, Sol

OUTPUT = bytes(range(256)) * 64
ASKED = 1000


@pytest.mark.parametrize(("count", "operation"), [(0, 0), (1, 0), (1, NACK)])
def test_what_is_not_taken_whole_is_not_sent_again_at_once(count: int, operation: int) -> None:
    sol = Sol(1)
    ((number, *_),) = sol.say(OUTPUT, 0.0)
    sent = list[bytes]()
    for _ in range(ASKED):
        heard = sol.receive(bytes([0, number, count, operation]), 0.0)
        sent += heard.send
        number = number % 15 + bool(count)
    assert len(sent) <= count * ASKED // MAX_CHARACTERS
    (again,) = sol.expire(Retries().seconds)
    assert len(again) <= MAX_CHARACTERS + 4
    assert sol.expire(Retries().seconds) == ()


def test_a_console_that_takes_all_a_little_at_a_time_gets_all_of_it() -> None:
    sol, now, taken = Sol(1), 0.0, b""
    sent = sol.say(OUTPUT, now)
    while sent:
        (packet,) = sent
        count = min(len(packet) - 4, 150)
        taken += packet[4 : 4 + count]
        sent = sol.receive(bytes([0, packet[0], count, 0]), now).send
        if not sent and sol.deadline is not None:
            now = sol.deadline
            sent = sol.expire(now)
    assert taken == OUTPUT
