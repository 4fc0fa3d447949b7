"""A connection to a cloud in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nospoon.providers.openstack.connection import OpenStackConnection
from nospoon.testing.fake_cloud import FakeCloud, connected, fake_cloud


@pytest.fixture
async def cloud() -> AsyncIterator[FakeCloud]:
    async with fake_cloud() as made:
        yield made


@pytest.fixture
async def connection(cloud: FakeCloud, tmp_path: Path) -> AsyncIterator[OpenStackConnection]:
    async with connected(cloud, tmp_path) as made:
        yield made
