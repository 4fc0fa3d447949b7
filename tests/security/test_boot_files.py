"""What a machine boots is told to that machine and to nobody else: command lines have secrets."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from starlette.types import ASGIApp, Message
from structlog.testing import capture_logs

from nospoon.control.fleet.authority import Authority, Bootable
from nospoon.model.boot import BootDevice, BootPlan
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.netboot import NetbootService, Reservation
from nospoon.model.resources.tags import OwnerTag
from nospoon.runtime.local_peers import TABLES, socket_in, user_of, written
from nospoon.runtime.log_rate import LINES
from nospoon.runtime.socket_diag import ESTABLISHED, Found, find
from nospoon.services.netboot.http import create_app
from nospoon.services.netboot.peers import Peers
from nospoon.services.netboot.ports import BootAnswer, ServedFile, ServedProfile
from nospoon.services.netboot.tree import Saved, Tree
from nospoon.testing.netboot import TOKEN, ToldAuthority, peers_of
from nospoon.testing.probed import MACHINE, body

NODE, OTHER = MACHINE.uuid, UUID("99999999-2222-3333-4444-555555555555")
HERE, ITS_OWN = "172.31.0.1", "172.31.0.20"
OWNERS_PORT, STRANGERS_PORT, DAEMONS_PORT = 1000, 1001, 1002
USERS = {OWNERS_PORT: 1000, STRANGERS_PORT: 1001, DAEMONS_PORT: os.geteuid()}


async def ask(
    app: ASGIApp, path: str, peer: tuple[str, int], *, method: str = "GET", here: str = HERE
) -> tuple[int, bytes]:
    said: list[Message] = []
    content = body() if method == "POST" else b""

    async def receive() -> Message:
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: Message) -> None:
        said.append(message)

    scope: dict[str, Any] = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.4"},
        "method": method, "path": path,
        "raw_path": path.encode(), "root_path": "", "query_string": b"", "headers": [],
        "scheme": "http", "server": (here, 8069), "client": peer, "http_version": "1.1",
    }  # fmt: skip
    await app(scope, receive, send)
    return said[0]["status"], b"".join(each.get("body", b"") for each in said[1:])


@pytest.fixture
def authority(tmp_path: Path) -> ToldAuthority:
    (tmp_path / "k").write_bytes(b"kernel")
    told = ToldAuthority()
    kernel = ServedFile(str(tmp_path / "k"), "kernel")
    profile = ServedProfile("p", kernel, (), "password=secret")
    told.answers[NODE] = BootAnswer(NODE, BootDevice.NETWORK, profile)
    told.macs["02:00:00:00:00:01"] = NODE
    return told


@pytest.fixture
def app(authority: ToldAuthority) -> ASGIApp:
    return create_app(authority, peers_of(NODE, ITS_OWN, users=USERS), ready=lambda: True)


PATHS = (
    f"/boot/{NODE}/ipxe",
    f"/boot/{NODE}/grub",
    "/boot/mac/02:00:00:00:00:01/ipxe",
    f"/files/{NODE}/kernel",
)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("peer", "here", "status"),
    [
        ((ITS_OWN, 1), HERE, 200),
        (("172.31.0.21", 1), HERE, 404),  # another guest of its network
        ((ITS_OWN, 1), "172.31.9.1", 404),  # the same address on another network
        (("192.0.2.1", 1), HERE, 404),
        (("127.0.0.1", OWNERS_PORT), "127.0.0.1", 200),
        (("127.0.0.1", DAEMONS_PORT), "127.0.0.1", 200),
        (("127.0.0.1", STRANGERS_PORT), "127.0.0.1", 404),
        ((HERE, STRANGERS_PORT), HERE, 404),  # a local user who asks at the bridge
        ((HERE, OWNERS_PORT), HERE, 200),
    ],
)
async def test_only_the_machine_and_its_owner_are_told(
    app: ASGIApp,
    authority: ToldAuthority,
    path: str,
    peer: tuple[str, int],
    here: str,
    status: int,
) -> None:
    got, said = await ask(app, path, peer, here=here)
    assert got == status
    assert (b"secret" in said) == (status == 200 and path.startswith("/boot"))
    assert authority.boots == ([NODE] if got == 200 and path.startswith("/boot") else [])


@pytest.mark.parametrize("peer", [("172.31.0.21", 1), (ITS_OWN, 1)], ids=["another", "itself"])
async def test_who_asks_again_and_again_writes_few_lines(
    app: ASGIApp, peer: tuple[str, int]
) -> None:
    with capture_logs() as logs:
        for _ in range(10 * LINES):
            await ask(app, PATHS[0], peer)
    assert len(logs) <= LINES


@pytest.mark.parametrize("path", PATHS[:3])
async def test_a_look_at_the_head_uses_up_no_boot(
    app: ASGIApp, authority: ToldAuthority, path: str
) -> None:
    assert (await ask(app, path, (ITS_OWN, 1), method="HEAD"))[0] == 200
    assert authority.boots == []


async def test_a_probe_s_report_needs_its_token_and_is_taken_once(
    app: ASGIApp, authority: ToldAuthority
) -> None:
    for wrong in (f"/probe/{NODE}/guessed", f"/probe/{NODE}/", f"/probe/{NODE}"):
        assert (await ask(app, wrong, (ITS_OWN, 1), method="POST"))[0] == 404
    right = f"/probe/{NODE}/{TOKEN}"
    assert (await ask(app, right, (ITS_OWN, 1), method="POST"))[0] == 204
    assert (await ask(app, right, (ITS_OWN, 1), method="POST"))[0] == 404
    assert len(authority.reports) == 1


async def test_a_token_holds_for_one_probe() -> None:
    async def observed(uuid: UUID) -> None:
        del uuid

    made = Authority(lambda _: BootPlan((), ()), lambda _: "", observed)
    made.put(Bootable(MACHINE))
    profile = ServedProfile("probe", "http://k", (), "")
    assert not made.awaits(NODE, "")
    reported = made.probe(NODE, profile, "first")
    assert made.awaits(NODE, "first")
    assert not made.awaits(NODE, "")
    await made.reported(NODE, {})
    assert reported.done()
    assert not made.awaits(NODE, "first")
    made.end_probe(NODE)
    made.probe(NODE, profile, "second")
    assert not made.awaits(NODE, "first")
    made.end_probe(NODE)
    assert not made.awaits(NODE, "second")


def test_ipv6_guests_have_several_addresses() -> None:
    reserved = Reservation("02:00:00:00:00:01", "", "n", NODE, address6="fd00::20")
    shape = NetbootService("br0", "", ("", ""), (reserved,), address6="fd00::1/64")
    peers = Peers(lambda _: 1000, lambda *_: None)
    key = Key(Kind.NETBOOT, "here", "n")
    peers.serve(OTHER, key, shape)
    for address in ("fd00::20", "fd00::1:0:20", "fd00::ff:fe00:1"):
        assert peers.may_ask(NODE, peer=(address, 1), here=("fd00::1", 2)), address
    assert not peers.may_ask(NODE, peer=("fd00::21", 1), here=("fd00::1", 2))
    assert not peers.may_ask(OTHER, peer=("fd00::20", 1), here=("fd00::1", 2))
    peers.leave(OTHER, key)
    assert not peers.may_ask(NODE, peer=("fd00::20", 1), here=("fd00::1", 2))


@pytest.fixture
def tables() -> Iterator[dict[int, Path]]:
    """The kernel's tables, which are as they were afterwards."""
    before = dict(TABLES)
    yield TABLES
    TABLES.update(before)


