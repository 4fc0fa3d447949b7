"""What BMC clients may have the daemon connect to: no service of this host, nothing but HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import io
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from nospoon.control.content.fetch import Access, Terms, Transfer, download
from nospoon.errors import ProviderError, Unfetchable, UsageError
from nospoon.runtime import reach as reaching
from nospoon.runtime.http import request
from nospoon.runtime.reach import Reach, places_of
from nospoon.services.netboot.serving import HttpListeners
from nospoon.settings import settings_for
from nospoon.testing.certificates import written

CLIENT = Terms(reach=Reach())
LOOPBACK = Terms(reach=Reach((ip_network("127.0.0.1/32"),)))


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.8.8", "0.0.0.0", "0.1.2.3", "169.254.169.254", "224.0.0.1",
        "239.1.1.1", "255.255.255.255", "240.0.0.1", "100.100.100.200", "168.63.129.16",
        "::1", "::", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "fd00:ec2::254",
        "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::7f00:1",
        "2002:7f00:1::", "2002:a9fe:a9fe::1", "192.0.0.8", "192.0.0.170", "192.88.99.1",
        "::ffff:0:127.0.0.1", "::ffff:0:10.0.0.1", "64:ff9b:1::7f00:1", "100::1", "100:0:0:1::1",
        "2001:1::1", "2001:1::2", "5f00::1",
    ],
)  # fmt: skip
def test_special_addresses_are_out_of_reach(address: str) -> None:
    assert not Reach().allows(address)
    assert Reach(anywhere=True).allows(address)


@pytest.mark.parametrize(
    "address",
    [
        "192.0.2.1",
        "10.0.0.1",
        "192.168.122.1",
        "fd00::1",
        "2001:db8::1",
        "8.8.8.8",
        "100.64.0.1",
        "198.18.0.1",
        "64:ff9b::808:808",
    ],
)
def test_private_and_public_addresses_are_within_reach(address: str) -> None:
    assert Reach().allows(address)


def test_the_setting_opens_networks() -> None:
    given = {"NOSPOON_MEDIA_NETWORKS": "127.0.0.0/8, ::1", "HOME": "/tmp"}
    opened = Reach(settings_for(given, uid=1000).media_networks)
    assert opened.allows("127.0.0.1")
    assert opened.allows("::ffff:127.0.0.1")
    assert opened.allows("::1")
    assert not opened.allows("169.254.169.254")
    with pytest.raises(UsageError, match="NOSPOON_MEDIA_NETWORKS: expected networks"):
        settings_for({"NOSPOON_MEDIA_NETWORKS": "everything", "HOME": "/tmp"}, uid=1000)


@asynccontextmanager
async def answering(
    answer: bytes, context: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A port that answers so, and what it was asked."""
    asked: list[bytes] = []
    ended: list[asyncio.Event] = []

    async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ended.append(mine := asyncio.Event())
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        mine.set()

    server = await asyncio.start_server(answered, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1], asked
        for each in ended:
            await each.wait()


async def fetched(url: str, terms: Terms) -> bytes:
    content = io.BytesIO()
    await asyncio.to_thread(download, url, Access(), content, Transfer(), terms)
    return content.getvalue()


WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndisc"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "0"])
async def test_loopback_is_refused_however_it_is_written(host: str) -> None:
    async with answering(WHOLE) as (port, asked):
        with pytest.raises(Unfetchable, match=r"where a BMC may not reach"):
            await fetched(f"http://{host}:{port}/", CLIENT)
        assert asked == []
        assert await fetched(f"http://127.0.0.1:{port}/", LOOPBACK) == b"disc"


@pytest.mark.parametrize(
    "target", ["ftp://127.0.0.1/", "file:///etc/passwd", "data:text/plain,disc", "gopher://x/"]
)
async def test_a_redirect_to_another_scheme_is_refused(target: str) -> None:
    moved = f"HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n".encode()
    async with answering(moved) as (port, _):
        for terms in (LOOPBACK, Terms()):
            with pytest.raises(ProviderError):
                await fetched(f"http://127.0.0.1:{port}/", terms)


