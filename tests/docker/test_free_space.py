"""Roots are in pools where the driver of the engine has them limited, else in its directory."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from nospoon.errors import ProviderError
from nospoon.model.cluster import Host
from nospoon.model.connections import Docker
from nospoon.providers.docker.connection import DockerConnection
from nospoon.runtime.process import Finished

ENGINES, POOLS = "/var/lib/containers/storage", "/var/lib/nospoon/pools"
FACTS = {
    "socket": "/s", "cli": "podman", "cpus": 1, "memory": 1, "name": "h", "directory": ENGINES,
    "overlay": "overlay", "violation": "", "hint": "", "lacks": [],
}  # fmt: skip


class Machine:
    """Has as much free as the path has characters."""

    def __init__(self, driver: str) -> None:
        self.driver = driver

    async def run(
        self, argv: Sequence[str], *, stdin: bytes | None = None, check: bool = True
    ) -> Finished:
        del stdin, check
        said = (
            str(len(argv[-1]))
            if argv[0] == "df"
            else json.dumps(
                {**FACTS, "driver": self.driver, "limits_roots": self.driver == "overlay"}
            )
        )
        return Finished(tuple(argv), 0, said, "")


async def open_image(sha256: str) -> str:
    raise ProviderError(f"there is no image {sha256}")


@pytest.mark.parametrize(("driver", "place"), [("overlay", POOLS), ("vfs", ENGINES)])
async def test_free_is_what_roots_have(driver: str, place: str) -> None:
    host = Host("h", Docker())
    connection = DockerConnection(
        host, "kit", Machine(driver), open_image, root=POOLS, records="/records"
    )
    assert await connection.free_space(POOLS) == len(place)
