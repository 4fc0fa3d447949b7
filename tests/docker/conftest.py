"""Podman's service on a socket of its own, and containers of busybox on it.

The service has its own storage, so that nothing of the machine's is touched. Its containers end
with it, and so do their mounts.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.lxc.conftest import image_of, no_stranger, not_removed

from nospoon.model.cluster import Host
from nospoon.model.connections import Docker
from nospoon.model.node_kind import NodeKind
from nospoon.providers.docker import DockerConnection
from nospoon.runtime.runner import LocalRunner
from nospoon.testing.conformance import Bench, open_seed, remove_all
from nospoon.testing.container_root import busybox_root
from nospoon.testing.trees import remove_tree

PLACE = "here:docker"


@pytest.fixture(scope="session")
def engine() -> Iterator[Path]:
    """The socket of a service."""
    with service_of() as socket:
        yield socket


@contextlib.contextmanager
def service_of(*options: str) -> Iterator[Path]:
    """A service with these options of Podman's, and its socket."""
    if os.geteuid() != 0 or shutil.which("podman") is None or shutil.which("runc") is None:
        pytest.skip("needs root, Podman and runc")
    directory = Path(tempfile.mkdtemp(prefix="nospoon-podman-"))
    podman = [
        "podman", "--runtime", "runc", "--root", str(directory / "root"),
        "--runroot", str(directory / "run"), "--tmpdir", str(directory / "tmp"),
        "--cgroup-manager", "cgroupfs", "--events-backend", "file", *options,
    ]  # fmt: skip
    socket = directory / "podman.sock"
    with (directory / "log").open("w") as log:
        service = subprocess.Popen(
            [*podman, "system", "service", "--time=0", f"unix://{socket}"],
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=directory,  # conmon writes a file `oom` there
        )
    until = time.monotonic() + 20
    while not socket.exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert socket.exists(), (directory / "log").read_text()
    yield socket
    subprocess.run([*podman, "rm", "-af", "-t", "0"], capture_output=True, check=False)
    service.terminate()
    service.wait(timeout=20)
    end_all(directory)
    overlay = str(directory / "root" / "overlay")
    subprocess.run(["umount", overlay], capture_output=True, check=False)
    remove_tree(directory)


def end_all(directory: Path) -> None:
    """What Podman left to clean up after commands in containers: it does so after five minutes, and
    mounts its storage for that.
    """
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if os.fsencode(directory) in each.read_bytes():
                os.kill(int(each.parent.name), signal.SIGKILL)


@pytest.fixture
def place() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="nospoon-docker-"))
    (directory / "records").mkdir()
    yield directory
    remove_tree(directory)


@pytest.fixture
def images() -> dict[str, Path]:
    """sha256 -> path of the daemon's copy."""
    return {}


@pytest.fixture
async def connection(
    engine: Path, place: Path, images: dict[str, Path]
) -> AsyncIterator[DockerConnection]:
    async def open_image(sha256: str) -> str:
        return str(images[sha256])

    made = DockerConnection(
        Host(PLACE, Docker(str(engine))),
        "kit",
        LocalRunner(),
        open_image,
        root=str(place / "pools"),
        records=str(place / "records"),
        open_seed=open_seed,
    )
    yield made
    await made.close()


@pytest.fixture
async def bench(
    connection: DockerConnection, place: Path, images: dict[str, Path]
) -> AsyncIterator[Bench]:
    made = Bench(
        connection=connection,
        host=PLACE,
        deployment="kit",
        pool_root=str(place / "pools"),
        image=image_of(busybox_root(), place, images),
        make_stranger=no_stranger,
        remove_machine=not_removed,
        links=False,
        kind=NodeKind.CONTAINER,
    )
    yield made
    await remove_all(made)
