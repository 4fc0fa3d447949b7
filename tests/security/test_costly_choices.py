"""What clients may choose, and what it costs others: URLs and datagrams."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace

import bcrypt

from nospoon.runtime.udp import UdpSocket
from nospoon.testing.bench import bench, free_port
from nospoon.testing.redfish import Client, basic, client, system_of


async def test_urls_have_at_most_8000_characters() -> None:
    async with bench(1) as b:
        line, system = client(b.first), system_of(b.first)
        long, most = (f"http://192.0.2.1/{'a' * (size - 17)}" for size in (8001, 8000))
        drive = f"{system}/VirtualMedia/Cd/Actions/VirtualMedia.InsertMedia"
        update = "/redfish/v1/UpdateService/Actions/UpdateService.SimpleUpdate"
        for path, name in ((drive, "Image"), (update, "ImageURI")):
            assert (await line.ask("POST", path, {name: long})).status == 400
            assert (await line.ask("POST", path, {name: most})).status in {202, 204}
        boot = {"Boot": {"HttpBootUri": long}}
        assert (await line.ask("PATCH", system, boot)).status == 400


class Ticks:
    """A clock that goes on by what datagrams take."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_datagrams_that_take_long_leave_others_their_turn() -> None:
    clock, turns, loop = Ticks(), [0], asyncio.get_running_loop()
    ended = asyncio.Event()

    def take(data: bytes, _peer: object) -> None:
        clock.now += 0.0015
        if not turns[-1]:
            loop.call_soon(turns.append, 0)
        turns[-1] += 1
        if data == b"last":
            ended.set()

    port = free_port(socket.SOCK_DGRAM)
    opened = UdpSocket("127.0.0.1", port, take, now=clock)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.connect(("127.0.0.1", port))
        for data in (*[b"x"] * 11, b"last"):
            line.send(data)
    async with asyncio.timeout(20):
        await ended.wait()
    opened.close()
    assert max(turns) == 2


async def test_logins_are_not_compared_with_hashes_of_other_addresses() -> None:
    """Each comparison takes up to 200 ms, and a user may have a hundred clusters."""
    broken = "$2b$99$" + "a" * 53  # bcrypt raises an error for it
    right = bcrypt.hashpw(b"right horse", bcrypt.gensalt(4)).decode()
    async with bench(2) as b:
        first, other = (replace(each, password=text)
                        for each, text in zip(b.configs, (right, broken), strict=True))  # fmt: skip
        elsewhere = replace(other.bmc, redfish_port=free_port(socket.SOCK_STREAM))
        await b.service.put(first)
        await b.service.put(replace(other, bmc=elsewhere))
        for password, status in (("wrong", 401), ("right horse", 200)):
            asked = Client(first, basic(first, password))
            assert (await asked.get(system_of(first))).status == status
