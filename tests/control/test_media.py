"""Virtual media of a machine: what was asked for last is what is in the drive, and is told."""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import cast
from uuid import UUID, uuid4

import pytest

from nospoon.control.content.client_downloads import ClientDownloads
from nospoon.control.content.fetch import FREE, Access, Terms, Transfer
from nospoon.control.content.files import Files
from nospoon.control.content.media import Media
from nospoon.control.fleet.hosts import Hosts
from nospoon.errors import Conflict, UsageError
from nospoon.providers.base import Medium

MACHINE = uuid4()


@dataclass
class Slow:
    """Files whose transfers end when they are let, by their URL; dropped ones are remembered."""

    doors: defaultdict[str, asyncio.Event] = field(
        default_factory=lambda: defaultdict(asyncio.Event)
    )
    begun: defaultdict[str, asyncio.Event] = field(
        default_factory=lambda: defaultdict(asyncio.Event)
    )
    dropped: list[str] = field(default_factory=list)
    transfers: dict[str, Transfer] = field(default_factory=dict)

    async def run(self, machine: UUID, transfer: Transfer, work: Callable[[Terms], str]) -> str:
        """As `ClientDownloads` does; what a thread would do says what is fetched."""
        assert machine == MACHINE
        return await self.fetch(work(FREE), transfer)

    def fetch_blocking(self, url: str, access: Access, transfer: Transfer, terms: Terms) -> str:
        assert access.password != ""
        del transfer
        terms.keep(url.rpartition("/")[2])
        return url

    async def fetch(self, url: str, transfer: Transfer) -> str:
        self.transfers[url] = transfer
        self.begun[url].set()
        await self.doors[url].wait()
        return url.rpartition("/")[2]

    def path(self, sha256: str) -> Path:
        assert sha256
        return Path("/dev/null")

    def hold(self, sha256: str) -> None:
        del sha256

    let_go = hold

    def answer(self, sha256: str, owner: int | None) -> None:
        del sha256, owner

    def asked(self, sha256: str, owner: int | None) -> bool:
        del sha256, owner
        return False

    def release(self, sha256: str, owner: int | None) -> None:
        del owner
        self.drop(sha256)

    def drop(self, sha256: str) -> None:
        self.dropped.append(sha256)


@dataclass
class Drive:
    """A drive and what its BMC says of it; insertions wait for `busy`."""

    inside: str = ""
    told: str = ""
    busy: asyncio.Event = field(default_factory=asyncio.Event)
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    def drives(self, machine: UUID) -> Drive:
        assert machine == MACHINE
        return self

    async def insert(self, machine: UUID, medium: Medium) -> None:
        assert machine == MACHINE
        self.asked.set()
        await self.busy.wait()
        self.inside = medium.sha256

    async def eject(self, machine: UUID) -> None:
        assert machine == MACHINE
        self.inside = ""

    async def note(self, machine: UUID, name: str) -> None:
        assert machine == MACHINE
        self.told = name


def made() -> tuple[Media, Slow, Drive]:
    files, drive = Slow(), Drive()
    drive.busy.set()

    async def is_kept(sha256: str) -> bool:
        return sha256 == "kept"

    media = Media(
        cast("Files", files),
        cast("Hosts", drive),
        cast("ClientDownloads", files),
        is_kept=is_kept,
        note=drive.note,
    )
    return media, files, drive


async def begun(files: Slow, name: str) -> None:
    """Until its transfer is under way."""
    async with asyncio.timeout(20):
        await files.begun[f"http://h/{name}"].wait()


async def test_what_arrives_is_put_in_and_told_without_the_account() -> None:
    media, files, drive = made()
    async with asyncio.TaskGroup() as group:
        group.create_task(media.insert(MACHINE, "http://me:word@h/one"))
        await begun(files, "one")
        files.doors["http://h/one"].set()
    assert (drive.inside, drive.told, files.dropped) == ("one", "http://h/one", ["one"])


