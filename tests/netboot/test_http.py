"""The boot application, spoken to as a server speaks to it (ASGI), and once over TCP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.types import ASGIApp, Message

from nospoon.errors import ProviderError
from nospoon.model.boot import BootDevice
from nospoon.services.netboot.bodies import MAX_REPORT
from nospoon.services.netboot.http import MOST_SENT, create_app
from nospoon.services.netboot.ports import BootAnswer, ServedFile, ServedProfile
from nospoon.services.netboot.serving import HttpListeners
from nospoon.testing.netboot import TOKEN, ToldAuthority, peers_of
from nospoon.testing.probed import FOUND, MACHINE, body

STRANGER = UUID("99999999-2222-3333-4444-555555555555")
NODE = MACHINE.uuid
MAC = "02:00:00:00:00:01"
PEERS = peers_of(NODE, "172.31.0.20")
Taken = Callable[[], Awaitable[None]]


@dataclass
class Reply:
    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    content: bytes = b""

    @property
    def text(self) -> str:
        return self.content.decode()


async def ask(
    app: ASGIApp,
    path: str,
    *,
    method: str = "GET",
    content: bytes = b"",
    headers: dict[str, str] | None = None,
    server: tuple[str, int] = ("172.31.0.1", 8069),
    client: str | None = "172.31.0.20",
    taken: Taken | None = None,
) -> Reply:
    """`taken`: before each piece of the answer; `client`: none for one behind a relay."""
    reply = Reply()
    pieces = [content[at : at + 65536] for at in range(0, len(content), 65536)] or [b""]
    waiting: list[Message] = [
        {"type": "http.request", "body": piece, "more_body": piece is not pieces[-1]}
        for piece in pieces
    ]

    async def receive() -> Message:
        return waiting.pop(0) if waiting else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            reply.status, reply.headers = message["status"], dict(message["headers"])
        else:
            if taken is not None:
                await taken()
            reply.content += message.get("body", b"")

    raw = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": raw,
        "scheme": "http",
        "server": server,
        "client": (client, 1) if client else None,
        "http_version": "1.1",
    }
    await app(scope, receive, send)
    return reply


@pytest.fixture
def profile(tmp_path: Path) -> ServedProfile:
    (tmp_path / "k").write_bytes(bytes(range(256)))
    kernel = ServedFile(str(tmp_path / "k"), "vm linuz")
    return ServedProfile("p", kernel, (ServedFile(str(tmp_path / "gone"), "initrd"),), "quiet")


@pytest.fixture
def app(authority: ToldAuthority, profile: ServedProfile) -> ASGIApp:
    authority.answers[NODE] = BootAnswer(NODE, BootDevice.NETWORK, profile)
    authority.macs[MAC] = NODE
    return create_app(authority, PEERS, ready=lambda: True)


@pytest.mark.parametrize(
    "path", [f"/boot/{NODE}/ipxe", f"/boot/{str(NODE).upper()}/ipxe", f"/boot/mac/{MAC}/ipxe"]
)
async def test_a_machine_is_told_what_to_boot(
    app: ASGIApp, authority: ToldAuthority, path: str
) -> None:
    reply = await ask(app, path)
    assert reply.status == 200
    assert reply.text.startswith("#!ipxe\n")
    assert f"http://172.31.0.1:8069/files/{NODE}/vm%20linuz" in reply.text
    assert authority.boots == [NODE]


async def test_macs_may_have_dashes(app: ASGIApp) -> None:
    assert (await ask(app, f"/boot/mac/{MAC.replace(':', '-')}/ipxe")).status == 200


async def test_grub_gets_places_of_its_own_kind(app: ASGIApp) -> None:
    reply = await ask(app, f"/boot/{NODE}/grub")
    assert f"'(http,172.31.0.1:8069)/files/{NODE}/vm%20linuz'" in reply.text


SECRET = UUID("77777777-2222-3333-4444-555555555555")


async def test_what_starts_from_the_network_of_a_relay_gets_its_profile_or_nothing(
    app: ASGIApp, authority: ToldAuthority, profile: ServedProfile
) -> None:
    """Never the network again, where it comes from; and that it asks uses up no boot."""
    disk = BootAnswer(NODE, BootDevice.DISK, profile, secret=SECRET, boot_image=True)
    authority.answers[SECRET] = replace(disk, after=(replace(disk, device=BootDevice.NETWORK),))
    reply = await ask(app, f"/boot/{SECRET}/network", client=None)
    assert f"${{base}}/files/{SECRET}/vm%20linuz" in reply.text
    for device in BootDevice:
        authority.answers[SECRET] = replace(disk, device=device, profile=None)
        reply = await ask(app, f"/boot/{SECRET}/network", client=None)
        assert "echo nospoon: nothing to boot from the network" in reply.text
        assert "autoboot" not in reply.text
    assert authority.boots == []
    for path in (f"/boot/{NODE}/network", f"/boot/mac/{MAC}/network"):
        assert (await ask(app, path)).status == 404, "it has no boot image"
        assert (await ask(app, path, client=None)).status == 404


@pytest.mark.parametrize(("user_mode", "ours"), [(True, "10.0.2.2"), (False, "127.0.0.1")])
async def test_only_guests_with_user_mode_networking_know_us_by_slirp_s_address(
    app: ASGIApp, authority: ToldAuthority, ours: str, *, user_mode: bool
) -> None:
    authority.answers[NODE] = replace(authority.answers[NODE], user_mode=user_mode)
    reply = await ask(app, f"/boot/{NODE}/ipxe", server=("127.0.0.1", 8069), client="127.0.0.1")
    assert f"http://{ours}:8069/files/" in reply.text


@pytest.mark.parametrize(
    "path",
    [
        f"/boot/{STRANGER}/ipxe",
        "/boot/11111111/ipxe",
        "/boot/not-a-uuid/ipxe",
        f"/boot/{NODE.hex}/ipxe",
        "/boot/mac/02:00:00:00:00:77/ipxe",
        "/boot/mac/garbage/ipxe",
        f"/boot/{NODE}/lilo",
        f"/files/{NODE}/other",
        f"/files/{NODE}/initrd",
        f"/files/{STRANGER}/kernel",
        f"/files/{NODE}/..%2f..%2fetc%2fpasswd",
        f"/files/{NODE}/../../etc/passwd",
        "/",
        "/nothing",
    ],
)
async def test_what_is_not_offered_is_not_found(
    app: ASGIApp, authority: ToldAuthority, path: str
) -> None:
    assert (await ask(app, path)).status == 404
    assert authority.boots == []


@given(st.text(max_size=30))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_garbage_names_are_not_found(text: str) -> None:
    app = create_app(ToldAuthority(), PEERS, ready=lambda: True)
    reply = asyncio.run(ask(app, f"/boot/{text}/ipxe"))
    assert reply.status == 404


async def test_a_file_is_served_whole_and_in_part(app: ASGIApp) -> None:
    whole = await ask(app, f"/files/{NODE}/vm linuz")
    assert (whole.status, whole.content) == (200, bytes(range(256)))
    part = await ask(app, f"/files/{NODE}/vm linuz", headers={"Range": "bytes=10-19"})
    assert (part.status, part.content) == (206, bytes(range(10, 20)))
    beyond = await ask(app, f"/files/{NODE}/vm linuz", headers={"Range": "bytes=999-"})
    assert beyond.status == 416


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", f"/boot/{NODE}/ipxe"),
        ("GET", f"/files/{NODE}/k"),
        ("POST", f"/probe/{NODE}/{TOKEN}"),
    ],
)
async def test_before_the_daemon_knows_its_machines_it_asks_for_patience(
    authority: ToldAuthority, method: str, path: str
) -> None:
    app = create_app(authority, PEERS, ready=lambda: False)
    reply = await ask(app, path, method=method)
    assert (reply.status, reply.headers[b"Retry-After"]) == (503, b"2")
    assert reply.text.startswith("# nospoon is starting")


class FullStore(ToldAuthority):
    """Cannot note a boot."""

    async def booted(self, uuid: UUID) -> None:
        raise ProviderError(f"the store is full: {uuid}")


async def test_a_boot_that_cannot_be_noted_is_not_answered() -> None:
    authority = FullStore()
    authority.answers[NODE] = BootAnswer(NODE, BootDevice.DISK)
    reply = await ask(create_app(authority, PEERS, ready=lambda: True), f"/boot/{NODE}/ipxe")
    assert (reply.status, "the store is full" in reply.text) == (503, True)


async def test_the_probe_s_record_is_passed_on(app: ASGIApp, authority: ToldAuthority) -> None:
    reply = await ask(app, f"/probe/{NODE}/{TOKEN}", method="POST", content=body())
    assert reply.status == 204
    ((uuid, record),) = authority.reports
    assert uuid == NODE
    assert json.loads(json.dumps(record)) == FOUND


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 400),
        (b"\xff\x00", 400),
        (b"[]", 400),
        (body(uuid=str(STRANGER)), 400),
        (body(cpus="two"), 400),
        (b"{" + b" " * MAX_REPORT, 413),
    ],
)
async def test_what_is_no_record_of_this_machine_is_refused(
    app: ASGIApp, authority: ToldAuthority, content: bytes, status: int
) -> None:
    reply = await ask(app, f"/probe/{NODE}/{TOKEN}", method="POST", content=content)
    assert reply.status == status
    assert authority.reports == []


async def test_a_record_of_a_stranger_is_not_found(app: ASGIApp) -> None:
    assert (
        await ask(app, f"/probe/{STRANGER}/{TOKEN}", method="POST", content=body())
    ).status == 404


async def test_header_names_reach_the_wire_as_grub_knows_them(app: ASGIApp) -> None:
    listeners = HttpListeners(app, port=0)
    await listeners.open("127.0.0.1")
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", listeners.port)
        writer.write(f"GET /boot/{NODE}/grub HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        writer.close()
        await writer.wait_closed()
    finally:
        await listeners.close_all()
    assert b"\r\nContent-Length: " in head


async def test_an_address_is_opened_once_and_closed_once(app: ASGIApp) -> None:
    listeners = HttpListeners(app, port=0)
    await listeners.open("127.0.0.1")
    await listeners.open("127.0.0.1")
    await listeners.close("127.0.0.1")
    await listeners.close("127.0.0.1")
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", listeners.port)


async def test_the_boot_image_knows_us_by_its_own_url(
    app: ASGIApp, authority: ToldAuthority
) -> None:
    answer = authority.answers[NODE]
    disk = BootAnswer(NODE, BootDevice.DISK)
    authority.answers[NODE] = replace(answer, boot_image=True, after=(disk,))
    text = (await ask(app, f"/boot/{NODE}/ipxe")).text
    assert f"kernel --name kernel ${{base}}/files/{NODE}/vm%20linuz" in text
    assert text.index("boot p") < text.index("boot the disk")


async def test_a_machine_leaves_the_boot_image_for_its_disk_alone(
    app: ASGIApp, authority: ToldAuthority
) -> None:
    answer = authority.answers[NODE]
    assert (await ask(app, f"/boot/{NODE}/disk")).status == 404
    disk = BootAnswer(NODE, BootDevice.DISK)
    authority.answers[NODE] = replace(answer, boot_image=True, after=(disk,), starts_disk=True)
    assert f"${{base}}/boot/{NODE}/disk" in (await ask(app, f"/boot/{NODE}/ipxe")).text
    assert (await ask(app, f"/boot/{NODE}/disk", method="HEAD")).status == 200
    assert authority.left == []
    assert (await ask(app, f"/boot/{NODE}/disk")).text.startswith("#!ipxe")
    assert (await ask(app, f"/boot/{NODE}/disk", client="192.0.2.99")).status == 404
    assert authority.left == [NODE]


async def test_a_machine_behind_a_relay_has_few_files_sent_at_a_time(
    authority: ToldAuthority, profile: ServedProfile
) -> None:
    """It may take none, and all machines there share the relay's connections."""
    other = UUID(int=7)
    for each in (NODE, other):
        authority.answers[each] = BootAnswer(each, BootDevice.NETWORK, profile, secret=each)
    app = create_app(authority, PEERS, ready=lambda: True)
    going, begun = asyncio.Event(), asyncio.Semaphore(0)

    async def taken() -> None:
        begun.release()
        await going.wait()

    async def got(machine: UUID, taken: Taken | None = None) -> int:
        path = f"/files/{machine}/vm linuz"
        return (await ask(app, path, client="", taken=taken)).status

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        first = [tasks.create_task(got(NODE, taken)) for _ in range(MOST_SENT)]
        for _ in first:
            await begun.acquire()
        assert await got(NODE) == 503
        assert await got(other) == 200
        going.set()
    assert [each.result() for each in first] == [200] * MOST_SENT
    assert await got(NODE) == 200
