"""Who looks at a driver's resources while others do shares what they find, and nothing older."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

import pytest

from nospoon.engine.looks import Looks
from nospoon.errors import HostUnreachable
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.resource import Observed
from nospoon.model.resources.storage import Pool
from nospoon.model.resources.tags import OwnerTag
from nospoon.runtime.tasks import Tasks

A, B, C = (UUID(int=number) for number in (1, 2, 3))


class Host:
    """A driver that answers when it is let. `there`: what is on it now."""

    kind = Kind.POOL

    def __init__(self, *there: UUID) -> None:
        self.there = list(there)
        self.asked: list[UUID | None] = []
        self.begun, self.let = asyncio.Event(), asyncio.Event()
        self.why: Exception | None = None

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        self.asked.append(cluster)
        found = [_pool(each) for each in self.there if cluster in (None, each)]
        self.begun.set()
        await self.let.wait()
        if self.why is not None:
            raise self.why
        return found


def _pool(cluster: UUID) -> Observed:
    return Observed(Key(Kind.POOL, "h", f"p{cluster.int}"), Pool("/"), OwnerTag("d", cluster))


def owners(found: Sequence[Observed]) -> list[UUID]:
    return [each.tag.cluster for each in found]


async def test_all_who_wait_share_one_look_that_begins_after_they_asked() -> None:
    async with Tasks("test") as tasks:
        looks, host = Looks(tasks), Host(A)
        first = tasks.start(looks.observe(host, A), name="first")  # type: ignore[arg-type]
        await host.begun.wait()
        host.there = [A, B, B, C]  # made meanwhile
        others = [
            tasks.start(looks.observe(host, each), name="other")  # type: ignore[arg-type]
            for each in (A, B, B, UUID(int=9), None)
        ]
        await asyncio.sleep(0)
        host.let.set()
        assert owners(await first) == [A]
        found = [owners(await each) for each in others]
        assert found == [[A], [B, B], [B, B], [], [A, B, B, C]]
        assert host.asked == [A, None]
        assert owners(await looks.observe(host, B)) == [B, B]  # type: ignore[arg-type]
        assert host.asked == [A, None, B], "who looks alone asks for what is theirs"


async def test_several_looks_at_one_cluster_ask_for_that_one_alone() -> None:
    async with Tasks("test") as tasks:
        looks, host = Looks(tasks), Host(A, B)
        host.let.set()
        found = await asyncio.gather(*(looks.observe(host, A) for _ in range(5)))  # type: ignore[arg-type]
        assert [owners(each) for each in found] == [[A]] * 5
        assert host.asked == [A]


async def test_what_fails_fails_for_all_who_waited_for_it_and_the_next_look_is_a_new_one() -> None:
    async with Tasks("test") as tasks:
        looks, host = Looks(tasks), Host(A)
        host.why = HostUnreachable("host h does not answer")
        host.let.set()
        found = await asyncio.gather(
            *(looks.observe(host, each) for each in (A, B)),  # type: ignore[arg-type]
            return_exceptions=True,
        )
        assert [str(each) for each in found] == ["host h does not answer"] * 2
        host.why = None
        assert owners(await looks.observe(host, A)) == [A]  # type: ignore[arg-type]


async def test_who_leaves_takes_nothing_from_those_who_wait() -> None:
    async with Tasks("test") as tasks:
        looks, host = Looks(tasks), Host(A)
        first = tasks.start(looks.observe(host, A), name="first")  # type: ignore[arg-type]
        second = tasks.start(looks.observe(host, A), name="second")  # type: ignore[arg-type]
        await host.begun.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        host.let.set()
        assert owners(await second) == [A]


async def test_other_drivers_do_not_wait() -> None:
    async with Tasks("test") as tasks:
        looks, slow, quick = Looks(tasks), Host(A), Host(A)
        waiting = tasks.start(looks.observe(slow, A), name="slow")  # type: ignore[arg-type]
        quick.let.set()
        assert owners(await looks.observe(quick, A)) == [A]  # type: ignore[arg-type]
        assert not waiting.done()
        slow.let.set()
        await waiting
