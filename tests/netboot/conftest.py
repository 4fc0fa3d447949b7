"""Bridges, taps and services of these tests' own; everything is removed again."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from nospoon.model.cluster import Arch
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.netboot import NetbootService, Reservation
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.probe.build import Probe, build
from nospoon.probe.grub import find_grub
from nospoon.services.netboot.driver import NetbootDriver
from nospoon.services.netboot.http import create_app
from nospoon.services.netboot.peers import Peers
from nospoon.services.netboot.serving import HttpListeners
from nospoon.testing.bench import free_port
from nospoon.testing.free_nets import free_net
from nospoon.testing.netboot import ToldAuthority
from nospoon.testing.rack import CACHE
from nospoon.testing.trees import remove_tree

NAMES = (f"{os.getpid():x}{number:x}" for number in itertools.count())


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@dataclass(frozen=True, slots=True)
class Bridge:
    """A bridge with an address in a /24 of its own, and a tap on it."""

    name: str
    tap: str
    net: str

    def host(self, number: int) -> str:
        return f"{self.net}.{number}"

    def shape(self, *reservations: Reservation) -> NetbootService:
        return NetbootService(
            bridge=self.name,
            address=f"{self.host(1)}/24",
            range=(self.host(100), self.host(150)),
            reservations=reservations,
        )


@pytest.fixture
def bridge() -> Iterator[Bridge]:
    name = next(NAMES)
    made = Bridge(f"nsb{name}", f"nst{name}", free_net())
    ip("link", "add", made.name, "type", "bridge")
    try:
        ip("addr", "add", f"{made.host(1)}/24", "dev", made.name)
        ip("link", "set", made.name, "up")
        ip("tuntap", "add", made.tap, "mode", "tap")
        ip("link", "set", made.tap, "master", made.name, "up")
        yield made
    finally:
        for link in (made.tap, made.name):
            subprocess.run(["ip", "link", "del", link], check=False, capture_output=True)


@pytest.fixture
def state() -> Iterator[Path]:
    """A directory that nobody can enter, which pytest's own are not."""
    path = Path(tempfile.mkdtemp(prefix="nospoon-netboot-"))
    path.chmod(0o755)
    yield path
    remove_tree(path)


@pytest.fixture
def authority() -> ToldAuthority:
    return ToldAuthority()


@pytest.fixture
def peers() -> Peers:
    """Guests in user mode run as nobody."""
    return Peers(lambda _: 65534)


@pytest.fixture
async def driver(
    state: Path, authority: ToldAuthority, peers: Peers
) -> AsyncIterator[NetbootDriver]:
    made = NetbootDriver(
        state=state,
        deployment="test",
        http=HttpListeners(
            create_app(authority, peers, ready=lambda: True), port=free_port(socket.SOCK_STREAM)
        ),
        authority=authority,
        peers=peers,
        find_grub=partial(find_grub, CACHE),
    )
    cluster = TAG.cluster
    yield made
    for observed in await made.observe(cluster):
        await made.delete(observed)
    await made.close()


TAG = OwnerTag("test", uuid4(), 1, "t")


@pytest.fixture
def tag() -> OwnerTag:
    return TAG


@pytest.fixture
def service(bridge: Bridge) -> Resource:
    return Resource(Key(Kind.NETBOOT, "here", "provision"), bridge.shape())


@pytest.fixture(scope="session")
def probe() -> Probe:
    """The probe, kept between runs: building it takes ten seconds and 70 MB of downloads."""
    return asyncio.run(build(CACHE, arch=Arch.X86_64))


@pytest.fixture
async def url(authority: ToldAuthority, peers: Peers) -> AsyncIterator[str]:
    """A server on loopback, by the address that guests know it by."""
    listeners = HttpListeners(create_app(authority, peers, ready=lambda: True), port=0)
    await listeners.open("127.0.0.1")
    yield f"http://10.0.2.2:{listeners.port}"
    await listeners.close_all()
