"""A cloud in memory that answers, and a connection to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from nospoon.model.cluster import Host
from nospoon.model.connections import OpenStack
from nospoon.providers.base import OpenSeed, no_seeds
from nospoon.providers.openstack.around import AtHome, everywhere
from nospoon.providers.openstack.connection import OpenStackConnection
from nospoon.providers.openstack.drives import KeptMedia
from nospoon.providers.openstack.relays import IsHome
from nospoon.runtime.reach import ANYWHERE
from nospoon.runtime.tasks import Tasks
from nospoon.services.netboot.relayed import RelayNetbootDriver
from nospoon.services.netboot.relays import RelayTunnels
from nospoon.services.relayed.bmcs import RelayedBmcs
from nospoon.testing.fake_cloud import FakeCloud


@asynccontextmanager
async def fake_cloud() -> AsyncIterator[FakeCloud]:
    """It answers on a port of loopback, in this event loop."""
    cloud = FakeCloud()
    methods = ["GET", "POST", "PUT", "DELETE", "PATCH"]
    app = Starlette(routes=[Route("/{path:path}", cloud.answer, methods=methods)])
    server = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", lifespan="off")
    )
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    tasks = Tasks("a cloud in memory")
    serving = tasks.start(server.serve(), name="serve a cloud in memory")
    while not server.started:  # noqa: ASYNC110  (uvicorn has no event for it)
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    cloud.url = f"http://127.0.0.1:{port}"
    try:
        yield cloud
    finally:
        server.should_exit = True
        await asyncio.wait([serving])
        await tasks.close()


AT = Host("cloud", OpenStack("mine", "http://keystone p", boot_address="http://192.0.2.1:8069"))
"""Where connections to it are."""


@asynccontextmanager
async def connected(
    cloud: FakeCloud,
    directory: Path,
    *,
    at_home: AtHome = everywhere,
    pause: float = 0.01,
    open_seed: OpenSeed = no_seeds,
    is_home: IsHome = everywhere,
    netboot: RelayNetbootDriver | None = None,
) -> AsyncIterator[OpenStackConnection]:
    """A connection to it under the host name `cloud`; what it keeps is in `directory`. `pause`: as
    the connection's. Through relays, everything is "answered". `netboot`: what they serve.
    """
    answer = PlainTextResponse("answered")
    tunnels = RelayTunnels(
        answer,
        directory / "relays",
        b"secret",
        bmcs=RelayedBmcs(lambda *_: False).serve,
        netboot=(netboot or RelayNetbootDriver(state=directory / "none", deployment="kit")).serve,
        shortest=0.1,
    )
    (directory / "image.iso").write_bytes(b"an image".ljust(4096))

    async def build(url: str) -> Path:
        del url
        return directory / "image.iso"

    async def open_image(sha256: str) -> str:
        (directory / sha256).write_bytes(sha256.encode())
        return str(directory / sha256)

    made = OpenStackConnection(
        AT,
        "kit",
        lambda: cloud.settings,
        reach=ANYWHERE,
        build_image=build,
        open_image=open_image,
        open_seed=open_seed,
        records=directory,
        media=KeptMedia(directory / "media"),
        pause=pause,
        at_home=at_home,
        tunnels=tunnels,
        is_home=is_home,
    )
    try:
        yield made
    finally:
        await made.close()
        await tunnels.close()
