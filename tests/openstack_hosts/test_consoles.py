"""Serial consoles by the proxy of a cloud, and clouds that have none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest
from tests.openstack_hosts.test_roots import open_seed
from tests.openstack_hosts.test_snapshots import PLAN, make, shape_of, vm
from websockets.asyncio.server import ServerConnection, serve
from websockets.typing import Subprotocol

from nospoon.errors import Gone, HostUnreachable, ProviderError, Unfetchable
from nospoon.model.machine import PowerCommand
from nospoon.providers.openstack.connection import OpenStackConnection
from nospoon.providers.openstack.consoles import LARGEST
from nospoon.runtime.reach import Reach
from nospoon.testing.fake_cloud import FakeCloud, connected

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")
VM = shape_of(vm()).uuid


@pytest.fixture
async def connection(cloud: FakeCloud, tmp_path: Path) -> AsyncIterator[OpenStackConnection]:
    async with connected(cloud, tmp_path, open_seed=open_seed) as made:
        await make(made, vm())
        yield made


async def echo(socket: ServerConnection) -> None:
    """As a guest that greets, says what is typed, and ends at `q`."""
    await socket.send(b"")
    await socket.send(b"login: ")
    async for data in socket:
        if data == b"q":
            return
        await socket.send(b"x" * (LARGEST + 1) if data == b"much" else data)


@asynccontextmanager
async def proxy(cloud: FakeCloud) -> AsyncIterator[None]:
    async with serve(echo, "127.0.0.1", 0, subprotocols=[Subprotocol("binary")]) as server:
        (socket,) = server.sockets
        cloud.serial_url = f"ws://127.0.0.1:{socket.getsockname()[1]}/?token=t"
        yield


async def test_a_console_is_typed_at_until_it_ends(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    async with proxy(cloud):
        stream = await connection.machine_driver.console(VM)
        assert await stream.read() == b"login: "
        await stream.write(b"root")
        assert await stream.read() == b"root"
        with pytest.raises(ProviderError, match="no break was sent"):
            await stream.send_break()
        await stream.write(b"q")
        assert await stream.read() == b""
        with pytest.raises(Gone, match="input is ignored"):
            await stream.write(b"root")
        await stream.close()


async def test_a_proxy_that_sends_too_much_ends_the_console(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    async with proxy(cloud):
        stream = await connection.machine_driver.console(VM)
        assert await stream.read() == b"login: "
        await stream.write(b"much")
        assert await stream.read() == b""
        await stream.close()


@pytest.mark.parametrize("url", ["http://127.0.0.1/", "ws:///", "javascript:1", "ws://a:b/"])
async def test_what_is_no_websocket_is_refused(
    cloud: FakeCloud, connection: OpenStackConnection, url: str
) -> None:
    cloud.serial_url = url
    with pytest.raises(ProviderError):
        await connection.machine_driver.console(VM)


async def test_a_cloud_says_why_it_has_no_console_and_a_proxy_may_be_gone(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    with pytest.raises(Gone, match=r"cannot be typed at: .*Unavailable console type serial"):
        await connection.machine_driver.console(VM)
    async with proxy(cloud):
        pass
    with pytest.raises(HostUnreachable, match="does not answer: connection refused"):
        await connection.machine_driver.console(VM)
    await connection.machine_driver.power(VM, PowerCommand.OFF, PLAN)
    asked = cloud.calls["POST /compute/v2.1/servers/ID/remote-consoles"]
    with pytest.raises(ProviderError, match="is off"):
        await connection.machine_driver.console(VM)
    assert cloud.calls["POST /compute/v2.1/servers/ID/remote-consoles"] == asked
    with pytest.raises(Gone):
        await connection.machine_driver.console(UUID(int=1))


async def test_the_daemon_connects_to_no_address_where_it_may_not(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    """Who wrote the file chose the cloud, which names the address."""
    async with proxy(cloud):
        connection._api._reach = Reach()
        with pytest.raises(Unfetchable):
            await connection.machine_driver.console(VM)
