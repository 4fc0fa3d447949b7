"""Datagrams at many sockets at one moment: all sockets share a few milliseconds of each turn of the
event loop. Each had 2 ms of its own, and who sent to 200 BMCs took 140 ms of every turn.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial

from tests.security.test_received import Turns, turns

from nospoon.runtime.received import SECONDS, Received
from nospoon.runtime.udp import UdpSocket
from nospoon.testing.bench import bench, free_port

SOCKETS, EACH = 12, 8
MEMBER, OTHER = 1001, 1002


class Flooded:
    """Sockets of two owners, all with datagrams; each takes half of a turn's time."""

    def __init__(self, loop: Turns) -> None:
        self.now, self.loop, self.taken = 0.0, loop, list[int]()
        self.wanted = asyncio.Event()

    def clock(self) -> float:
        return self.now

    def take(self, owner: int, _data: bytes, _peer: object) -> None:
        self.now += SECONDS / 2
        self.loop.count()
        self.taken.append(owner)
        if len(self.taken) == SOCKETS * EACH + 1:
            self.wanted.set()


@asynccontextmanager
async def flooded() -> AsyncIterator[Flooded]:
    async with turns() as loop:
        made = Flooded(loop)
        together = Received(now=made.clock)
        with ExitStack() as stack:
            line = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            for number in range(SOCKETS + 1):
                owner = MEMBER if number < SOCKETS else OTHER
                opened = UdpSocket(
                    "127.0.0.1",
                    free_port(socket.SOCK_DGRAM),
                    partial(made.take, owner),
                    owner=partial(int, owner),
                    now=made.clock,
                    together=together,
                )
                stack.callback(opened.close)
                for _ in range(EACH if owner == MEMBER else 1):
                    line.sendto(b"x", ("127.0.0.1", opened.port))
            yield made


async def test_all_sockets_share_a_turn_of_the_loop() -> None:
    async with flooded() as found, asyncio.timeout(20):
        await found.wanted.wait()
    assert max(found.loop.done.values()) <= 2


async def test_a_flood_at_one_owners_sockets_leaves_others_their_turn() -> None:
    async with flooded() as found, asyncio.timeout(20):
        await found.wanted.wait()
    assert found.taken.index(OTHER) < SOCKETS


async def test_a_socket_that_is_closed_while_its_datagrams_wait_takes_no_more() -> None:
    async with turns() as loop:
        made = Flooded(loop)
        together = Received(now=made.clock)
        together.put("someone", lambda: False)  # so that others wait
        opened = UdpSocket(
            "127.0.0.1",
            free_port(socket.SOCK_DGRAM),
            partial(made.take, MEMBER),
            together=together,
        )
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
            line.sendto(b"x", ("127.0.0.1", opened.port))
        opened._readable()
        opened.close()
        for _ in range(3):
            await asyncio.sleep(0)
    assert made.taken == []


async def test_bmcs_tell_whose_their_sockets_are() -> None:
    async with bench(2) as b:
        owners = [each.udp._owner() for each in b.service.listeners._open.values() if each.udp]
    assert owners == [frozenset({0})] * 2