ASKS = "import socket, sys; s = socket.create_connection((sys.argv[1], sys.argv[2])); s.recv(1)"


@pytest.mark.parametrize(
    ("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
)
def test_the_kernel_tells_whose_a_connection_is(family: int, address: str) -> None:
    with socket.socket(family) as listener:
        listener.bind((address, 0))
        listener.listen()
        here = listener.getsockname()[:2]
        with subprocess.Popen([sys.executable, "-c", ASKS, address, str(here[1])]):
            taken, peer = listener.accept()
            with taken:
                assert user_of(peer[:2], here) == os.getuid()
        assert user_of((address, 1), here) is None


def test_sockets_of_others_are_not_read_through(tmp_path: Path, tables: dict[int, Path]) -> None:
    """A guest with user-mode networking opens thousands, and asks again and again."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        here = listener.getsockname()
        with subprocess.Popen([sys.executable, "-c", ASKS, here[0], str(here[1])]):
            taken, peer = listener.accept()
            with taken:
                tables[4] = tmp_path / "nothing is read"
                assert user_of(peer, here) == os.getuid()


def test_a_socket_is_found_by_its_ends() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        here = listener.getsockname()
        with socket.create_connection(here) as caller:
            peer = caller.getsockname()
            taken, _ = listener.accept()
            with taken:
                assert find(peer, here) == Found(
                    ESTABLISHED, os.getuid(), os.fstat(caller.fileno()).st_ino
                )
                assert find(here, peer) == Found(
                    ESTABLISHED, os.getuid(), os.fstat(taken.fileno()).st_ino
                )
        assert find(("127.0.0.1", 1), here) is None  # though one listens there


def test_the_daemon_is_told_nothing_when_it_asks_itself() -> None:
    """A member's `kernel:` that names another's boot script is fetched by the daemon, as root."""
    peers = Peers(lambda _: os.getuid())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        here = listener.getsockname()
        with socket.create_connection(here) as caller:
            peer = caller.getsockname()
            with TABLES[4].open() as table:
                found = socket_in(table, peer, here)
            assert found is not None
            assert found[0] == os.getuid()
            assert user_of(peer, here) is None
            assert not peers.may_ask(NODE, peer=peer, here=here)
        taken, _ = listener.accept()
        with taken, TABLES[4].open() as table:  # the caller has closed it
            assert socket_in(table, peer, here) is None


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("0: 0100007F:1F90 0100007F:0016 01 0:0 00:0 0 1001 0 7 1", (1001, 7)),
        ("0: 0100007F:1F90 0100007F:0016 01 0:0 00:0 0 0 0 0 1", None),  # closed by its process
        ("0: 0100007F:1F90 0100007F:0016 05 0:0 00:0 0 1001 0 7 1", None),  # FIN_WAIT2
        ("0: 0100007F:0016 0100007F:1F90 01 0:0 00:0 0 1001 0 7 1", None),  # the other end
        ("x", None),
    ],
)
def test_only_an_established_socket_of_a_process_has_a_user(
    line: str, found: tuple[int, int] | None
) -> None:
    assert written(("127.0.0.1", 8080)) == "0100007F:1F90"
    assert socket_in([line], ("127.0.0.1", 8080), ("127.0.0.1", 22)) == found


def test_root_as_such_is_told_nothing_of_another_s_machines() -> None:
    """Root's daemon may be who asks the daemon of a user."""
    other = os.geteuid() + 1
    peers = Peers(lambda _: other, lambda *_: 0)
    told = peers.may_ask(NODE, peer=("127.0.0.1", 1), here=("127.0.0.1", 2))
    assert told == (os.geteuid() == 0)


def test_only_dnsmasq_may_enter_a_service_s_directory(tmp_path: Path) -> None:
    tree = Tree(tmp_path / str(uuid4()) / "here@provision")
    shape = NetbootService("br0", "172.31.0.1/24", ("", ""), ())
    tree.directory.mkdir(parents=True, mode=0o755)  # as earlier versions left it
    tree.directory.chmod(0o755)
    tree.save(Saved(Key(Kind.NETBOOT, "here", "n"), replace(shape), OwnerTag("d", OTHER)))
    mode = stat.S_IMODE(tree.directory.stat().st_mode)
    assert mode & stat.S_IRWXO == 0
    assert mode & stat.S_IWGRP == 0