async def test_what_arrives_after_the_drive_was_emptied_is_not_put_in() -> None:
    media, files, drive = made()

    async def late() -> None:
        with pytest.raises(Conflict, match="http://h/one is not put in: something else"):
            await media.insert(MACHINE, "http://h/one", password="word")

    async with asyncio.TaskGroup() as group:
        group.create_task(late())
        await begun(files, "one")
        await media.eject(MACHINE)
        files.doors["http://h/one"].set()
    assert (drive.inside, drive.told, files.dropped) == ("", "", ["one"])


@pytest.mark.parametrize("order", [("one", "two"), ("two", "one")])
async def test_of_two_the_one_that_was_asked_for_last_is_in(order: tuple[str, str]) -> None:
    media, files, drive = made()

    async def late() -> None:
        with pytest.raises(Conflict):
            await media.insert(MACHINE, "http://h/one", password="word")

    async with asyncio.TaskGroup() as group:
        group.create_task(late())
        await begun(files, "one")
        group.create_task(media.insert(MACHINE, "http://h/two", password="word"))
        await begun(files, "two")
        for name in order:
            files.doors[f"http://h/{name}"].set()
    assert (drive.inside, drive.told) == ("two", "http://h/two")


async def test_what_is_uploaded_takes_the_place_of_what_is_on_its_way() -> None:
    media, files, drive = made()

    async def late() -> None:
        with pytest.raises(Conflict):
            await media.insert(MACHINE, "http://h/one", password="word")

    async with asyncio.TaskGroup() as group:
        group.create_task(late())
        await begun(files, "one")
        await media.insert_uploaded(MACHINE, "kept", "disc.iso")
        files.doors["http://h/one"].set()
    assert (drive.inside, drive.told) == ("kept", "disc.iso")


async def test_an_ejection_waits_for_the_insertion_that_is_being_made() -> None:
    media, files, drive = made()
    drive.busy.clear()
    async with asyncio.TaskGroup() as group:
        group.create_task(media.insert(MACHINE, "http://h/one", password="word"))
        await begun(files, "one")
        files.doors["http://h/one"].set()
        await drive.asked.wait()
        ejection = group.create_task(media.eject(MACHINE))
        for _ in range(100):  # turns of the loop: nothing here waits for anything else
            await asyncio.sleep(0)
        assert not ejection.done()
        drive.busy.set()
        await ejection
    assert (drive.inside, drive.told) == ("", "")


CONTENT = b"the same everywhere"
DIGEST = hashlib.sha256(CONTENT).hexdigest()
OWNER = 1000


class Drives:
    """Of any machine; each medium has to be there until it is in."""

    def __init__(self) -> None:
        self.inside: dict[UUID, bytes] = {}
        self.doors: defaultdict[UUID, asyncio.Event] = defaultdict(asyncio.Event)
        self.asked: defaultdict[UUID, asyncio.Event] = defaultdict(asyncio.Event)
        self.machine = MACHINE

    def drives(self, machine: UUID) -> Drives:
        self.machine = machine
        return self

    async def insert(self, machine: UUID, medium: Medium) -> None:
        self.asked[machine].set()
        await self.doors[machine].wait()
        self.inside[machine] = Path(medium.path).read_bytes()


class Handed:
    """Downloads that have come, of which the event loop hears a little later."""

    def __init__(self) -> None:
        self.doors: defaultdict[UUID, asyncio.Event] = defaultdict(asyncio.Event)
        self.come: defaultdict[UUID, asyncio.Event] = defaultdict(asyncio.Event)

    async def run(self, machine: UUID, transfer: Transfer, work: Callable[[Terms], str]) -> str:
        del transfer
        sha256 = await asyncio.to_thread(work, FREE)
        self.come[machine].set()
        await self.doors[machine].wait()
        return sha256


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "served").mkdir()
    (tmp_path / "served/disc.iso").write_bytes(CONTENT)
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "served"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/disc.iso"
        server.shutdown()
        thread.join()


