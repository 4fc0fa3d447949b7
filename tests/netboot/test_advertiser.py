"""Answers to router solicitations on a bridge whose guests send as fast as they can."""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import subprocess
import termios
from collections.abc import Iterator

import pytest
from tests.netboot.test_advertisement import SOLICITATION

from nospoon.protocols.ipxe.advertisement import ADVERTISEMENT, ETHERTYPE
from nospoon.services.netboot.serving import Advertiser
from nospoon.testing.own_network import own_network

pytestmark = pytest.mark.tools
BRIDGE, PORT, GUEST = "br0", "port", "guest"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def guest() -> Iterator[socket.socket]:
    """A guest's NIC on a bridge, in a network without anything else that speaks IPv6."""
    with own_network():
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("link", "add", PORT, "master", BRIDGE, "type", "veth", "peer", "name", GUEST)
        for each in (BRIDGE, PORT, GUEST):
            ip("link", "set", each, "addrgenmode", "none", "up")
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE)) as nic:
            nic.bind((GUEST, ETHERTYPE))
            nic.setblocking(False)  # noqa: FBT003  (socket's own signature)
            yield nic


async def next_answer(guest: socket.socket) -> bytes:
    async with asyncio.timeout(60):
        while True:
            frame = await asyncio.get_running_loop().sock_recv(guest, 2048)
            if frame[54] == ADVERTISEMENT:
                return frame


def unread(sock: socket.socket) -> int:
    (amount,) = struct.unpack("i", fcntl.ioctl(sock, termios.FIONREAD, bytes(4)))
    return int(amount)


async def test_one_answer_serves_all_who_ask_meanwhile(guest: socket.socket) -> None:
    advertiser = Advertiser(BRIDGE, pause=3600)
    advertiser.start()
    try:
        guest.send(SOLICITATION)
        await next_answer(guest)
        for _ in range(3):
            guest.send(SOLICITATION)
        opened = advertiser._socket
        assert opened is not None
        await asyncio.sleep(0)
        assert unread(opened) > 0, "it is not read for now"
        advertiser._listen()
        assert await next_answer(guest), "who asked meanwhile hears one, too"
    finally:
        await advertiser.close()


async def test_only_solicitations_reach_the_daemon(guest: socket.socket) -> None:
    advertiser = Advertiser(BRIDGE)
    others = (
        SOLICITATION[:20] + b"\x11" + SOLICITATION[21:],  # UDP
        SOLICITATION[:21] + b"\x40" + SOLICITATION[22:],  # which crossed a router
        SOLICITATION[:54] + b"\x88" + SOLICITATION[55:],  # neighbor advertisement
        SOLICITATION[:60],
    )
    with advertiser._opened() as opened:
        for each in (*others, SOLICITATION, *others):
            guest.send(each)
        assert opened.recv(2048) == SOLICITATION
        with pytest.raises(BlockingIOError):
            opened.recv(2048)
