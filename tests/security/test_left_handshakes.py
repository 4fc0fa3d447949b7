"""Logins by IPMI that are begun and left, as who forges sources does at thousands of BMCs: 16 of
each, and what is remembered of sources, stayed until someone spoke to that BMC again, 50 KB of it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest

from nospoon.protocols.ipmi import endpoint, session
from nospoon.protocols.ipmi.endpoint import FORGOTTEN, Endpoint, Send
from nospoon.protocols.ipmi.session import HANDSHAKE_TIMEOUT, SESSION_TIMEOUT
from nospoon.runtime.udp import Peer
from nospoon.services.bmcs import rmcp
from nospoon.testing.bench import bench
from nospoon.testing.console import Console
from nospoon.testing.fuzzing import IDENTITY


def numbers() -> Callable[[int], bytes]:
    state = iter(range(1, 1 << 30))
    return lambda size: next(state).to_bytes(size, "little")


def begun(at: Endpoint, random: Callable[[int], bytes], *, logs_in: bool = False) -> None:
    """A login, of which only the beginning comes."""
    console = Console(IDENTITY.username, IDENTITY.password)
    here = Peer("192.0.2.7", 623, "127.0.0.1")
    steps: list[tuple[Callable[[], bytes], Callable[[bytes], object]]] = [
        (console.open_request, console.take_open),
        (console.rakp1, console.take_rakp2),
        (console.rakp3, console.take_rakp4),
    ]
    for ask, take in steps if logs_in else steps[:2]:
        (said,) = at.receive(ask(), here, now=0.0, random=random)
        assert isinstance(said, Send)
        take(said.data)


def test_a_login_that_is_left_and_its_source_are_forgotten() -> None:
    at, random = Endpoint(IDENTITY), numbers()
    assert not at.is_awake
    begun(at, random)
    assert at.rest(HANDSHAKE_TIMEOUT - 1)
    assert at.sessions
    assert at.rest(HANDSHAKE_TIMEOUT)
    assert not at.sessions
    assert at.rest(FORGOTTEN - 1), "allowances are not what they were yet"
    assert not at.rest(FORGOTTEN)
    assert not at.is_awake
    begun(at, random)
    assert at.sessions


def test_a_session_lasts_as_long_as_before() -> None:
    at = Endpoint(IDENTITY)
    begun(at, numbers(), logs_in=True)
    assert at.rest(SESSION_TIMEOUT - 1)
    assert at.sessions
    assert not at.rest(SESSION_TIMEOUT)


async def test_bmcs_that_no_one_speaks_to_any_more_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rmcp, "REST", 0.01)
    monkeypatch.setattr(rmcp, "AT_ONCE", 1)
    monkeypatch.setattr(session, "HANDSHAKE_TIMEOUT", 0.5)
    monkeypatch.setattr(endpoint, "FORGOTTEN", 0.5)
    async with bench(3) as b:
        places = [(each.bmc.address, each.bmc.ipmi_port) for each in b.configs]

        async def until(*, awake: int) -> None:
            """So many of the three have something to let go of."""
            async with asyncio.timeout(20):
                for _ in iter(lambda: sum(map(is_awake, places)), awake):
                    await asyncio.sleep(0.005)

        def is_awake(place: tuple[str, int]) -> bool:
            served = b.service.registry.at(place)
            assert served is not None
            return served.endpoint.is_awake

        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
            for _ in range(2):
                line.sendto(Console(b"x", b"").open_request(), places[0])
                await until(awake=1)
                await until(awake=0)
            for place in places:
                line.sendto(Console(b"x", b"").open_request(), place)
            await until(awake=3)
            await until(awake=0)
