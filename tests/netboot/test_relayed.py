"""Netboot services that relays serve: what a relay gets, what it says, and what that comes to."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import tarfile
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import UUID

import pytest

from nospoon.errors import NotOurs, ProviderError
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.netboot import NetbootService, Reservation
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.protocols.relayed import (
    LENGTH,
    Fails,
    Has,
    Malformed,
    Report,
    Serves,
    Waits,
    report,
)
from nospoon.providers.tunnels import RelayId
from nospoon.runtime.tasks import Tasks
from nospoon.services.netboot import relayed
from nospoon.services.netboot.relayed import MOST_OPEN, RelayNetbootDriver
from nospoon.services.netboot.tree import Tree

pytestmark = pytest.mark.tools
CLUSTER, NODE = UUID(int=7), UUID(int=9)
TAG = OwnerTag("kit", CLUSTER, token="t", name="rack")
RELAY = RelayId(CLUSTER, "cloud")
KEY = Key(Kind.NETBOOT, "cloud", "lab")
REVISION = "ab" * 32
ONE = Reservation("02:00:00:00:00:01", "10.78.0.2", "a", NODE)
SHAPE = NetbootService(
    "ns-lab", "10.78.0.254/24", ("", ""), (ONE,), routed=True, router="10.78.0.1"
)
SERVICE = Resource(KEY, SHAPE)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"HAS -\n", Has("")),
        (f"HAS {REVISION}\n".encode(), Has(REVISION)),
        (f"SERVES {REVISION}\n".encode(), Serves(REVISION)),
        (b"WAITS it begins\n", Waits("it begins")),
        (b"FAILS \xff \x1b[2J\n", Fails("\ufffd \x1b[2J")),
        (b"FAILS\n", Fails("")),
    ],
)
def test_a_line_says_what_became_of_files(line: bytes, said: Report) -> None:
    assert report(line) == said


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"HAS -",
        b"HAS \n",
        f"HAS {REVISION.upper()}\n".encode(),
        f"SERVES {REVISION}0\n".encode(),
        b"SERVES ../../etc/passwd\n",
        b"GETS -\n",
        b"FAILS " + b"x" * 2048 + b"\n",
    ],
)
def test_any_other_line_is_refused(line: bytes) -> None:
    with pytest.raises(Malformed):
        report(line)


@dataclass
class Helper:
    """The helper on a relay, which does as the test says. `files`: that it was sent."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    files: dict[str, bytes] = field(default_factory=dict)

    def say(self, line: str) -> None:
        self.writer.write(f"{line}\n".encode())

    async def take(self) -> list[str]:
        """The names of what comes next."""
        async with asyncio.timeout(60):
            (length,) = LENGTH.unpack(await self.reader.readexactly(LENGTH.size))
            packed = await self.reader.readexactly(length)
        names = []
        with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
            for member in tar:
                content = tar.extractfile(member)
                if content is not None:
                    names.append(member.name)
                    self.files[member.name] = content.read()
        return names

    @property
    def revision(self) -> str:
        return hashlib.sha256(self.files["manifest"]).hexdigest()

    async def ended(self) -> bool:
        async with asyncio.timeout(60):
            try:
                return await self.reader.read(1) == b""
            except ConnectionResetError:  # before it had read all
                return True


@dataclass
class Served:
    driver: RelayNetbootDriver
    socket: Path
    tasks: Tasks
    helpers: list[Helper] = field(default_factory=list)

    async def helper(self, says: str = "HAS -") -> Helper:
        made = Helper(*await asyncio.open_unix_connection(self.socket))
        self.helpers.append(made)
        made.say(says)
        return made

    async def only(self) -> Observed:
        (seen,) = await self.driver.observe(CLUSTER)
        return seen

    async def until_fault(self, wanted: str) -> None:
        async with asyncio.timeout(60):
            while wanted not in (await self.only()).fault:  # noqa: ASYNC110
                await asyncio.sleep(0.02)  # as the helper says


@asynccontextmanager
async def serving(directory: Path, *, patience: float = 60) -> AsyncIterator[Served]:
    driver = RelayNetbootDriver(state=directory / "state", deployment="kit", patience=patience)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await driver.serve(RELAY, reader, writer)

    server = await asyncio.start_unix_server(serve, directory / "socket")
    async with server, Tasks("test") as tasks:
        made = Served(driver, directory / "socket", tasks)
        try:
            yield made
        finally:
            for each in made.helpers:
                each.writer.close()
                with contextlib.suppress(ConnectionError):
                    await each.writer.wait_closed()


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path) as made:
        yield made


