"""A guest's console: who may read it, and what floods of it cost."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from tests.security.asked import OWNER, a_daemon

from nospoon.probe.record import LONGEST_LINE, MAX_LINES, MAX_RECORDS, Finder, decode, frame
from nospoon.providers.base import ConsoleStream
from nospoon.providers.recorder import MOST_WAITING, Recorder, RecordSpace
from nospoon.providers.simulated.console import SerialPort
from nospoon.runtime.tasks import Tasks
from nospoon.services.consoles.records import Records
from nospoon.services.consoles.service import (
    BACKLOG,
    OF_USER,
    ConsoleService,
    Line,
    Waiting,
)
from nospoon.testing.probed import body

FORGED = b"#nospoon 0123456789abcdef %d/%d %s\n"


def test_a_line_that_a_guest_repeats_does_not_have_the_whole_record_joined_each_time() -> None:
    finder = Finder()
    finder.feed(b"".join(FORGED % (n, MAX_LINES, b"A" * 48) for n in range(1, MAX_LINES + 1)))
    repeated = 2000
    finder.feed(b"".join(FORGED % (1, MAX_LINES, b"%04d" % n) for n in range(repeated)))
    assert finder.tries <= 4 * (MAX_LINES + repeated)


def test_what_a_guest_writes_is_not_kept_nor_read_again() -> None:
    finder = Finder()
    for number in range(100):
        mark = hashlib.sha256(b"%d" % number).hexdigest()[:16].encode()
        finder.feed(b"#nospoon " + mark + b" 1/2 AAAA\n" + b"x" * 10_000)
        assert finder.kept <= MAX_RECORDS * 4 + LONGEST_LINE
    (found,) = finder.feed(b"\n" + frame(body()))
    assert found.record == decode(body())


def test_a_record_is_found_wherever_the_stream_is_cut() -> None:
    stream = b"boot\r\n" + frame(body())
    finder = Finder()
    found = [each for byte in stream for each in finder.feed(bytes([byte]))]
    assert [each.record for each in found] == [decode(body())]
    assert found[0].end == len(stream) - 1  # before the line's end


async def test_the_record_of_a_simulated_machine_is_its_owners(tmp_path: Path) -> None:
    """The directory can be entered, and UUIDs are no secret."""
    machine, older = UUID(int=1), UUID(int=2)
    (tmp_path / f"{older}.log").touch(0o644)
    async with Tasks("test") as tasks:
        recorder = Recorder(tmp_path, tasks)
        for each in (machine, older):
            recorder.take(each, b"secret")
        await recorder.flush()
    modes = [(tmp_path / f"{each}.log").stat().st_mode & 0o777 for each in (machine, older)]
    assert modes == [0o600, 0o600]


async def test_what_waits_to_be_recorded_is_joined_and_counted_once(tmp_path: Path) -> None:
    """Hundreds of thousands of bytes, typed one by one, stopped the loop; millions of them, which
    wait for disk space, took gigabytes.
    """
    async with Tasks("test") as tasks:
        recorder = Recorder(tmp_path, tasks)
        for _ in range(3):
            recorder.take(UUID(int=1), b"ab")
        assert recorder.waiting == 6
        assert len(recorder._said) == 1
        await recorder.flush()
        assert recorder.waiting == 0
    assert (tmp_path / f"{UUID(int=1)}.log").read_bytes() == b"ababab"


async def test_what_could_not_be_recorded_goes_before_what_is_said_later(tmp_path: Path) -> None:
    disk, first, second = Disk(full=True), UUID(int=1), UUID(int=2)
    async with Tasks("test") as tasks:
        recorder = Recorder(tmp_path, tasks, RecordSpace(disk.lacking))
        recorder.take(first, b"one ")
        await recorder.tried()
        recorder.take(first, b"two ")
        recorder.take(second, b"other")
        disk.full = False
        await recorder.flush()
        assert recorder.waiting == 0
    assert (tmp_path / f"{first}.log").read_bytes() == b"one two "
    assert (tmp_path / f"{second}.log").read_bytes() == b"other"


async def test_a_reader_who_falls_behind_holds_few_bytes() -> None:
    """Each of 4,096 chunks was as long as a client cared to make it."""
    for chunk in (b"x" * 4096, b"x" * (1 << 16)):
        behind, ahead = Waiting(1001, Counter()), Waiting(1001, Counter())
        line = Line(UUID(int=1), {behind, ahead})
        for _ in range(2 * BACKLOG):
            line.spread(chunk)
            assert await ahead.take() == chunk
            if behind not in line.readers:
                break
        assert line.readers == {ahead}
        assert behind.size <= BACKLOG + (1 << 17)
        assert ahead.size == 0


async def test_all_readers_of_one_user_hold_few_bytes() -> None:
    """Each of 256 connections held as much as one may, of a console of its own."""
    waiting = Counter[int | None]()
    line = Line(UUID(int=1), {Waiting(1001, waiting) for _ in range(256)})
    other = Waiting(1002, waiting)
    line.readers.add(other)
    for _ in range(BACKLOG >> 16):
        line.spread(b"x" * (1 << 16))
    assert line.readers == {other}
    assert OF_USER <= waiting[1001] <= OF_USER + (1 << 16)
    other.drop()
    assert waiting[1002] == 0


async def test_what_is_typed_in_small_pieces_is_sent_to_many_readers_in_few(
    tmp_path: Path,
) -> None:
    """With 100 readers, what one client typed byte by byte stopped the loop for half a second."""
    machine, stream = UUID(int=1), SerialPort(UUID(int=1), Recorder(None, Tasks("none"))).open()

    class Source:
        async def console(self, machine: UUID) -> ConsoleStream:
            del machine
            return stream

    service = ConsoleService(lambda _: Source(), Records(tmp_path))
    readers = [await service.attach(machine, user=1001) for _ in range(10)]
    for _ in range(500):
        await readers[0].write(b"x")
    for each in readers:
        assert await anext(aiter(each.output())) == b"x" * 500
        await each.close()
    await service.close()


async def test_what_is_typed_may_be_text(tmp_path: Path) -> None:
    """It ended the console with a traceback in the daemon's log."""
    async with a_daemon(tmp_path) as asked:
        await asked.up(OWNER, "cluster: c\nhosts: {h: simulated}\nnodes: [{name: n}]\n")
        await asked.ask(OWNER, "POST", "/v1/nodes/c/n/power", {"command": "on"})
        async with asyncio.timeout(20):
            path, said = "/v1/nodes/c/n/console", b"helloyou"
            sent = await asked.attach(OWNER, path, typed=["hello", b"you"], until=said)
    assert said in b"".join(each.get("bytes", b"") for each in sent)


