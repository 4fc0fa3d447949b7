"""Downloads that BMC clients cause hold up nobody, end, and leave nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from nospoon.control.content.client_downloads import ClientDownloads
from nospoon.control.content.fetch import Access, Terms, Transfer
from nospoon.control.content.files import PARTIAL, Files
from nospoon.control.content.space import Space
from nospoon.errors import Conflict, OutOfSpace, ProviderError, Unfetchable
from nospoon.runtime.reach import Reach
from nospoon.runtime.tasks import Tasks
from nospoon.testing.downloads import HERE, client_downloads

MACHINE = uuid4()
LARGE = 1 << 20


@dataclass
class Site:
    """A server whose answers begin and do not end until `open`; it counts who is connected."""

    url: str = ""
    announced: bytes = b"Content-Length: 1000000000\r\n"
    first: int = 1
    asked: int = 0
    most: int = 0
    now: int = 0
    came: asyncio.Condition = field(default_factory=asyncio.Condition)
    open: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n" + self.announced + b"\r\n" + bytes(self.first))
        await writer.drain()
        async with self.came:
            self.asked, self.now = self.asked + 1, self.now + 1
            self.most = max(self.most, self.now)
            self.came.notify_all()
        async with Tasks("site") as tasks:
            gone = tasks.start(reader.read(), name="hung up")
            opened = tasks.start(self.open.wait(), name="let go")
            await asyncio.wait({gone, opened}, return_when=asyncio.FIRST_COMPLETED)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        self.now -= 1
        async with self.came:
            self.came.notify_all()

    async def until(self, asked: int) -> None:
        async with asyncio.timeout(20), self.came:
            await self.came.wait_for(lambda: self.asked >= asked)

    async def until_left(self) -> None:
        async with asyncio.timeout(20), self.came:
            await self.came.wait_for(lambda: self.now == 0)


@asynccontextmanager
async def site(**settings: object) -> AsyncIterator[Site]:
    made = Site(**settings)  # type: ignore[arg-type]
    server = await asyncio.start_server(made.answer, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/disc.iso"
    async with server:
        yield made
        made.open.set()
        await made.until_left()


async def fetch(
    downloads: ClientDownloads, files: Files, url: str, machine: UUID, transfer: Transfer
) -> str:
    def work(terms: Terms) -> str:
        return files.fetch_blocking(url, Access(), transfer, terms)

    return await downloads.run(machine, transfer, work)


def left(files: Files) -> list[Path]:
    """Files, whole or in part."""
    return [path for path in files.directory.rglob("*") if path.is_file()]


async def test_downloads_of_many_bmcs_leave_the_loops_executor_alone(tmp_path: Path) -> None:
    files = Files.at(tmp_path)
    async with site() as server, Tasks("test") as tasks:
        downloads = client_downloads(tasks, files, replace(HERE, per_owner=100))
        transfers = [Transfer() for _ in range(24)]
        for each in transfers:
            tasks.start(fetch(downloads, files, server.url, uuid4(), each), name="slow")
        await server.until(24)
        async with asyncio.timeout(20):
            assert await asyncio.to_thread(lambda: "planned") == "planned"


async def test_one_download_of_a_bmc_runs_at_a_time(tmp_path: Path) -> None:
    files = Files.at(tmp_path)
    async with site() as server, Tasks("test") as tasks:
        downloads = client_downloads(tasks, files)
        first, second = Transfer(), Transfer()
        one = tasks.start(fetch(downloads, files, server.url, MACHINE, first), name="one")
        await server.until(1)
        two = tasks.start(fetch(downloads, files, server.url, MACHINE, second), name="two")
        first.stop()
        await asyncio.wait({one})
        await server.until(2)
        second.stop()
        await asyncio.wait({two})
        assert server.most == 1
        for each in (one, two):
            assert isinstance(each.exception(), ProviderError)


async def test_a_few_downloads_of_a_user_run_at_a_time_and_of_a_bmc_wait(tmp_path: Path) -> None:
    files = Files.at(tmp_path)
    async with site() as server, Tasks("test") as tasks:
        downloads = client_downloads(tasks, files, replace(HERE, per_owner=2, waiting=2))
        transfers = [Transfer() for _ in range(4)]
        running = [
            tasks.start(fetch(downloads, files, server.url, machine, each), name="one")
            for each, machine in zip(transfers, [uuid4(), uuid4(), MACHINE, MACHINE], strict=True)
        ]
        await server.until(2)
        with pytest.raises(Conflict, match="too many downloads of this BMC"):
            await fetch(downloads, files, server.url, MACHINE, Transfer())
        for each in transfers:
            each.stop()
        await asyncio.wait(running)
        assert server.most == 2


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (replace(HERE, window=0.05), "slower than 16384 bytes a second"),
        (replace(HERE, deadline=0.05), "took longer than"),
        (replace(HERE, largest=1000), "more than 1000 bytes"),
    ],
)
async def test_what_is_too_slow_or_too_large_is_stopped_and_removed(
    tmp_path: Path, limits: object, why: str
) -> None:
    files = Files.at(tmp_path)
    async with site() as server, Tasks("test") as tasks:
        downloads = client_downloads(tasks, files, limits)  # type: ignore[arg-type]
        with pytest.raises(ProviderError, match=why):
            await fetch(downloads, files, server.url, MACHINE, Transfer())
        await server.until_left()
        assert left(files) == []


async def test_bytes_count_where_no_length_is_told(tmp_path: Path) -> None:
    files = Files.at(tmp_path)
    async with site(announced=b"", first=LARGE) as server, Tasks("test") as tasks:
        downloads = client_downloads(tasks, files, replace(HERE, largest=LARGE - 1))
        with pytest.raises(Unfetchable, match="more than 1048575 bytes"):
            await fetch(downloads, files, server.url, MACHINE, Transfer())
        assert left(files) == []


async def test_a_waiter_that_is_cancelled_ends_the_transfer(tmp_path: Path) -> None:
    files = Files.at(tmp_path)
    async with site() as server, Tasks("test") as tasks:
        downloads = client_downloads(tasks, files)
        waiting = tasks.start(fetch(downloads, files, server.url, MACHINE, Transfer()), name="one")
        await server.until(1)
        waiting.cancel()
        await server.until_left()
    files.begin([])  # and a daemon that was killed leaves this to the next one
    assert left(files) == []


def space(directory: Path, free: int, *, quota: int = 0) -> Space:
    return Space(directory, reserve=1000, quota=quota, free=lambda _: free)


@pytest.mark.parametrize(
    ("room", "refused"),
    [((1 << 40, 1000), "may take"), ((2000, 0), "reserve"), ((999, 0), "reserve")],
)
async def test_a_download_takes_no_more_room_than_there_is(
    tmp_path: Path, room: tuple[int, int], refused: str
) -> None:
    free, quota = room
    files = Files(tmp_path, space(tmp_path, free, quota=quota))
    async with site() as server, Tasks("test") as tasks:
        downloads = client_downloads(tasks, files)
        with pytest.raises(OutOfSpace, match=refused):
            await fetch(downloads, files, server.url, MACHINE, Transfer())
        assert left(files) == []


async def chunks(*sizes: int) -> AsyncIterator[bytes]:
    for size in sizes:
        yield bytes(size)


@pytest.mark.parametrize("announced", [0, 3000])
async def test_an_upload_stays_within_its_owners_quota(tmp_path: Path, announced: int) -> None:
    files = Files(tmp_path, space(tmp_path, 1 << 40, quota=4000))
    first = sha256(bytes(2000)).hexdigest()
    await files.receive(first, chunks(2000), owner=1, announced=2000)
    second = sha256(bytes(3000)).hexdigest()
    with pytest.raises(OutOfSpace):
        await files.receive(second, chunks(3000), owner=1, announced=announced)
    assert not files.has(second)
    await files.receive(second, chunks(3000), owner=2, announced=announced)
    files.drop(first)
    await files.receive(first, chunks(2000), owner=1, announced=2000)
    assert list((tmp_path / PARTIAL).iterdir()) == []


async def test_a_list_of_checksums_is_stopped_with_its_file(tmp_path: Path) -> None:
    """It comes first, from a server that the cluster file names."""
    files = Files.at(tmp_path)
    async with site() as server, Tasks("test") as tasks:
        transfer = Transfer()

        def work() -> str:
            return files.fetch_blocking(
                server.url, Access(), transfer, Terms(), checksum=f"{server.url}.sha256"
            )

        fetching = tasks.start(asyncio.to_thread(work), name="fetch")
        await server.until(1)
        transfer.stop()
        await asyncio.wait({fetching}, timeout=20)
        assert isinstance(fetching.exception(), ProviderError)
        assert left(files) == []


async def test_a_list_of_checksums_comes_from_where_its_file_may(tmp_path: Path) -> None:
    files, nowhere = Files.at(tmp_path), Terms(reach=Reach(()))
    async with site() as server:
        with pytest.raises(ProviderError):
            await asyncio.to_thread(
                files.fetch_blocking, server.url, Access(), Transfer(), nowhere,
                checksum=f"{server.url}.sha256",
            )  # fmt: skip
        assert server.asked == 0


async def test_another_users_release_removes_no_file_that_has_just_come(tmp_path: Path) -> None:
    """Between the thread that had fetched it and the loop, it was no one's."""
    loop = asyncio.get_running_loop()

    class Released(Files):
        def fetch_blocking(
            self, url: str, access: Access, transfer: Transfer, terms: Terms, *, checksum: str = ""
        ) -> str:
            got = Files.fetch_blocking(self, url, access, transfer, terms, checksum=checksum)
            loop.call_soon_threadsafe(self.release, got, 2)
            return got

    files = Released.at(tmp_path, quota=100)
    async with site(announced=b"Content-Length: 1\r\n") as server:
        got = await files.fetch(server.url, owner=1)
    assert files.has(got)
    assert files.space.used(1) == 1
    files.release(got, 1)
    assert not files.has(got)
