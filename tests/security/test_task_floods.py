"""Clients that begin many Redfish Tasks: those of other systems stay, and memory is freed."""

from __future__ import annotations

import asyncio
import gc
import weakref
from uuid import UUID, uuid4

import pytest

from nospoon.errors import ProviderError, Unfetchable
from nospoon.runtime.tasks import Tasks
from nospoon.services.bmcs.redfish.messages.errors import RedfishError
from nospoon.services.bmcs.redfish.messages.jobs import (
    KEPT,
    LONGEST,
    LONGEST_WHY,
    RUNNING,
    Job,
    Jobs,
)
from nospoon.services.bmcs.redfish.resources.update import LONGEST_VERSION, _version


async def nothing() -> None:
    """Work that ends at once."""


async def ended(jobs: Jobs, system: UUID, name: str = "Eject media") -> Job:
    job = jobs.start(system, name, nothing())
    assert job.task is not None
    await job.task
    return job


def sees_all(_system: UUID) -> bool:
    return True


async def test_tasks_of_one_system_do_not_push_out_those_of_others() -> None:
    async with Tasks("floods") as tasks:
        jobs, mine, other = Jobs(tasks, lambda _: None), uuid4(), uuid4()
        kept = await ended(jobs, mine)
        flood = [await ended(jobs, other) for _ in range(300)]
        assert jobs.get(kept.id, sees_all) is kept
        assert [each for each in jobs.all() if each.system == other] == flood[-KEPT:]
        jobs.forget(other)
        assert jobs.all() == [kept]


async def test_tasks_of_one_system_that_run_are_bounded() -> None:
    async with Tasks("floods") as tasks:
        jobs, mine, other, over = Jobs(tasks, lambda _: None), uuid4(), uuid4(), asyncio.Event()

        async def long() -> None:
            await over.wait()

        running = [jobs.start(mine, "Eject media", long()) for _ in range(RUNNING)]
        with pytest.raises(RedfishError) as refused:
            jobs.start(mine, "Eject media", long())
        assert refused.value.status == 503
        running.append(jobs.start(other, "Eject media", long()))
        over.set()
        await asyncio.gather(*(each.task for each in running if each.task is not None))
        assert (await ended(jobs, mine)).state == "Completed"


async def test_a_task_that_failed_keeps_its_error_and_not_what_was_at_work() -> None:
    class Buffer(bytearray):
        """That can be watched."""

    watched: list[weakref.ref[Buffer]] = []

    def fail() -> None:
        buffer = Buffer(1 << 20)
        watched.append(weakref.ref(buffer))
        try:
            raise OSError("reset by peer")
        except OSError as error:
            raise ProviderError("the image was not fetched") from error

    async def work() -> None:
        fail()

    async with Tasks("floods") as tasks:
        jobs = Jobs(tasks, lambda _: None)
        job = jobs.start(uuid4(), "x" * 8000, work())
        assert job.task is not None
        await job.task
        gc.collect()
        assert watched[0]() is None
        assert str(job.error) == "the image was not fetched"
        assert len(job.name) == LONGEST
        assert len(job.task.get_name()) < LONGEST + 100  # it is kept as long as the job


async def test_long_urls_of_images_are_not_kept_with_why_they_were_not_fetched() -> None:
    """16 of each system are kept, with a URL of 8,000 characters twice: gigabytes of 20,000."""
    url = "http://127.0.0.1/" + "\N{BUG}" * 8000

    async def fail() -> None:
        raise Unfetchable(f"cannot fetch {url}: it is on loopback", url=url, hint=url)

    async with Tasks("floods") as tasks:
        job = Jobs(tasks, lambda _: None).start(uuid4(), "Insert", fail())
        assert job.task is not None
        await job.task
        error = job.error
        assert isinstance(error, Unfetchable)
        assert (error.message[:30], error.url) == (f"cannot fetch {url}"[:30], url[:LONGEST_WHY])
        assert max(len(error.message), len(error.hint), len(str(error.args))) <= LONGEST_WHY + 10


def test_versions_of_firmware_are_short() -> None:
    """That of a URL of 8,000 characters was kept of each machine, in the store, too."""
    assert len(_version(f"http://h/bios-{'1.' * 3900}2.bin", "0" * 64)) == LONGEST_VERSION
    assert _version("http://h/bios-1.20.3.bin", "0" * 64) == "1.20.3"
