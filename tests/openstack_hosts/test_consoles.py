"""Serial consoles by the proxy of a cloud, and clouds that have none."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from uuid import UUID

import pytest
from tests.openstack_hosts.test_roots import open_seed
from tests.openstack_hosts.test_snapshots import PLAN, make, shape_of, vm
from websockets.asyncio.server import ServerConnection, serve
from websockets.typing import Subprotocol
from websockets.utils import accept_key

from nospoon.errors import Gone, HostUnreachable, ProviderError
from nospoon.model.machine import PowerCommand
from nospoon.providers.openstack.connection import OpenStackConnection
from nospoon.providers.openstack.consoles import LARGEST, PIECE
from nospoon.providers.openstack.servers import ServerDriver
from nospoon.runtime.reach import Reach
from nospoon.runtime.tls import self_signed
from nospoon.testing.cloud_connection import connected
from nospoon.testing.fake_cloud import FakeCloud

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
async def proxy(cloud: FakeCloud, tls: ssl.SSLContext | None = None) -> AsyncIterator[None]:
    spoken = [Subprotocol("binary")]
    async with serve(echo, "127.0.0.1", 0, subprotocols=spoken, ssl=tls) as server:
        (socket,) = server.sockets
        scheme = "ws" if tls is None else "wss"
        cloud.serial_url = f"{scheme}://127.0.0.1:{socket.getsockname()[1]}/?token=t"
        yield


async def test_boots_that_say_the_same_are_all_on_record(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    driver, (id_,) = connection.machine_driver, cloud.servers
    record, all_ = Path(driver.console_record(VM)), "boot\r\nlogin: " * 3 + "root"
    await driver.power(VM, PowerCommand.OFF, PLAN)
    for log in ("boot\r\nlogin: ", "boot\r\nlogin: ", "boot\r\nlogin: root"):
        await driver.power(VM, PowerCommand.ON, PLAN)
        cloud.consoles[id_] = log
        await driver.power(VM, PowerCommand.OFF, PLAN)
    async with asyncio.timeout(30):
        while not record.exists() or record.stat().st_size < len(all_):  # noqa: ASYNC110  (a file)
            await asyncio.sleep(0.01)
    assert record.read_bytes() == all_.encode()


async def test_a_daemon_that_starts_goes_on_where_the_record_ends(
    cloud: FakeCloud, connection: OpenStackConnection, tmp_path: Path
) -> None:
    driver, (id_,) = connection.machine_driver, cloud.servers
    record = Path(driver.console_record(VM))
    await driver.power(VM, PowerCommand.ON, PLAN)
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_bytes(b"an earlier boot\nboot\nlogin: ")
    cloud.consoles[id_] = "boot\nlogin: root"
    async with connected(cloud, tmp_path, open_seed=open_seed) as later:
        await later.machine_driver.power(VM, PowerCommand.OFF, PLAN)
        async with asyncio.timeout(30):
            while b"root" not in record.read_bytes():  # noqa: ASYNC110  (a file)
                await asyncio.sleep(0.01)
    assert record.read_bytes() == b"an earlier boot\nboot\nlogin: root"


async def test_two_first_reads_at_once_are_on_record_once(
    cloud: FakeCloud, connection: OpenStackConnection, tmp_path: Path
) -> None:
    driver, (id_,) = connection.machine_driver, cloud.servers
    record = Path(driver.console_record(VM))
    await driver.power(VM, PowerCommand.ON, PLAN)
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_bytes(b"boot\nlogin: ")
    cloud.consoles[id_] = "boot\nlogin: root"
    async with connected(cloud, tmp_path, open_seed=open_seed) as later:
        machines = later.machine_driver
        assert isinstance(machines, ServerDriver)
        server = await machines._actions.must(VM)
        await asyncio.gather(*(machines._consoles.read(server) for _ in range(5)))
        await machines._consoles._recorder.flush()
    assert record.read_bytes() == b"boot\nlogin: root"


async def test_a_reset_begins_a_log_whatever_the_one_before_said(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    """Nova has it before it is done with the reset, and the watch looks meanwhile."""
    driver, (id_,) = connection.machine_driver, cloud.servers
    record, all_ = Path(driver.console_record(VM)), "boot\r\nlogin: " * 3 + "root"
    cloud.slow = 10
    events = driver.watch()
    await anext(events)
    await driver.power(VM, PowerCommand.ON, PLAN)
    cloud.consoles[id_] = "boot\r\nlogin: "
    logs = ["boot\r\nlogin: root", "boot\r\nlogin: "]

    def heard(call: str) -> None:
        if call.endswith(f"{id_}/action") and cloud.acted[-1:] == ["reboot"]:
            cloud.acted.append("said")
            cloud.consoles[id_] = logs.pop()

    cloud.heard = heard
    await driver.power(VM, PowerCommand.RESET, PLAN)
    await driver.power(VM, PowerCommand.RESET, PLAN)
    await driver.power(VM, PowerCommand.OFF, PLAN)
    async with asyncio.timeout(30):
        while not record.exists() or record.stat().st_size < len(all_):  # noqa: ASYNC110  (a file)
            await asyncio.sleep(0.01)
    assert record.read_bytes() == all_.encode()


async def test_a_reset_that_fails_leaves_the_log_as_it_is(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    driver, (id_,) = connection.machine_driver, cloud.servers
    record = Path(driver.console_record(VM))
    await driver.power(VM, PowerCommand.ON, PLAN)
    cloud.consoles[id_] = "boot\r\nlogin: "
    cloud.fail("POST .*/action", 400, skip=1)  # the first asks for the log
    with pytest.raises(ProviderError):
        await driver.power(VM, PowerCommand.RESET, PLAN)
    cloud.consoles[id_] += "root"
    await driver.power(VM, PowerCommand.OFF, PLAN)
    async with asyncio.timeout(30):
        while not record.exists() or record.stat().st_size < 17:  # noqa: ASYNC110  (a file)
            await asyncio.sleep(0.01)
    assert record.read_bytes() == b"boot\r\nlogin: root"


async def test_a_proxy_does_not_choose_a_prime_for_the_keys_of_its_tls(
    connection: OpenStackConnection,
) -> None:
    """Each handshake would cost what that takes, on the event loop."""
    trust = await connection.machine_driver._around.api.trust()
    assert [each["name"] for each in trust.get_ciphers() if each["kea"] == "kx-dhe"] == []


async def test_a_console_is_typed_at_until_it_ends(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    async with proxy(cloud):
        stream = await connection.machine_driver.console(VM)
        assert await stream.read() == b"login: "
        await stream.write(b"root")
        assert await stream.read() == b"root"
        with pytest.raises(Gone, match="no break was sent"):  # all that BMC clients cause is that
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
        with pytest.raises(Gone, match="may not reach"):  # users see this one alone
            await connection.machine_driver.console(VM)


@asynccontextmanager
async def hostile(cloud: FakeCloud, frame: bytes, times: int) -> AsyncIterator[asyncio.Future[int]]:
    """A proxy that sends frames and reads nothing; how many it sent before it was hung up on."""
    sent: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # asyncio's type is too wide
        key = next(x.split()[1] for x in head.splitlines() if x.startswith("Sec-WebSocket-Key"))
        writer.write(
            f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {accept_key(key)}\r\n"
            "Sec-WebSocket-Protocol: binary\r\n\r\n".encode()
        )
        done = 0
        with suppress(OSError):
            while done < times:
                writer.write(frame * 100)
                await writer.drain()
                done += 100
        sent.set_result(done)
        writer.close()

    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    async with await asyncio.start_server(serve_one, sock=listening):
        cloud.serial_url = f"ws://127.0.0.1:{listening.getsockname()[1]}/"
        yield sent


async def test_a_proxy_that_pings_and_takes_no_answers_is_left(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    """Its pongs would fill the daemon's memory."""
    times = 200_000
    async with hostile(cloud, b"\x89\x7d" + b"p" * 125, times) as sent:
        stream = await connection.machine_driver.console(VM)
        assert await stream.read() == b""
        assert await sent < times
        with pytest.raises(Gone, match="input is ignored"):
            await stream.write(b"root")


