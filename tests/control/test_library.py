"""Images that users loaded: names for content, and where nodes of them are placed."""

from __future__ import annotations

import asyncio
import hashlib
import io
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.control.in_process import OTHER, OWNER, AskingDaemon, a_control_plane

from nospoon.control.content import library as module
from nospoon.errors import Conflict, NotFound, OutOfSpace, UsageError
from nospoon.model.images import HypervisorType
from nospoon.model.principal import Principal

DISK = b"\0" * 4096


def root(content: bytes = b"") -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        member = tarfile.TarInfo("etc/release")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return written.getvalue()


@pytest.fixture
async def asking(tmp_path: Path) -> AsyncIterator[AskingDaemon]:
    async with a_control_plane(tmp_path) as made:
        yield made


async def load(
    asking: AskingDaemon, name: str, content: bytes, kind: HypervisorType | None, uid: int = OWNER
) -> Any:
    async def chunks() -> AsyncIterator[bytes]:
        yield content

    sha256 = hashlib.sha256(content).hexdigest()
    await asking.controller.files.receive(sha256, chunks(), owner=uid)
    return await asking.controller.library.load(Principal(uid), name, sha256, kind)


def file_of(image: str, *, kind: str = "container", more: str = "") -> str:
    return (
        f"cluster: c\nhosts: {{s: simulated}}\nnodes:\n"
        f"- {{name: n, kind: {kind}, disks: [{{image: '{image}', size: 1GiB}}]{more}}}\n"
    )


async def test_a_cluster_has_what_a_name_means_at_its_up_until_the_next_one(
    asking: AskingDaemon,
) -> None:
    first = await load(asking, "web", root(b"1"), HypervisorType.LXC)
    await asking.up(file_of("store:web"))
    second = await load(asking, "web", root(b"2"), HypervisorType.LXC)
    row = await asking.row()
    assert row is not None
    assert row.uploads["store:web"] == first.sha256
    plan = await asking.plan(file_of("store:web"))
    assert not plan.empty, "the name means another image now"
    await asking.up(file_of("store:web"))
    row = await asking.row()
    assert row is not None
    assert row.uploads["store:web"] == second.sha256


async def test_an_image_stays_until_it_is_removed_and_is_not_while_a_cluster_uses_it(
    asking: AskingDaemon,
) -> None:
    library, files = asking.controller.library, asking.controller.files
    image = await load(asking, "web", root(), HypervisorType.LXC)
    files.keep_only((), kept=0)
    assert files.has(image.sha256)
    await asking.up(file_of("store:web"))
    with pytest.raises(Conflict, match="clusters use image 'web': c"):
        await library.remove(Principal(OWNER), "web")
    await asking.down(purge=True)
    assert files.has(image.sha256)
    await library.remove(Principal(OWNER), "web")
    assert not files.has(image.sha256)
    assert files.space.used(OWNER) == 0
    with pytest.raises(NotFound, match="no image 'web' was loaded"):
        await library.image(Principal(OWNER), "web")


async def test_images_are_there_after_a_restart_and_count_as_their_owners(tmp_path: Path) -> None:
    async with a_control_plane(tmp_path) as asking:
        image = await load(asking, "web", root(), HypervisorType.LXC)
    async with a_control_plane(tmp_path) as asking:
        files = asking.controller.files
        assert await asking.controller.library.images(Principal(OWNER)) == [image]
        files.keep_only((), kept=0)
        assert files.has(image.sha256)
        assert files.space.used(OWNER) == len(root())
        files.release(image.sha256, OWNER)
        assert files.has(image.sha256), "an eject, or a cluster's end, takes no image"


async def test_content_with_two_names_goes_with_the_last_of_them(asking: AskingDaemon) -> None:
    library, files = asking.controller.library, asking.controller.files
    for name in ("one", "two"):
        image = await load(asking, name, DISK, None)
    await library.remove(Principal(OWNER), "one")
    assert files.has(image.sha256)
    await load(asking, "two", root(), None)
    assert not files.has(image.sha256)


async def test_names_that_come_and_go_at_once_have_content_and_are_counted(
    asking: AskingDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    library, files = asking.controller.library, asking.controller.files
    first = await load(asking, "a", root(), HypervisorType.LXC)
    await asyncio.gather(
        library.load(Principal(OWNER), "b", first.sha256, HypervisorType.LXC),
        library.remove(Principal(OWNER), "a"),
        return_exceptions=True,
    )
    for each in await library.images(Principal(OWNER)):
        assert files.path(each.sha256).exists(), f"{each.name} has lost its content"
    await load(asking, "c", root(b"c"), HypervisorType.LXC)
    sha256 = (await library.image(Principal(OWNER), "c")).sha256
    monkeypatch.setattr(module, "MOST_IMAGES", len(await library.images(Principal(OWNER))) + 1)
    more = [library.load(Principal(OWNER), f"n{n}", sha256, HypervisorType.LXC) for n in range(4)]
    done = await asyncio.gather(*more, return_exceptions=True)
    assert [type(each) for each in done].count(OutOfSpace) == 3
    assert len(await library.images(Principal(OWNER))) == module.MOST_IMAGES


async def test_a_name_of_another_user_is_as_if_it_were_not_there(asking: AskingDaemon) -> None:
    await load(asking, "web", root(), HypervisorType.LXC, uid=OTHER)
    with pytest.raises(UsageError) as caught:
        await asking.plan(file_of("store:web"))
    assert caught.value.message.startswith("c.yaml:4:")
    assert "no image 'web' was loaded. See `nospoon image list`" in caught.value.message
    assert await asking.controller.library.images(Principal(OWNER)) == []


@pytest.mark.parametrize(
    ("content", "kind", "message"),
    [
        (DISK, HypervisorType.LXC, "image x is not a root file system"),
        (b"KDMV" + DISK, HypervisorType.KVM, "image x is a VMDK, expected raw or qcow2"),
        (b"KDMV" + DISK, None, "image x is a VMDK"),
        (root(), HypervisorType.KVM, r"image x is an archive \(tar\), expected a disk"),
        (root(), HypervisorType.BAREMETAL, r"image x is an archive \(tar\)"),
        (b"<html>", HypervisorType.QEMU, "image x is not a disk: .* it has 6 bytes"),
        (b"<html>", None, "image x is not a disk"),
    ],
)
async def test_content_that_its_machine_type_cannot_run_is_refused(
    asking: AskingDaemon, content: bytes, kind: HypervisorType | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        await load(asking, "x", content, kind)
    assert await asking.controller.library.images(Principal(OWNER)) == []


async def test_without_a_machine_type_the_first_bytes_say_what_it_is(asking: AskingDaemon) -> None:
    assert (await load(asking, "a", root(), None)).format == "tar"
    assert (await load(asking, "b", DISK, None)).format == "raw"
    with pytest.raises(UsageError, match="expected a name of at most 63"):
        await load(asking, "../a", DISK, None)


async def test_a_node_of_another_kind_does_not_begin_with_it(asking: AskingDaemon) -> None:
    await load(asking, "disk", DISK, HypervisorType.BAREMETAL)
    with pytest.raises(UsageError) as caught:
        await asking.plan(file_of("store:disk", kind="vm"))
    assert (
        "the image is for baremetal, and node n, of kind vm, begins with one for kvm or qemu"
        in caught.value.message
    )
