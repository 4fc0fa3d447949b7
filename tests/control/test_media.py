"""Virtual media of a machine: what was asked for last is what is in the drive, and is told."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast
from uuid import UUID, uuid4

import pytest

from nospoon.control.content.client_downloads import ClientDownloads
from nospoon.control.content.fetch import FREE, Access, Terms, Transfer
from nospoon.control.content.files import Files
from nospoon.control.content.media import Media
from nospoon.control.fleet.hosts import Hosts
from nospoon.errors import Conflict
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
        del transfer, terms
        return url

    async def fetch(self, url: str, transfer: Transfer) -> str:
        self.transfers[url] = transfer
        self.begun[url].set()
        await self.doors[url].wait()
        return url.rpartition("/")[2]

    def path(self, sha256: str) -> Path:
        return Path(sha256)

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
    async with asyncio.timeout(10):
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
        await asyncio.wait({ejection}, timeout=0.05)
        assert not ejection.done()
        drive.busy.set()
        await ejection
    assert (drive.inside, drive.told) == ("", "")
