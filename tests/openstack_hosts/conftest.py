"""A connection to a cloud in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nospoon.model.cluster import Host
from nospoon.model.connections import ConnectionKind, OpenStack
from nospoon.providers.openstack.connection import OpenStackConnection
from nospoon.providers.openstack.drives import KeptMedia
from nospoon.runtime.reach import ANYWHERE
from nospoon.testing.fake_cloud import FakeCloud, fake_cloud

HOST = Host(
    "cloud", ConnectionKind.OPENSTACK, uri="", openstack=OpenStack("mine", "http://keystone p")
)


@pytest.fixture
async def cloud() -> AsyncIterator[FakeCloud]:
    async with fake_cloud() as made:
        yield made


@pytest.fixture
async def connection(cloud: FakeCloud, tmp_path: Path) -> AsyncIterator[OpenStackConnection]:
    (tmp_path / "image.iso").write_bytes(b"an image".ljust(4096))

    async def build(url: str) -> Path:
        del url
        return tmp_path / "image.iso"

    made = OpenStackConnection(
        HOST,
        "kit",
        cloud.settings,
        reach=ANYWHERE,
        build_image=build,
        records=tmp_path,
        media=KeptMedia(tmp_path / "media"),
        pause=0.01,
    )
    yield made
    await made.close()