async def made(served: Served, service: Resource = SERVICE) -> Helper:
    """A relay that serves it."""
    async with asyncio.TaskGroup() as both:
        both.create_task(served.driver.create(service, TAG), name="create")
        helper = await served.helper()
        while "dnsmasq.conf" not in helper.files:
            await helper.take()
        helper.say(f"SERVES {helper.revision}")
    return helper


async def test_a_relay_gets_what_dnsmasq_reads_and_nothing_else(served: Served) -> None:
    helper = await made(served)
    assert set(helper.files) == {
        "dnsmasq.conf", "hosts/02-00-00-00-00-01", "manifest", "tftp/boot.ipxe",
        "tftp/grub/grub.cfg", "tftp/snponly.efi", "tftp/undionly.kpxe",
    }  # fmt: skip
    configuration = helper.files["dnsmasq.conf"].decode().splitlines()
    assert "dhcp-option=option:router,10.78.0.1" in configuration
    assert "dhcp-range=10.78.0.0,static,255.255.255.0,1h" in configuration
    assert "dhcp-hostsdir=/run/nospoon/netboot/hosts" in configuration
    assert "user=nobody" in configuration
    script = helper.files["tftp/boot.ipxe"].decode()
    assert "chain --replace --autofree http://10.78.0.254:8069/boot/${uuid}/network" in script
    assert helper.files["hosts/02-00-00-00-00-01"] == b"02:00:00:00:00:01,10.78.0.2,a\n"
    assert (await served.only()).shape == SHAPE
    assert (await served.only()).fault == ""


async def test_changes_are_sent_alone_and_waited_for(served: Served) -> None:
    helper = await made(served)
    other = Reservation("02:00:00:00:00:02", "10.78.0.3", "b", UUID(int=10))
    wanted = Resource(KEY, replace(SHAPE, reservations=(other,)))
    changing = served.tasks.start(
        served.driver.change(await served.only(), wanted, TAG), name="under way"
    )
    assert sorted(await helper.take()) == ["hosts/02-00-00-00-00-02", "manifest"]
    assert "02-00-00-00-00-01" not in helper.files["manifest"].decode()
    assert not changing.done()
    helper.say("WAITS it begins")
    helper.say(f"SERVES {helper.revision}")
    await changing
    assert (await served.only()).shape == wanted.shape


async def test_a_relay_that_has_them_gets_none_and_one_that_has_others_all(served: Served) -> None:
    helper = await made(served)
    again = await served.helper(f"HAS {helper.revision}")
    assert await helper.ended(), "another one took its place"
    again.say(f"SERVES {helper.revision}")
    async with asyncio.timeout(60):
        await served.driver.create(SERVICE, TAG)
    third = await served.helper(f"HAS {REVISION}")
    assert "tftp/undionly.kpxe" in await third.take()


async def test_what_it_says_of_failures_is_shown_in_part_and_without_controls(
    served: Served,
) -> None:
    creating = served.tasks.start(served.driver.create(SERVICE, TAG), name="under way")
    helper = await served.helper()
    while "dnsmasq.conf" not in helper.files:
        await helper.take()
    helper.say("WAITS dnsmasq is being installed")
    helper.say("FAILS no mirror \x1b]0;x\x07 " + "y" * 1500)
    with pytest.raises(ProviderError, match="its relay serves no DHCP: no mirror") as caught:
        await creating
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 700
    assert "`nameservers`" in caught.value.hint
    fault = (await served.only()).fault
    assert fault.startswith("its relay serves no DHCP: no mirror")
    assert fault.isprintable()
    helper.say(f"SERVES {helper.revision}")
    await served.until_fault("")
    async with asyncio.timeout(60):
        await served.driver.create(SERVICE, TAG)
    assert (await served.only()).fault == ""


async def test_one_that_does_not_serve_in_time_is_a_failure(tmp_path: Path) -> None:
    async with serving(tmp_path, patience=0.5) as served:

        async def until(why: str) -> None:
            async with asyncio.timeout(60):
                said = ""
                while why not in said:
                    with pytest.raises(ProviderError, match="does not serve DHCP after 0 s") as ex:
                        await served.driver.create(SERVICE, TAG)
                    said = ex.value.message

        await until("it does not ask for its files")
        helper = await served.helper()
        await helper.take()
        await until("it says nothing")
        helper.say("WAITS dnsmasq is being installed")
        await until("dnsmasq is being installed")


@pytest.mark.parametrize("line", ["SERVES -", "garbage", "HAS ..", "x" * 9000])
async def test_who_says_anything_else_first_is_not_heard(served: Served, line: str) -> None:
    stranger = await served.helper(line)
    assert await stranger.ended()
    assert (await made(served)).files


