"""What an injected delay holds back is bounded, and taken in turns. A member had as many datagrams
as a client could send in an hour wait in memory, and come due at one moment: the daemon grew by 10
MiB a second, and then answered no one for 5 s and more.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from tests.security.test_received import Clock, turns

from nospoon.bmc.faults import Fault, Kind
from nospoon.runtime.received import Received
from nospoon.services.bmcs.late import OF_BMC, LateDatagrams
from nospoon.services.bmcs.served import Served
from nospoon.testing.bench import Bench, bench
from nospoon.testing.due import forward

BESIDES = 20
OWNER, OTHER = 1001, 1002


def ping(tag: int) -> bytes:
    return bytes.fromhex("0600ff06000011be80") + bytes([tag, 0, 0])


async def answered(line: socket.socket) -> int:
    async with asyncio.timeout(20):
        return (await asyncio.get_running_loop().sock_recv(line, 100))[9]


async def so(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  (nothing tells)
            await asyncio.sleep(0)


async def test_of_a_bmc_some_datagrams_wait_and_further_ones_are_lost() -> None:
    count, last = OF_BMC + BESIDES, 255
    async with bench(1) as b:
        loop, uuid = asyncio.get_running_loop(), b.first.bmc.uuid
        b.service.set_fault(uuid, Fault(Kind.DELAY, seconds=3600, count=count))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
            line.settimeout(0)
            line.connect((b.first.bmc.address, b.first.bmc.ipmi_port))
            for tag in range(count):
                await loop.sock_sendall(line, ping(tag))
            await so(lambda: not b.service.faults(uuid))  # the last of them used up the fault
            forward(3600)
            assert [await answered(line) for _ in range(OF_BMC)] == [*range(OF_BMC)]
            await loop.sock_sendall(line, ping(last))
            assert await answered(line) == last
            b.service.set_fault(uuid, Fault(Kind.DELAY, seconds=60, count=1))
            await loop.sock_sendall(line, ping(1))  # there is a place for another one again
            await so(lambda: not b.service.faults(uuid))
            forward(60)
            assert await answered(line) == 1


def like(b: Bench, number: int, owner: int) -> Served:
    """A BMC with a fault, as one of this owner has it."""
    uuid = b.configs[number].bmc.uuid
    b.service.set_fault(uuid, Fault(Kind.DELAY))
    found = b.service.status(uuid)
    assert found is not None
    return replace(found, config=replace(found.config, owner=owner))


async def test_of_an_owner_some_wait_at_all_bmcs_together() -> None:
    taken = list[int]()
    async with bench(2) as b:
        late = LateDatagrams(Received(), of_owner=3)
        for number in (0, 0, 1, 1):
            late.put(like(b, number, OWNER), 60, partial(taken.append, number))
        late.put(like(b, 1, OTHER), 60, partial(taken.append, OTHER))
        forward(60)
        await so(lambda: OTHER in taken)
    assert sorted(taken) == [0, 0, 1, OTHER]


async def test_what_comes_due_at_one_moment_takes_turns() -> None:
    async with bench(1) as b, turns() as loop:
        late, served = LateDatagrams(Received(now=Clock())), like(b, 0, OWNER)
        for _ in range(OF_BMC):
            late.put(served, 60, loop.count)
        forward(60)
        await so(lambda: sum(loop.done.values()) == OF_BMC)
    assert max(loop.done.values()) <= 2


async def test_what_waited_before_the_faults_were_cleared_takes_no_place() -> None:
    taken = list[str]()
    async with bench(1) as b:
        late, uuid = LateDatagrams(Received()), b.first.bmc.uuid
        for _ in range(OF_BMC):
            late.put(like(b, 0, OWNER), 60, partial(taken.append, "before"))
        b.service.clear_faults(uuid)
        late.put(like(b, 0, OWNER), 60, partial(taken.append, "after"))
        forward(60)
        await so(lambda: "after" in taken)
