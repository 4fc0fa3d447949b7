"""A libvirtd of the tests' own, and what there is to try on it."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import pytest

from nospoon.model.cluster import Firmware, Host
from nospoon.model.connections import Libvirt
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.storage import Image
from nospoon.providers.libvirt import LibvirtConnection
from nospoon.runtime import process
from nospoon.runtime.process import Finished
from nospoon.runtime.turns import Turns
from nospoon.testing import guests
from nospoon.testing.libvirtd import OwnLibvirt, a_libvirt_of_ones_own
from nospoon.testing.racks import MEBI, Bench, Rack, make, open_seed, remove_all


class NamespaceRunner:
    """Commands where the private libvirtd is."""

    def __init__(self, libvirt: OwnLibvirt) -> None:
        self._enter = libvirt.enter

    async def run(
        self, argv: Sequence[str], *, stdin: bytes | None = None, check: bool = True
    ) -> Finished:
        return await process.run([*self._enter, *argv], stdin=stdin, check=check)


@pytest.fixture(scope="session")
def own_libvirt() -> Iterator[OwnLibvirt]:
    if os.geteuid() != 0 or shutil.which("libvirtd") is None:
        pytest.skip("needs root and libvirtd")
    with a_libvirt_of_ones_own() as made:
        yield made


@pytest.fixture
def runner(own_libvirt: OwnLibvirt) -> NamespaceRunner:
    return NamespaceRunner(own_libvirt)


@pytest.fixture
def images() -> dict[str, str]:
    """sha256 -> path of the daemon's copy."""
    return {}


Connect = Callable[[str], LibvirtConnection]


@pytest.fixture
async def connect(
    own_libvirt: OwnLibvirt, runner: NamespaceRunner, images: dict[str, str], tmp_path: Path
) -> AsyncIterator[Connect]:
    """Makes connections to it, by the name that the host is given."""
    made, turns = [], Turns()

    async def open_image(sha256: str) -> str:
        return images[sha256]

    def connect(name: str) -> LibvirtConnection:
        connection = LibvirtConnection(
            Host(name, Libvirt(own_libvirt.uri)),
            "kit",
            runner,
            open_image,
            records=str(tmp_path / "records"),
            verdicts=tmp_path / "verdicts",
            turns=turns,
            open_seed=open_seed,
            opened=own_libvirt.uri,
        )
        made.append(connection)
        return connection

    yield connect
    for each in made:
        await each.close()


@pytest.fixture
def connection(connect: Connect) -> LibvirtConnection:
    return connect("here")


async def nothing(resource: Resource) -> None:
    del resource


@pytest.fixture
async def bench(connection: LibvirtConnection, tmp_path: Path) -> AsyncIterator[Bench]:
    """A place for guests; what they are made of is removed in the end."""
    bench = Bench(
        connection=connection,
        place=connection.host,
        deployment="kit",
        pool_root=str(tmp_path),
        image=Image("", "", "raw", 0),
        make_stranger=nothing,
        remove_machine=nothing,
    )
    yield bench
    await remove_all(bench)


@pytest.fixture
async def bench_with_image(
    connection: LibvirtConnection, images: dict[str, str], tmp_path: Path
) -> AsyncIterator[Bench]:
    """A place for racks that have an image; what is made there is removed in the end."""
    content = b"an image".ljust(MEBI, b"\0")
    sha256 = hashlib.sha256(content).hexdigest()
    (tmp_path / "image.raw").write_bytes(content)
    images[sha256] = str(tmp_path / "image.raw")
    bench = Bench(
        connection=connection,
        place=connection.host,
        deployment="kit",
        pool_root=str(tmp_path),
        image=Image("", sha256, "raw", MEBI),
        make_stranger=nothing,
        remove_machine=nothing,
    )
    yield bench
    await remove_all(bench)


@pytest.fixture
async def rack(bench: Bench, images: dict[str, str], tmp_path: Path) -> Rack:
    """A machine with BIOS, made and off, whose disk says on the console that it boots."""
    made = guests.guest_rack(
        bench, guests.speaking_disk(), images, tmp_path, firmware=Firmware.BIOS
    )
    await make(bench, *made.all)
    return made
