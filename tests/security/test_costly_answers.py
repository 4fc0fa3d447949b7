"""Answers whose bytes cost more than bytes do are read slowly, others are not."""

from __future__ import annotations

import http.client
import socket
import threading
from functools import partial

import pytest

from nospoon.runtime.costly import RATE, SLICE, Cost, Line, Reading

BYTES = 100_000
HEAD = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("head", "body", "is_costly"),
    [
        (b"Content-Length: %d\r\n\r\n" % BYTES, b"x" * BYTES, False),
        (b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * BYTES + b"0\r\n\r\n", True),
    ],
    ids=["plain", "chunks of one byte"],
)
def test_an_answer_rests_where_its_bytes_are_costly(
    head: bytes, body: bytes, *, is_costly: bool
) -> None:
    rests = list[None]()
    read = partial(Reading, cost=Cost(rest=lambda: rests.append(None)))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sender = threading.Thread(target=theirs.sendall, args=(HEAD + head + body,))
        sender.start()
        with http.client.HTTPResponse(Line(ours, read)) as answer:  # type: ignore[arg-type]
            answer.begin()
            got = sum(iter(lambda: len(answer.read1(1 << 20)), 0))
        sender.join()
    assert got == BYTES
    assert (len(rests) > 0) is is_costly


def test_what_was_paid_is_not_paid_again() -> None:
    spent, rests = [0.0], list[float]()
    cost = Cost(lambda: spent[0], lambda: rests.append(spent[0]))
    for step in (SLICE / 2, SLICE, SLICE / 4, SLICE):
        spent[0] += step
        cost.pay()
    assert rests == [1.5 * SLICE, 2.75 * SLICE]
    cost.add(RATE)
    spent[0] += 1.0
    cost.pay()
    assert len(rests) == 2