async def test_each_redirect_is_judged_again_and_their_number_is_bounded() -> None:
    async with answering(WHOLE) as (inner, asked):
        location = f"http://127.0.0.2:{inner}/"
        moved = f"HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"
        async with answering(moved.encode()) as (port, _):
            with pytest.raises(Unfetchable, match=r"127\.0\.0\.2, where a BMC may not reach"):
                await fetched(f"http://127.0.0.1:{port}/", LOOPBACK)
        assert asked == []
    around = b"HTTP/1.1 302 Found\r\nLocation: /more/\r\nContent-Length: 0\r\n\r\n"
    async with answering(around) as (port, asked):
        with pytest.raises(Unfetchable):
            await fetched(f"http://127.0.0.1:{port}/", LOOPBACK)
        assert len(asked) <= 6


async def test_what_was_judged_is_what_is_connected_to() -> None:
    """A name is resolved once: its second answer would be another (DNS rebinding)."""
    allowed = Reach((ip_network("127.0.0.1/32"),))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        found = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.5", port)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)),
        ]
        kept: Any = reaching._allowed("two.example", found, allowed)
        assert [each[4][0] for each in kept] == ["127.0.0.1"]
        with reaching.dial("127.0.0.1", port, allowed, 5.0) as line:
            assert line.getpeername() == ("127.0.0.1", port)


async def test_the_daemons_own_boot_files_are_never_connected_to() -> None:
    """Wherever else an owner's URLs may lead."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError(scope, receive, send)

    listeners = HttpListeners(app, port=0)
    await listeners.open("127.0.0.1")
    try:
        for reach in (Reach(anywhere=True), Reach((ip_network("127.0.0.0/8"),))):
            closed = replace(reach, closed=listeners.serves)
            for host in ("127.0.0.1", "::ffff:127.0.0.1"):
                await places_of(host, listeners.port + 1, closed)
                with pytest.raises(Unfetchable, match="may not reach"):
                    await places_of(host, listeners.port, closed)
    finally:
        await listeners.close_all()


async def test_tls_keeps_the_name_of_the_url(tmp_path: Path) -> None:
    """SNI and the check of the certificate go by the URL, not by the address."""
    names: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*written(tmp_path, "localhost"))
    context.sni_callback = lambda _, name, __: names.append(name)

    async with answering(WHOLE, context) as (port, asked):
        url = f"https://localhost:{port}/"
        content, access = io.BytesIO(), Access(verify=False)
        await asyncio.to_thread(download, url, access, content, Transfer(), LOOPBACK)
        with pytest.raises(Unfetchable, match="its certificate is not trusted"):
            await fetched(url, LOOPBACK)
    assert content.getvalue() == b"disc"
    assert names[0] == "localhost"
    assert f"Host: localhost:{port}".encode() in asked[0]


async def test_destinations_of_events_are_judged_too() -> None:
    async with answering(WHOLE) as (port, asked):
        with pytest.raises(ProviderError, match="where a BMC may not reach"):
            await request(
                "POST", f"http://localhost:{port}/", verify=True, patience=5, reach=Reach()
            )
        assert asked == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("length", ["", "Content-Length: 99999999999999\r\n"])
async def test_of_a_redirect_nothing_but_its_head_is_read(status: int, length: str) -> None:
    """urllib read the rest into memory: one client took a gigabyte in 20 s."""
    sent, closed = [0], asyncio.Event()

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        with contextlib.suppress(OSError):
            writer.write(f"HTTP/1.1 {status} Go\r\nLocation: {there}\r\n{length}\r\n".encode())
            while sent[0] < 64 << 20:
                writer.write(bytes(1 << 16))
                await writer.drain()
                sent[0] += 1 << 16
        writer.close()
        closed.set()

    async with answering(WHOLE) as (port, _):
        there = f"http://127.0.0.1:{port}/disc.iso"
        server = await asyncio.start_server(endless, "127.0.0.1", 0)
        async with server, asyncio.timeout(20):
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
            assert await fetched(url, LOOPBACK) == b"disc"
            await closed.wait()
    assert sent[0] < 16 << 20
