"""A host with liblxc, and containers of busybox on it."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from nospoon.model.cluster import Host
from nospoon.model.connections import Lxc
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.storage import Image
from nospoon.providers.lxc import LxcConnection
from nospoon.runtime.runner import LocalRunner
from nospoon.testing.container_root import busybox_root
from nospoon.testing.racks import Bench, Stranger, open_seed, remove_all
from nospoon.testing.trees import remove_tree

PLACE = "here:lxc"


@pytest.fixture
def place() -> Iterator[Path]:
    """Where the containers' root may pass through, as pytest's own directories do not let it."""
    if os.geteuid() != 0 or shutil.which("lxc-start") is None:
        pytest.skip("needs root and liblxc")
    directory = Path(tempfile.mkdtemp(prefix="nospoon-lxc-"))
    directory.chmod(0o711)
    (directory / "records").mkdir()
    yield directory
    remove_tree(directory)


@pytest.fixture
def images() -> dict[str, Path]:
    """sha256 -> path of the daemon's copy."""
    return {}


@pytest.fixture
async def connection(place: Path, images: dict[str, Path]) -> AsyncIterator[LxcConnection]:
    async def open_image(sha256: str) -> str:
        return str(images[sha256])

    made = LxcConnection(
        Host(PLACE, Lxc()),
        "kit",
        LocalRunner(),
        open_image,
        root=str(place / "pools"),
        records=str(place / "records"),
        open_seed=open_seed,
    )
    yield made
    await made.close()


def image_of(content: bytes, place: Path, images: dict[str, Path]) -> Image:
    """An image with this content, which the daemon has."""
    sha256 = hashlib.sha256(content).hexdigest()
    images[sha256] = place / f"{sha256}.tar"
    images[sha256].write_bytes(content)
    return Image("", sha256, "tar", len(content))


async def no_stranger(resource: Resource) -> Stranger | None:
    del resource
    return None


async def not_removed(resource: Resource) -> None:
    del resource


@pytest.fixture
async def bench(
    connection: LxcConnection, place: Path, images: dict[str, Path]
) -> AsyncIterator[Bench]:
    made = Bench(
        connection=connection,
        place=connection.host,
        deployment="kit",
        pool_root=str(place / "pools"),
        image=image_of(busybox_root(), place, images),
        make_stranger=no_stranger,
        remove_machine=not_removed,
    )
    yield made
    await remove_all(made)
