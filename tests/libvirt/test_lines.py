"""Lines to a libvirt: none is shared, and one that hangs holds nobody up for long."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event

import libvirt
import pytest

from nospoon.errors import HostUnreachable
from nospoon.providers.libvirt.bindings import Connect
from nospoon.providers.libvirt.hypervisor import Hypervisor
from nospoon.providers.libvirt.lines import Lines, Patience
from nospoon.testing.libvirtd import OwnLibvirt, wait_until

pytestmark = pytest.mark.libvirt
SHORT = Patience(opening=1, retry=1, keepalive=1, missed=2)


@contextmanager
def hanging(own: OwnLibvirt) -> Iterator[None]:
    pid = int((own.place / "libvirtd.pid").read_text())
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: "State:\tT" in Path(f"/proc/{pid}/status").read_text())
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_no_line_is_lent_twice_at_once_and_the_last_one_used_is_used_next(
    own_libvirt: OwnLibvirt,
) -> None:
    lines = Lines(own_libvirt.uri, "here", Patience())
    with lines.borrowed() as one:
        with lines.borrowed() as other:
            assert other is not one
        with lines.borrowed() as again:
            assert again is other
    with lines.borrowed() as last:
        assert last is one
    lines.close()


def test_a_line_that_nobody_used_for_long_is_closed(own_libvirt: OwnLibvirt) -> None:
    now = [0.0]
    lines = Lines(own_libvirt.uri, "here", Patience(idle=60), lambda: now[0])
    with lines.borrowed() as one, lines.borrowed() as other:
        pass
    now[0] = 61.0
    with lines.borrowed() as busy:
        assert busy is one
    with lines.borrowed() as busy, lines.borrowed() as new:
        assert busy is one
        assert new is not other
    lines.close()


async def test_calls_side_by_side_have_connections_of_their_own_and_a_kept_one_is_not_lent(
    own_libvirt: OwnLibvirt,
) -> None:
    hypervisor = Hypervisor(own_libvirt.uri, "here")
    kept = await hypervisor.keep(lambda connect: connect, "keep")
    both, seen = Event(), list[Connect]()

    def call(connect: Connect) -> None:
        seen.append(connect)
        if len(seen) == 2:
            both.set()
        assert both.wait(60)

    await asyncio.gather(hypervisor.ask(call, "ask"), hypervisor.work(call, "work"))
    assert len({id(each) for each in [*seen, kept]}) == 3
    kept.close()
    await hypervisor.close()


async def test_a_question_that_is_not_answered_is_left_and_others_go_on(
    own_libvirt: OwnLibvirt,
) -> None:
    hypervisor, woken = Hypervisor(own_libvirt.uri, "here", Patience(answer=0.2)), Event()
    with pytest.raises(HostUnreachable, match=r"cannot wait: .* not answered within 0\.2 s"):
        await hypervisor.ask(lambda _: woken.wait(60), "wait")
    patient = Hypervisor(own_libvirt.uri, "here")
    assert await patient.ask(lambda connect: connect.getURI(), "ask") == own_libvirt.uri
    woken.set()
    await asyncio.gather(hypervisor.close(), patient.close())


async def test_a_libvirtd_that_hangs_is_away_for_all_who_ask_and_back_when_it_wakes(
    own_libvirt: OwnLibvirt,
) -> None:
    """Several calls are under way when it hangs, several wait, and several come later."""
    hypervisor = Hypervisor(own_libvirt.uri, "far", SHORT)
    for _ in range(2):
        await until(hypervisor, [0] * 8)
        with hanging(own_libvirt):
            assert await answers(hypervisor, 16) == ["away"] * 16
            assert await answers(hypervisor, 8) == ["away"] * 8
    await until(hypervisor, [0] * 8)
    await hypervisor.close()


async def test_while_an_opening_hangs_others_are_told_at_once(own_libvirt: OwnLibvirt) -> None:
    hypervisor = Hypervisor(own_libvirt.uri, "far", Patience(opening=1, retry=1000))
    with hanging(own_libvirt):
        for _ in range(3):
            with pytest.raises(HostUnreachable, match=r"host far: .* not answered within 1 s"):
                await hypervisor.ask(lambda connect: connect.getURI(), "ask")
            wait_until(partial(there_are, 1))
    await until(hypervisor, [0] * 8)
    wait_until(partial(there_are, 0))
    await hypervisor.close()


async def test_openings_that_hang_are_tried_again_more_and_more_seldom(
    own_libvirt: OwnLibvirt,
) -> None:
    now = [1000.0]
    lines = Lines(own_libvirt.uri, "far", Patience(opening=0.1, retry=60), lambda: now[0])
    with hanging(own_libvirt):
        for seconds, hanging_by_then in ((0, 1), (59, 1), (2, 2), (119, 2), (2, 3)):
            now[0] += seconds
            with pytest.raises(HostUnreachable):
                await asyncio.to_thread(lines.opened)
            wait_until(partial(there_are, hanging_by_then))
    wait_until(partial(there_are, 0))
    lines.close()


async def test_openings_that_hang_side_by_side_are_one_try(own_libvirt: OwnLibvirt) -> None:
    now = [1000.0]
    lines = Lines(own_libvirt.uri, "far", Patience(opening=0.5, retry=60), lambda: now[0])
    with hanging(own_libvirt):
        told = await asyncio.gather(
            *(asyncio.to_thread(lines.opened) for _ in range(4)), return_exceptions=True
        )
        assert all(isinstance(each, HostUnreachable) for each in told)
        before = [each.name for each in threading.enumerate()].count("libvirt-open-far")
        now[0] += 61
        with pytest.raises(HostUnreachable):
            await asyncio.to_thread(lines.opened)
        assert there_are(before + 1)
    wait_until(partial(there_are, 0))
    lines.close()


def there_are(count: int) -> bool:
    """So many threads that open a line."""
    return [each.name for each in threading.enumerate()].count("libvirt-open-far") == count


async def until(hypervisor: Hypervisor, wanted: list[int]) -> None:
    async with asyncio.timeout(60):
        while True:
            if await answers(hypervisor, len(wanted)) == wanted:
                return
            await asyncio.sleep(0.05)


async def answers(hypervisor: Hypervisor, count: int) -> list[int | str]:
    """Of so many questions and works side by side: how many machines, or `away`."""

    async def one(call: Callable[[Callable[[Connect], int], str], Awaitable[int]]) -> int | str:
        try:
            return await call(lambda connect: len(connect.listAllDomains(0)), "list")
        except HostUnreachable:
            return "away"

    both = (hypervisor.ask, hypervisor.work)
    return await asyncio.gather(*(one(both[each % 2]) for each in range(count)))


def test_an_opening_that_fails_says_so(tmp_path: Path) -> None:
    lines = Lines(f"qemu+unix:///system?socket={tmp_path}/none", "here", Patience())
    with pytest.raises(libvirt.libvirtError, match="No such file"):
        lines.opened()