def shared(tmp_path: Path) -> tuple[Media, Files, Drives, Handed]:
    files = Files.at(tmp_path / "files")
    drives, downloads = Drives(), Handed()

    async def is_kept(_: str) -> bool:
        return False

    async def note(_: UUID, __: str) -> None:
        pass

    media = Media(
        files,
        cast("Hosts", drives),
        cast("ClientDownloads", downloads),
        is_kept=is_kept,
        note=note,
    )
    return media, files, drives, downloads


async def test_a_medium_stays_for_a_machine_that_has_just_fetched_it_too(
    tmp_path: Path, url: str
) -> None:
    """Its insertion failed: the file was removed when another machine's copy of it was made."""
    media, files, drives, downloads = shared(tmp_path)
    first, second = uuid4(), uuid4()
    drives.doors[second].set()
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        earlier = group.create_task(media.insert(first, url))
        downloads.doors[first].set()
        await drives.asked[first].wait()
        group.create_task(media.insert(second, url))
        await downloads.come[second].wait()
        drives.doors[first].set()
        await earlier
        downloads.doors[second].set()
    assert drives.inside == {first: CONTENT, second: CONTENT}
    assert not files.has(DIGEST)
    assert not files._held


async def test_what_was_fetched_in_vain_is_removed(tmp_path: Path, url: str) -> None:
    media, files, _, downloads = shared(tmp_path)
    machine = uuid4()
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        task = group.create_task(media.fetch(machine, url))
        await downloads.come[machine].wait()
        task.cancel()
    assert not files.has(DIGEST)
    assert not files._held


async def chunks() -> AsyncIterator[bytes]:
    yield CONTENT


async def test_an_upload_stays_until_all_who_asked_for_it_have_put_it_in(tmp_path: Path) -> None:
    """`nospoon node media insert` of one file into two nodes at once failed for one of them."""
    media, files, drives, _ = shared(tmp_path)
    first, second = uuid4(), uuid4()
    for each in (first, second):
        drives.doors[each].set()
    assert await files.missing([DIGEST], owner=OWNER) == [DIGEST]
    await files.receive(DIGEST, chunks(), owner=OWNER)
    assert await files.missing([DIGEST], owner=OWNER) == []
    await media.insert_uploaded(first, DIGEST, "disc.iso", owner=OWNER)
    await media.insert_uploaded(second, DIGEST, "disc.iso", owner=OWNER)
    assert drives.inside == {first: CONTENT, second: CONTENT}
    assert not files.has(DIGEST)
    assert not files.space.used(OWNER)


@pytest.mark.parametrize("head", [b"QFI\xfb\0\0\0\2", b"KDMV", b"QED\0", b"conectix"])
async def test_no_medium_is_of_a_format_that_names_other_files(
    tmp_path: Path, url: str, head: bytes
) -> None:
    """libvirt opened, as root, the backing file of a qcow2 whenever it looked at the pool. A FIFO
    held up all storage of the host for good: lists of pools, plans, and starts of all its machines.
    """
    (tmp_path / "served/disc.iso").write_bytes(head + bytes(8192))
    media, files, drives, downloads = shared(tmp_path)
    machine, sha256 = uuid4(), hashlib.sha256(head + bytes(8192)).hexdigest()
    drives.doors[machine].set()
    downloads.doors[machine].set()
    with pytest.raises(UsageError, match=r"disc.iso is a .*, expected an ISO image"):
        await media.insert(machine, url)

    async def uploaded() -> AsyncIterator[bytes]:
        yield head + bytes(8192)

    await files.receive(sha256, uploaded(), owner=OWNER)
    with pytest.raises(UsageError, match=r"here.iso is a .*, expected an ISO image"):
        await media.insert_uploaded(machine, sha256, "here.iso", owner=OWNER)
    assert not drives.inside
    assert not files.has(sha256)
