"""Hosts over ssh that answer what no host answers: they are an administrator's choice, but who
broke into one gets no further by it, and holds up nothing else.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path, PurePosixPath
from typing import Any, cast
from uuid import UUID, uuid4

import msgspec
import pytest

from nospoon.clusterfile.load import load
from nospoon.control.fleet import hosts as fleet_hosts
from nospoon.control.fleet.hosts import Hosts
from nospoon.control.maintenance.host_check import HostChecker
from nospoon.daemon.remote import Remote, Remotes
from nospoon.errors import HostUnreachable, ProviderError
from nospoon.model.boot import BootDevice
from nospoon.model.cluster import Arch, Host
from nospoon.model.connections import Simulated
from nospoon.model.machine import MachineChange, MachineEvent, PowerState
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.netboot import NetbootService, Reservation
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.storage import Pool
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers import linux, openvswitch
from nospoon.providers.containers import links
from nospoon.providers.containers.records import parse, record
from nospoon.providers.docker.host import DockerHost
from nospoon.providers.libvirt.tunnels import Tunnels
from nospoon.providers.lxc.host import LxcHost
from nospoon.providers.printed import LONGEST, LONGEST_LINES, MOST_ROWS, lines_of, rows_of
from nospoon.providers.simulated.connection import SimulatedConnection
from nospoon.runtime import boots, process, runner
from nospoon.runtime.process import MOST_SAID, Finished
from nospoon.runtime.runner import LocalRunner, Runner, SshRunner
from nospoon.runtime.tasks import Tasks
from nospoon.services.consoles.mirror import CHUNK, Mirror
from nospoon.services.consoles.records import MOST, Records
from nospoon.services.netboot import remote
from nospoon.services.netboot.copies import GONE, MANIFEST, record_in
from nospoon.services.netboot.ports import BootAnswer, BootAuthority, ServedProfile
from nospoon.services.netboot.remote import Place, RemoteNetbootDriver
from nospoon.services.netboot.tree import Saved, Tree


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is run as ssh(1), to be written."""
    made = tmp_path / "ssh"
    made.touch(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return made


@pytest.mark.parametrize("where", ["", " >&2"])
async def test_endless_output_does_not_fill_the_memory(
    ssh: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """For 60 s a command's output was kept, however much came."""
    monkeypatch.setattr(runner, "MOST_OUTPUT", 1 << 20)
    ssh.write_text(f"#!/bin/sh\nexec yes{where}\n")
    with pytest.raises(ProviderError, match="on rack wrote more than 1MiB"):
        await SshRunner("rack").run(["ip", "-j", "link"], stdin=b"x" * (1 << 22))


@pytest.mark.parametrize("where", ["", " >&2"])
async def test_endless_output_of_a_tool_of_this_machine_does_not_either(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(runner, "MOST_OUTPUT", 1 << 20)
    with pytest.raises(ProviderError, match=r"^`sh -c .*` wrote more than 1MiB"):
        await LocalRunner().run(["sh", "-c", f"exec yes{where}"], stdin=b"x" * (1 << 22))


async def test_a_clock_that_shows_no_time_is_an_error_of_its_host(ssh: Path) -> None:
    """It was an error of the daemon, which named no host."""
    ssh.write_text("#!/bin/sh\necho noon\n")
    checker = HostChecker(cast("Any", None), lambda: 0.0, lambda _: "")
    cluster = load("cluster: c\nhosts: {h: simulated}\nnodes: []\n", file="f")
    with pytest.raises(ProviderError, match="`date` printed"):
        [each async for each in checker._commands(cluster, SshRunner("rack"))]


async def test_a_command_over_ssh_is_still_given_what_it_reads(ssh: Path) -> None:
    ssh.write_text("#!/bin/sh\nexec cat\n")
    given = b"y" * (1 << 20)
    done = await SshRunner("rack").run(["cat"], stdin=given)
    assert done.stdout == given.decode()


class Odd:
    """Answers the same to each command."""

    def __init__(self, said: str) -> None:
        self.said = said

    async def run(self, argv: list[str], **_: object) -> Finished:
        return Finished(tuple(argv), 0, self.said, "")


@pytest.mark.parametrize(
    "said",
    ["-" * 36 + ".log 1 1\n", "{uuid}.log x 1\n", "{uuid}.log\n", "{uuid}.log 7 9\n"],
)
async def test_console_records_are_copied_on_after_odd_answers(tmp_path: Path, said: str) -> None:
    """The task that copies them ended, for good."""
    machine, records = uuid4(), Records(tmp_path)
    records.keep(machine, group="0/c", node="n")
    mirror = Mirror(
        cast("Runner", Odd(said.format(uuid=machine))),
        PurePosixPath("/there"),
        records,
        host="rack",
        home=lambda _: "rack",
        lives=lambda: True,
        busy=lambda: False,
    )
    await mirror.look()
    assert records.size(machine) == 0


async def test_a_host_writes_no_record_of_a_machine_that_is_on_another_host(tmp_path: Path) -> None:
    """Whatever it listed was added, also to the log of a machine of this one, which went on from
    there, and lost its beginning for what was too much.
    """
    there, records = tmp_path / "there", Records(tmp_path / "here")
    there.mkdir()
    mine, theirs = uuid4(), uuid4()
    lives = {mine: "rack", theirs: ""}

    def mirror_of(host: str) -> Mirror:
        return Mirror(
            LocalRunner(),
            PurePosixPath(there),
            records,
            host=host,
            home=lives.get,
            lives=lambda: True,
            busy=lambda: False,
        )

    for each in (mine, theirs):
        records.keep(each, group="0/c", node="n")
        (there / f"{each}.log").write_bytes(b"forged")
    records.append(theirs, b"said")
    await mirror_of("rack").pull()
    assert records.tail(theirs, 100) == b"said"
    assert records.tail(mine, 100) == b"forged"
    lives.clear()  # both are gone
    with (there / f"{mine}.log").open("ab") as file:
        file.write(b", its end")
    await mirror_of("another rack").pull()
    assert records.tail(mine, 100) == b"forged"
    await mirror_of("rack").pull()
    assert records.tail(theirs, 100) == b"said"
    assert records.tail(mine, 100) == b"forged, its end"
    assert [each.name for each in there.iterdir()] == [f"{theirs}.log"]


async def test_of_a_machine_that_lived_for_a_moment_the_record_is_copied(tmp_path: Path) -> None:
    there, records, machine = tmp_path / "there", Records(tmp_path / "here"), uuid4()
    there.mkdir()
    records.keep(machine, group="0/c", node="n")
    (there / f"{machine}.log").write_bytes(b"said")
    mirror = Mirror(
        LocalRunner(), PurePosixPath(there), records, host="rack", home=lambda _: None,
        lives=lambda: True, busy=lambda: False,
    )  # fmt: skip
    await mirror.pull()
    assert records.tail(machine, 100) == b"said"
    assert not list(there.iterdir())


@pytest.mark.parametrize("said", ["{uuid}.log 1 1\n" * 400_000, " " * (32 << 20)])
async def test_a_long_list_of_records_is_not_taken_apart(tmp_path: Path, said: str) -> None:
    """64 MiB of them held up everything for seconds, in the event loop, each second."""
    runner, records, machine = Odd(said.format(uuid=uuid4())), Records(tmp_path), uuid4()
    mirror = Mirror(
        cast("Runner", runner), PurePosixPath("/there"), records, host="rack",
        home=lambda _: "rack", lives=lambda: True, busy=lambda: False,
    )  # fmt: skip
    with pytest.raises(ProviderError, match="printed what is not expected"):
        await mirror.pull()
    runner.said = "".join(f"{UUID(int=n)}.log 1 1\n" for n in range(20_000))
    records.keep(machine, group="0/c", node="n")
    assert await turns_of(mirror.pull()) > 1


async def test_a_record_that_is_said_to_be_endless_has_an_end(tmp_path: Path) -> None:
    """It was copied on and on, and whoever waited for that waited for ever."""
    records, machine = Records(tmp_path / "here"), uuid4()
    records.keep(machine, group="0/c", node="n")
    piece = b64encode(b"x" * CHUNK).decode()

    class Endless:
        async def run(self, argv: list[str], **_: object) -> Finished:
            listed = f"{machine}.log 1 {1 << 62}\n" if len(argv) == 5 else piece
            return Finished(tuple(argv), 0, listed, "")

    mirror = Mirror(
        cast("Runner", Endless()), PurePosixPath("/there"), records, host="rack",
        home=lambda _: "rack", lives=lambda: True, busy=lambda: False,
    )  # fmt: skip
    await mirror.pull()
    assert records.size(machine) == MOST


async def test_who_removes_a_cluster_waits_for_no_other_users_host(tmp_path: Path) -> None:
    """The last console output was fetched from all hosts over ssh, one after the other: of one that
    was offline each `down` of any user waited for a minute.
    """
    async with Tasks("test") as tasks:
        remotes = Remotes(
            state=tmp_path, sockets=tmp_path, deployment="mine", records=Records(tmp_path),
            tasks=tasks,
        )  # fmt: skip
        looked = list[str]()

        class Looked:
            def __init__(self, ssh: str) -> None:
                self.ssh = ssh

            async def look(self) -> None:
                looked.append(self.ssh)

        for ssh in ("rack", "another"):
            mirror, runner = cast("Mirror", Looked(ssh)), SshRunner(ssh)
            served = served_by(runner, tmp_path)
            remotes._known[ssh] = Remote(runner, mirror, served)
        await remotes.fetch_records({"", "rack"})
        assert looked == ["rack"]


async def test_of_machines_that_no_one_has_a_host_reports_not_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each that a host listed, with ids that it made up, the last event was kept for good."""
    monkeypatch.setattr(fleet_hosts, "MOST_UNSETTLED", 3)
    connection, own = SimulatedConnection("rack", "mine", lambda: 0.0), uuid4()
    host = Host("rack", Simulated())

    async def machines() -> list[MachineEvent]:
        off = (MachineChange.OBSERVED, PowerState.OFF)
        return [MachineEvent(each, *off) for each in (own, *(uuid4() for _ in range(10)))]

    connection.machine_driver.machines = machines  # type: ignore[method-assign]
    async with Tasks("test") as tasks:
        hosts = Hosts(lambda _: connection, tasks, lambda _: None, sockets=tmp_path)
        for _ in range(3):
            await hosts.look(host)
            hosts.settle(own, host)
        assert len(hosts._last) <= 4
        assert hosts.last(own) is not None
        hosts.forget(own)
        assert hosts.last(own) is None


async def test_what_a_host_says_of_itself_is_short() -> None:
    """A boot of 64 MiB was kept by the BMC of each machine there, in the store; what containers
    need was taken apart in the event loop, for seconds; all other threads waited until the list of
    an engine was decoded.
    """
    runner = cast("Runner", Odd("x " * (32 << 20)))
    with pytest.raises(ProviderError, match="printed what is not expected"):
        await boots.steady(runner)
    lxc, docker = LxcHost("rack", runner, "/pools", (0, 0)), DockerHost("rack", runner, "/p", "")
    for ask in (lxc.facts, docker.facts, lxc.look, docker.look):
        with pytest.raises(ProviderError, match="printed what is not expected"):
            await ask()


@pytest.mark.parametrize("said", ["lacks\n", "ids u x y\n", "ids\n", "cgroup2\n", "cpus many\n"])
async def test_odd_facts_of_containers_are_an_error_of_the_host(said: str) -> None:
    """Each was an internal error of `plan`."""
    host = LxcHost("rack", cast("Runner", Odd(said)), "/pools", (0, 0))
    with pytest.raises(ProviderError, match="host rack: what it says of itself"):
        await host.facts()


def test_a_record_of_a_container_of_any_length_is_none() -> None:
    """What one call decodes, all other threads wait for."""
    short, long = (
        f"record {path} {record('p', OwnerTag('mine', uuid4()), Pool(path * 300_000)).decode()}\n"
        for path in ("a", "abcdefgh")
    )
    seen = parse(long + short + "size b 7\n")
    assert (list(seen.records), seen.sizes) == (["a"], {"b": 7})


async def turns_of(work: Coroutine[Any, Any, object]) -> int:
    """How often others run meanwhile."""
    turns = 0
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
    return turns


async def test_bytes_that_are_no_text_are_decoded_with_turns_for_others() -> None:
    """A host can send 64 MiB of them, of which 8 MiB held up everything for 53 ms."""
    for data in (b"\xff" * (4 << 20), "é".encode() * (2 << 20)):
        text = await process._text(data)
        assert text == data.decode(errors="replace")
        assert await turns_of(process._text(data)) >= len(data) // process.DECODED


async def test_what_a_host_says_is_no_error_of_any_length(ssh: Path) -> None:
    for status, kind in ((3, ProviderError), (255, HostUnreachable)):
        ssh.write_text(f"#!/bin/sh\nhead -c 4000000 /dev/zero | tr '\\0' e >&2\nexit {status}\n")
        with pytest.raises(kind) as raised:
            await SshRunner("rack").run(["ip", "link"])
        assert MOST_SAID < len(str(raised.value)) < MOST_SAID + 300


LOOKS: list[Callable[[Runner], Awaitable[object]]] = [
    linux._links,
    linux._routes,
    lambda runner: linux.free_space(runner, "/var"),
    lambda runner: linux._services(runner, boot_ports=True),
    openvswitch.look,
    lambda runner: Tunnels(runner, "")._look("vx0"),
    lambda runner: Tunnels(runner, "")._peers("vx0"),
    links._masters,
]
TEXTS = [
    "{}",
    "[1, null, [], {}]",
    '[{"ifname": {}, "linkinfo": [], "dst": [1], "dev": {}, "gateway": 7}]',
    '[{"mac": "00:00:00:00:00:00", "dst": {}}, {"mac": 1}]',
    '[{"ifname": "vx0", "linkinfo": {"info_kind": {}}, "dst": "::/999", "master": []}]',
    '{"data": [[1, 2, 3, 4, 5]]}\n{"data": [7]}\n',
    '{"data": 3}\n[]\n',
    "[" * 100_000,
    "taken\nbridge\ntaken x\ntaken \u00b2\n\n",
    "\n" * (LONGEST_LINES + 1),
    json.dumps([{}] * (MOST_ROWS + 1)),
    "[" + "9" * 5000 + "]",
    "\x00\ufffd",
]


@pytest.mark.parametrize("said", TEXTS, ids=range(len(TEXTS)))
async def test_odd_answers_are_odd_or_an_error_of_the_host(said: str) -> None:
    """They were a `KeyError`, or anything, of which no one says what host it came from."""
    for look in LOOKS:
        try:
            await look(cast("Runner", Odd(said)))
        except ProviderError as error:
            assert "not expected" in str(error)  # noqa: PT017  (both are right)


async def test_long_lists_are_decoded_beside_the_event_loop() -> None:
    rows = [{"ifname": f"veth{n}", "master": "br0"} for n in range(20_000)]
    done = Finished(("ip",), 0, json.dumps(rows), "")
    assert await rows_of(done) == rows
    assert await turns_of(rows_of(done)) > 1
    with pytest.raises(ProviderError, match="`ip` printed what is not expected of it"):
        await rows_of(Finished(("ip",), 0, "[" + " " * LONGEST + "]", ""))
    with pytest.raises(ProviderError, match="`df` printed what is not expected of it"):
        lines_of(Finished(("df",), 0, "x" * (LONGEST_LINES + 1), ""))


class Scripts:
    """Every machine boots something from the network, with a secret of its own."""

    def answer(self, *, uuid: UUID | None = None, mac: str = "") -> BootAnswer | None:
        assert uuid is not None
        assert not mac
        profile = ServedProfile("p", "http://h/k", ("http://h/i",), f"secret-of-{uuid}")
        return BootAnswer(uuid, BootDevice.NETWORK, profile)


def served_by(
    runner: Runner, here: Path, is_there: Callable[[UUID], bool] = lambda _: True
) -> RemoteNetbootDriver:
    async def find_grub(_: Arch) -> Path:
        return here

    return RemoteNetbootDriver(
        place=Place(here, PurePosixPath("/var/lib/nospoon/netboot/mine")),
        deployment="mine",
        runner=runner,
        authority=cast("BootAuthority", Scripts()),
        find_grub=find_grub,
        is_there=is_there,
    )


@pytest.mark.parametrize("name", ["/../../../../victim", "n/../../../../victim"])
async def test_records_of_network_boot_lead_to_no_other_directory(
    tmp_path: Path, name: str
) -> None:
    """A directory of the daemon's machine was written to, and removed by the next `down`."""
    here, cluster = tmp_path / "netboot-of-hosts" / "x", uuid4()
    victim = tmp_path / "victim"
    victim.mkdir()
    shape = NetbootService(bridge="b", address="", range=("", ""), reservations=())
    saved = Saved(Key(Kind.NETBOOT, "h", name), shape, OwnerTag("mine", cluster))
    packed = b64encode(msgspec.json.encode(saved)).decode()
    place = f"/var/lib/nospoon/netboot/mine/{cluster}/h@{name}"
    driver = served_by(cast("Runner", Odd(f"1 2 2 {place} {packed}\n")), here)
    for each in await driver.observe(None):
        await driver.delete(each)
    assert victim.is_dir()
    assert not list(tmp_path.rglob("service.json"))


@pytest.mark.parametrize("where", ["h@lan", "a name that is no service's"])
async def test_a_record_of_another_place_is_a_fault_of_the_service_where_it_lies(
    tmp_path: Path, where: str
) -> None:
    """It was in the daemon's log alone: the service was missing, and its directory in the way."""
    cluster = uuid4()
    shape = NetbootService(bridge="b", address="", range=("", ""), reservations=())
    saved = Saved(Key(Kind.NETBOOT, "h", "other"), shape, OwnerTag("mine", cluster))
    packed = b64encode(msgspec.json.encode(saved)).decode()
    place = f"/var/lib/nospoon/netboot/mine/{cluster}/{where.replace(' ', '_')}"
    runner = Odd(f"1 2 2 {place} {packed}\n")
    found = await served_by(cast("Runner", runner), tmp_path / "x").observe(cluster)
    expected = [(Key(Kind.NETBOOT, "h", "lan"), cluster, "its record is of another place")]
    seen = [(each.key, each.tag.cluster, each.fault) for each in found]
    assert seen == (expected if "@" in where else [])


async def test_a_host_gets_the_boot_scripts_of_its_own_machines_alone(tmp_path: Path) -> None:
    """It could name any machine in its record, and got the command line of that one's kernel."""
    own, other = uuid4(), uuid4()
    shape = NetbootService(
        "b", "10.0.0.1/24", ("", ""),
        tuple(
            Reservation(f"52:54:00:00:00:0{place}", f"10.0.0.{place}", f"m{place}", uuid)
            for place, uuid in ((2, own), (3, other))
        ),
    )  # fmt: skip
    driver = served_by(cast("Runner", Odd("")), tmp_path, lambda uuid: uuid == own)
    await driver.create(Resource(Key(Kind.NETBOOT, "h", "n"), shape), OwnerTag("mine", uuid4()))
    copied = b"".join(each.read_bytes() for each in tmp_path.rglob("*") if each.is_file())
    assert f"secret-of-{own}".encode() in copied
    assert f"secret-of-{other}".encode() not in copied


@pytest.mark.parametrize("said", ["x\n", "1 2 3\n", "1 2 3 /x/y AA==\n", "1 2 3 4 5 6 7\n"])
async def test_odd_lines_about_network_boot_are_no_services(tmp_path: Path, said: str) -> None:
    """Each was an internal error of `plan`."""
    assert not await served_by(cast("Runner", Odd(said)), tmp_path).observe(None)


async def test_copies_of_a_hosts_records_have_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look of any user's plan could bring others, 64 MiB of them, for the state disk."""
    monkeypatch.setattr(remote, "MOST_SERVICES", 3)
    driver = served_by(cast("Runner", runner := Odd("")), tmp_path / "here")
    shape = NetbootService(bridge="b", address="", range=("", ""), reservations=())

    def service() -> str:
        saved = Saved(Key(Kind.NETBOOT, "h", "n"), shape, OwnerTag("mine", uuid4()))
        packed = b64encode(msgspec.json.encode(saved)).decode()
        return f"1 2 2 /var/lib/nospoon/netboot/mine/{saved.tag.cluster}/h@n {packed}\n"

    for _ in range(3):
        runner.said = service() + service()
        assert len(await driver.observe(None)) == 2
    assert len(list(tmp_path.rglob("service.json"))) == 3
    monkeypatch.setattr(remote, "MOST_SERVICES", 9)
    monkeypatch.setattr(remote, "MOST_KEPT", 10)
    await driver.observe(None)
    assert len(list(tmp_path.rglob("service.json"))) == 3


RECORD = b64encode(b'{"x":' + b"[" * 1_000_000).decode()


@pytest.mark.parametrize(
    "packed",
    ["A" * (64 << 20), RECORD, b64encode(b'{"x":[' + b"{}," * 100_000 + b"{}]}").decode()],
    ids=["long", "deep", "many"],
)
def test_records_that_nospoon_never_writes_are_none(packed: str) -> None:
    """64 MiB held up everything for 1.5 s, in the event loop; a deep one was an internal error."""
    assert record_in(packed) is None


@pytest.mark.parametrize("said", ["a x\n" * 300_000, "x" * (17 << 20)])
async def test_long_lists_of_files_are_not_taken_apart(tmp_path: Path, said: str) -> None:
    """54 MiB of them held up everything for 16 s."""
    driver = served_by(cast("Runner", Odd(said)), tmp_path)
    tree = Tree(tmp_path / "here", there=PurePosixPath("/there"))
    with pytest.raises(ProviderError, match="longer than nospoon writes it"):
        await driver._copy(tree)
    with pytest.raises(ProviderError, match="longer than nospoon writes it"):
        await driver._drop_leases(tree, ())
    with pytest.raises(ProviderError):
        await served_by(cast("Runner", Odd("\n" * 100_000)), tmp_path).observe(None)


async def test_files_of_thousands_of_machines_go_at_once(ssh: Path, tmp_path: Path) -> None:
    """Their names were words of one command, of which there is 128 KiB: `up` failed for good. A NUL
    in one was an internal error.
    """
    ssh.write_text('#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n')
    here, there = tmp_path / "here", tmp_path / "there"
    tree = Tree(here, there=PurePosixPath(there))
    for each in (here, there / "hosts"):
        each.mkdir(parents=True)
    (here / "kept").write_text("kept")
    names = [f"hosts/52-54-00-00-{n >> 8:02x}-{n & 255:02x}" for n in range(10_000)]
    for name in names[:20]:
        (there / name).touch()
    listed = "".join(f"{'0' * 64} {each}\n" for each in [*names, "n\0ul", "\ud800"])
    (there / MANIFEST).write_bytes(listed.encode(errors="surrogatepass"))
    await served_by(SshRunner("rack"), here)._copy(tree)
    assert {each.name for each in there.iterdir()} == {"hosts", "kept", MANIFEST}
    assert not list((there / "hosts").iterdir())
    assert not (there / GONE).exists()