async def test_one_users_flood_leaves_other_users_their_records(tmp_path: Path) -> None:
    """On any simulated hosts, while nothing can be written."""
    disk = Disk(full=True)
    space = RecordSpace(disk.lacking)
    flood, other = UUID(int=1), UUID(int=2)
    async with Tasks("test") as tasks:
        recorders = [Recorder(tmp_path, tasks, space) for _ in range(4)]
        for each in recorders * 8:
            each.take(flood, b"x" * (MOST_WAITING // 4), 1001)
        assert recorders[0].waiting == MOST_WAITING
        recorders[0].take(other, b"mine", 1002)
        disk.full = False
        for each in recorders:
            await each.flush()
    assert (tmp_path / f"{other}.log").read_bytes() == b"mine"


async def test_records_leave_the_disk_its_reserve_and_power_goes_on(tmp_path: Path) -> None:
    async with a_daemon(tmp_path) as asked:
        text = "cluster: c\nhosts: {s: simulated}\nnodes: [{}]\n"
        await asked.up(OWNER, text)
        (member,) = asked.daemon.parts.fleet.of(OWNER)
        record = asked.daemon.parts.records.directory / f"{member.uuid}.log"
        asked.daemon.parts.files.space.free = lambda _: 0
        for command in ("on", "off"):
            path = f"/v1/nodes/{member.uuid}/power"
            answer = await asked.ask(OWNER, "POST", path, {"command": command})
            assert answer.status == 200, answer.body
        assert not record.exists()
        waits = asked.daemon.parts.simulations._record_space.waiting
        assert waits[OWNER] > 0


@dataclass
class Disk:
    full: bool

    def lacking(self) -> int:
        return int(self.full)
