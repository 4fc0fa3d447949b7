"""Volumes of containers besides their roots: file systems in files, kept when a root changes."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import PurePosixPath

from nospoon.model.resources.machines import Machine
from nospoon.providers.containers import scripts
from nospoon.providers.containers.host import ContainerHost


@cache
def attaching() -> str:
    """The text of the program that mounts them."""
    return resources.files("nospoon.providers.containers").joinpath("attaching.py").read_text()


def places(directory: str, machine: Machine) -> list[tuple[str, str]]:
    """File on the host, and path in the container. `directory`: of the container."""
    pool = PurePosixPath(directory).parent
    return [(f"{pool}/{disk.volume}.volume", disk.mount) for disk in machine.disks[1:]]


async def make(host: ContainerHost, path: str, size: int) -> None:
    """An empty one. `size` in bytes."""
    await host.sh(scripts.MAKE_VOLUME, path, str(size))