async def test_a_proxy_that_sends_many_frames_leaves_others_their_turns(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    """Each piece of what it sends costs the loop a turn: hundreds of frames, not all of them."""
    times = 100_000
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with hostile(cloud, b"\x82\x00", times) as sent:
        stream = await connection.machine_driver.console(VM)
        counting = asyncio.create_task(count())  # noqa: TID251
        assert await stream.read() == b""
        assert await sent == times
        counting.cancel()
        assert turns >= times * 2 // PIECE


async def test_a_proxy_whose_name_is_not_known_does_not_answer(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    """The record of the console goes on, and the storage of the daemon has not failed."""
    cloud.serial_url = "ws://proxy.invalid/"
    with pytest.raises(HostUnreachable, match="its host name is not known"):
        await connection.machine_driver.console(VM)


async def test_tls_of_a_proxy_is_that_of_all_servers_that_others_choose(
    cloud: FakeCloud,
    connection: OpenStackConnection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that may choose a finite field has the daemon count with primes of 10,000 bits."""
    file = tmp_path / "proxy.pem"
    file.write_bytes(b"".join(self_signed("127.0.0.1", name="proxy")))
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(file)
    async with proxy(cloud, served):
        with pytest.raises(HostUnreachable, match="certificate"):
            await connection.machine_driver.console(VM)
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(file))
        stream = await connection.machine_driver.console(VM)
        assert await stream.read() == b"login: "
        await stream.close()
    trust = await connection._api.trust()
    assert {each["kea"] for each in trust.get_ciphers()} <= {"kx-ecdhe", "kx-any"}
