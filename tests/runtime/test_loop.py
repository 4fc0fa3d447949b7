"""The daemon's event loop takes a few events of its sockets at a time, and all of them in turn."""

from __future__ import annotations

import asyncio
import inspect
import socket

from nospoon.daemon import main
from nospoon.runtime import loop
from nospoon.runtime.loop import AT_ONCE

PAIRS = 4 * AT_ONCE


def test_many_events_at_one_moment_are_spread_over_turns() -> None:
    turns: list[set[int]] = [set()]

    async def all_of_them() -> None:
        running = asyncio.get_running_loop()
        pairs = [socket.socketpair() for _ in range(PAIRS)]
        done = asyncio.Event()

        def turn() -> None:
            turns.append(set())
            running.call_soon(turn)

        def ended(number: int) -> None:
            turns[-1].add(number)
            running.remove_reader(pairs[number][0])
            if len(set().union(*turns)) == PAIRS:
                done.set()

        for number, (here, there) in enumerate(pairs):
            running.add_reader(here, ended, number)
            there.close()  # as thousands of clients may do at one moment
        turn()
        await done.wait()
        for here, _ in pairs:
            here.close()

    loop.run(all_of_them())
    assert max(map(len, turns)) <= AT_ONCE


def test_the_daemon_runs_on_it() -> None:
    assert "loop.run(_serve(" in inspect.getsource(main.main)
