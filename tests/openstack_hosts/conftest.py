"""A connection to a cloud in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nospoon.model.resources.storage import Image
from nospoon.providers.openstack.connection import OpenStackConnection
from nospoon.testing.cloud_connection import AT, connected, fake_cloud
from nospoon.testing.fake_cloud import FakeCloud
from nospoon.testing.racks import Bench


@pytest.fixture
async def cloud() -> AsyncIterator[FakeCloud]:
    async with fake_cloud() as made:
        yield made


@pytest.fixture
async def connection(cloud: FakeCloud, tmp_path: Path) -> AsyncIterator[OpenStackConnection]:
    async with connected(cloud, tmp_path) as made:
        yield made


@pytest.fixture
def bench(connection: OpenStackConnection) -> Bench:
    """What the conformance kit makes things with; nothing here is of others."""

    async def nothing(*_: object) -> None:
        return None

    return Bench(
        connection, AT, "kit", "", Image("", "ab" * 32, "raw", 1), nothing, nothing,
        flavor="metal.512",
    )  # fmt: skip