async def test_a_relay_has_few_connections_at_a_time(served: Served) -> None:
    helper = await made(served)
    silent = [await asyncio.open_unix_connection(served.socket) for _ in range(MOST_OPEN - 1)]
    for _ in range(3):  # of those that are refused, none counts
        refused = await served.helper("HAS -")
        assert await refused.ended()
    assert not helper.reader.at_eof(), "it goes on"
    for _, writer in silent:
        writer.close()
    async with asyncio.timeout(60):
        while served.driver._open[RELAY] > 1:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    again = await served.helper("HAS -")
    assert "dnsmasq.conf" in await again.take()


async def test_files_are_looked_at_in_threads_and_now_and_then_however_often_a_relay_asks(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All services of relays are read for that, and of 10,000 nodes as many files."""
    monkeypatch.setattr(relayed, "BETWEEN", 3600.0)
    driver, looked = served.driver, list[int]()
    find = driver._served

    def noted(relay: RelayId) -> Tree | None:
        looked.append(threading.get_ident())
        return find(relay)

    monkeypatch.setattr(driver, "_served", noted)
    helper = await made(served)
    for _ in range(MOST_OPEN):
        before, helper = helper, await served.helper("HAS -")
        assert await before.ended()
        helper.say("WAITS for files")
        async with asyncio.timeout(60):
            while driver._connected[RELAY].said != Waits("for files"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)  # until it is heard
    async with driver._writing:  # each look has it, in the order of asking
        assert len(looked) == 1
    await driver._wanted(RELAY)
    assert threading.get_ident() not in looked


async def test_a_relay_that_talks_without_end_is_heard_a_line_at_a_time(tmp_path: Path) -> None:
    """128 of them, as many as a member has, took a processor, and up to 16 ms of a turn of the
    loop.
    """
    heard, next_ = asyncio.Semaphore(0), asyncio.Event()

    async def pace() -> None:
        heard.release()
        await next_.wait()

    async with serving(tmp_path) as served, asyncio.timeout(60):
        served.driver._pace = pace
        helper = await served.helper()
        for number in range(2 * relayed.UNPACED):
            helper.say(f"FAILS {number}")
        await heard.acquire()
        before = served.driver._connected[RELAY]
        await served.helper()
        while served.driver._connected[RELAY] is before:  # noqa: ASYNC110
            await asyncio.sleep(0)  # until another one is served, which came later
        assert heard.locked(), "the next line waits"
        next_.set()


async def test_one_that_says_garbage_later_is_lost_until_it_asks_again(served: Served) -> None:
    helper = await made(served)
    helper.say("garbage")
    assert await helper.ended()
    await served.until_fault("its relay asks for its files no more")
    again = await served.helper(f"HAS {helper.revision}")
    again.say(f"SERVES {helper.revision}")
    async with asyncio.timeout(60):
        while (await served.only()).fault:  # noqa: ASYNC110
            await asyncio.sleep(0.02)  # until it is heard


async def test_a_service_that_goes_leaves_nothing_and_its_relay_stops(
    served: Served, tmp_path: Path
) -> None:
    helper = await made(served)
    deleting = served.tasks.start(served.driver.delete(await served.only()), name="under way")
    assert await helper.take() == ["manifest"]
    assert helper.files["manifest"] == b""
    assert not deleting.done()
    helper.say(f"SERVES {helper.revision}")
    await deleting
    assert list(await served.driver.observe(None)) == []
    assert list((tmp_path / "state").iterdir()) == []


async def test_a_daemon_that_starts_again_serves_what_it_served(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        helper = await made(served)
    (tmp_path / "socket").unlink()
    async with serving(tmp_path) as again:
        assert (await again.only()).shape == SHAPE
        assert (await again.only()).fault == "", "not known yet"
        asks = await again.helper()
        await asks.take()
        assert asks.files == helper.files


@pytest.mark.parametrize("mac", ["../../x", "02:00:00:00:00:01\nfoo", "02:00:00:00:00:0", ""])
async def test_what_a_cloud_takes_for_a_mac_becomes_no_file(served: Served, mac: str) -> None:
    odd = Resource(KEY, replace(SHAPE, reservations=(replace(ONE, also=(mac,)),)))
    with pytest.raises(ProviderError, match="expected a MAC address"):
        await served.driver.create(odd, TAG)


async def test_a_service_of_another_deployment_is_left_unchanged(
    served: Served, tmp_path: Path
) -> None:
    await made(served)
    other = RelayNetbootDriver(state=tmp_path / "state", deployment="other")
    assert list(await other.observe(None)) == []
    with pytest.raises(NotOurs):
        await other.create(SERVICE, replace(TAG, deployment="other"))
    assert (await served.only()).tag.deployment == "kit"
