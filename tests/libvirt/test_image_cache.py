"""Images of a host: one copy for all clusters of a deployment, as long as one of them uses it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import libvirt
import pytest

from nospoon.errors import ProviderError
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.storage import Image, Pool, Volume
from nospoon.providers.libvirt import LibvirtConnection
from nospoon.providers.libvirt.storage_xml import render_volume
from nospoon.testing.racks import (
    MEBI,
    Bench,
    Rack,
    found,
    make,
    observe_all,
    observe_everything,
    rack_for,
    remove_all,
)

pytestmark = pytest.mark.libvirt
CONTENT = b"an image".ljust(MEBI, b"\0")


@dataclass(frozen=True)
class Place:
    """One host and two clusters on it, by two names."""

    one: Bench
    two: Bench
    first: Rack
    second: Rack

    def copies(self) -> list[Path]:
        return sorted(Path(self.one.pool_root).rglob("*.raw"))

    def pools(self) -> set[str]:
        assert isinstance(self.one.connection, LibvirtConnection)
        connect = libvirt.open(self.one.connection.host.where)
        return {pool.name() for pool in connect.listAllStoragePools(0)}


@pytest.fixture
async def place(
    bench: Bench,
    connect: Callable[[str], LibvirtConnection],
    images: dict[str, str],
    tmp_path: Path,
) -> AsyncIterator[Place]:
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "image").write_bytes(CONTENT)
    images[sha256] = str(tmp_path / "source" / "image")
    one = replace(bench, image=Image("", sha256, "raw", MEBI))
    two = replace(
        one,
        cluster=uuid4(),
        place=replace(one.place, name="the same"),
        connection=connect("the same"),
    )
    yield Place(one, two, rack_for(one), rack_for(two))
    for each in (one, two):
        await remove_all(each)


async def delete(bench: Bench, resource: Resource) -> None:
    driver = bench.connection.drivers[resource.key.kind]
    await driver.delete(await found(bench, resource))


async def test_two_clusters_share_a_copy_and_the_last_takes_it_along(place: Place) -> None:
    await make(place.one, place.first.pool, place.first.image, place.first.cloned)
    (copy,) = place.copies()
    before = copy.stat()
    await make(place.two, place.second.pool, place.second.image, place.second.cloned)
    assert place.copies() == [copy]
    assert copy.stat().st_mtime_ns == before.st_mtime_ns, "it was not sent again"
    assert (await found(place.two, place.second.cloned)).shape == place.second.cloned.shape
    for bench, rack in ((place.one, place.first), (place.two, place.second)):
        assert place.copies() == [copy], "somebody uses it"
        assert (await found(bench, rack.image)).shape == rack.image.shape
        for part in (rack.cloned, rack.image, rack.pool):
            await delete(bench, part)
    assert place.copies() == []
    assert not [name for name in place.pools() if name.startswith("nospoon-")]
    assert not list(Path(place.one.pool_root).glob("nospoon-*"))


async def test_clusters_that_come_and_go_at_once_do_not_lose_it(place: Place) -> None:
    """One goes while the other begins, over and over, in every order that the loop gives."""
    await make(place.one, place.first.pool)
    await make(place.two, place.second.pool)
    await make(place.one, place.first.image)
    for _ in range(4):
        await asyncio.gather(
            delete(place.one, place.first.image), make(place.two, place.second.image)
        )
        await make(place.two, place.second.cloned)
        await delete(place.two, place.second.cloned)
        await asyncio.gather(
            make(place.one, place.first.image), delete(place.two, place.second.image)
        )
        await make(place.one, place.first.cloned)
        await delete(place.one, place.first.cloned)
    (copy,) = place.copies()
    assert copy.read_bytes() == CONTENT


async def test_who_looks_meanwhile_disturbs_nobody_who_makes_or_removes_pools(place: Place) -> None:
    """To look at a pool that is being made, or removed, must not start it."""
    ended = asyncio.Event()

    async def look(bench: Bench) -> None:
        while not ended.is_set():
            await observe_everything(bench)

    async def come_and_go(bench: Bench, rack: Rack) -> None:
        for _ in range(12):
            await make(bench, rack.pool, rack.image)
            for part in (rack.image, rack.pool):
                await delete(bench, part)

    async with asyncio.TaskGroup() as group:
        for bench in (place.one, place.two):
            group.create_task(look(bench))
        await asyncio.gather(
            come_and_go(place.one, place.first), come_and_go(place.two, place.second)
        )
        ended.set()
    assert not [name for name in place.pools() if name.startswith("nospoon-")]


async def test_two_that_begin_at_once_make_one_whole_copy(place: Place) -> None:
    await make(place.one, place.first.pool)
    await make(place.two, place.second.pool)
    await asyncio.gather(make(place.one, place.first.image), make(place.two, place.second.image))
    (copy,) = place.copies()
    assert copy.read_bytes() == CONTENT
    for bench, rack in ((place.one, place.first), (place.two, place.second)):
        assert (await found(bench, rack.image)).shape == rack.image.shape


async def test_an_image_that_could_not_be_sent_is_referred_to_by_nobody(
    place: Place, images: dict[str, str]
) -> None:
    (source,) = map(Path, images.values())
    await make(place.one, place.first.pool)
    source.write_bytes(b"other".ljust(MEBI, b"\0"))
    with pytest.raises(ProviderError, match="corrupt"):
        await make(place.one, place.first.image)
    assert place.copies() == []
    assert not list(Path(place.one.pool_root).rglob("*.reference"))
    assert place.first.image.key not in await observe_all(place.one)


async def test_what_a_daemon_that_was_killed_left_is_sent_again_or_swept(place: Place) -> None:
    await make(place.one, place.first.pool, place.first.image)
    (copy,) = place.copies()
    Path(f"{copy}.complete").unlink()
    copy.write_bytes(CONTENT[: MEBI // 2])
    assert place.first.image.key not in await observe_all(place.one), "half an image is none"
    await make(place.one, place.first.image)
    assert copy.read_bytes() == CONTENT
    (reference,) = Path(place.one.pool_root).rglob("*.reference")
    reference.unlink()  # killed between the reference and the image
    await delete(place.one, place.first.pool)
    assert place.copies() == []


async def test_an_image_without_a_cluster_is_an_orphan_and_can_be_reaped(place: Place) -> None:
    await make(place.one, place.first.pool, place.first.image)
    assert [each.tag.cluster for each in await observe_everything(place.one)] == [
        place.one.cluster
    ] * 2
    (reference,) = Path(place.one.pool_root).rglob("*.reference")
    reference.unlink()
    (orphan,) = (e for e in await observe_everything(place.one) if e.key.kind is Kind.IMAGE)
    assert orphan.tag.cluster != place.one.cluster
    assert orphan.tag.name == "(shared images)"
    await place.one.connection.drivers[Kind.IMAGE].delete(orphan)
    assert place.copies() == []
    assert not [name for name in place.pools() if name.startswith("nospoon-images")]


async def test_an_image_in_a_clusters_own_pool_stays_there_until_it_goes(place: Place) -> None:
    """As earlier versions put it."""
    pool, image = place.first.pool, place.first.image
    await make(place.one, pool)
    assert isinstance(pool.shape, Pool)
    assert isinstance(image.shape, Image)
    file = f"{image.key.name}--{image.shape.sha256}.raw"
    assert isinstance(place.one.connection, LibvirtConnection)
    connect = libvirt.open(place.one.connection.host.where)
    theirs = connect.storagePoolLookupByName(pool.key.name)
    for name in (file, f"{file}.complete"):
        theirs.createXML(render_volume(name, capacity=MEBI, file_format="raw"), 0)
    (Path(pool.shape.path) / file).write_bytes(CONTENT)
    assert (await found(place.one, image)).shape == image.shape
    await make(place.one, image, place.first.cloned)
    assert place.copies() == [Path(pool.shape.path) / file]
    seen = await found(place.one, place.first.cloned)
    assert isinstance(seen.shape, Volume)
    assert seen.shape.image == image.key.name
    await delete(place.one, place.first.cloned)
    await delete(place.one, image)
    assert place.copies() == []


async def test_files_of_others_beside_the_images_stay(place: Place) -> None:
    await make(place.one, place.first.pool, place.first.image)
    (copy,) = place.copies()
    theirs = copy.parent / "mine.raw"
    theirs.write_bytes(b"mine")
    await delete(place.one, place.first.image)
    assert place.copies() == [theirs]
    theirs.unlink()
    await delete(place.one, place.first.pool)
    assert not copy.parent.exists()
