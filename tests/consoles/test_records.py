"""Records lose nothing to rotation, and go when they are purged."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nospoon.services.consoles.records import SEGMENT_SIZE, Records

KEPT = 3


class Virtlogd:
    """Rotates as virtlogd does: log -> .0 -> .1 -> .2 -> gone."""

    def __init__(self, record: Path) -> None:
        self.record = record
        record.parent.mkdir(parents=True, exist_ok=True)

    def write(self, data: bytes) -> None:
        with self.record.open("ab") as file:
            file.write(data)

    def rotate(self) -> None:
        names = [self.record, *(Path(f"{self.record}.{age}") for age in range(KEPT))]
        names[-1].unlink(missing_ok=True)
        for older, newer in zip(reversed(names), list(reversed(names))[1:], strict=False):
            if newer.exists():
                newer.rename(older)


@pytest.fixture
def machine() -> UUID:
    return uuid4()


@pytest.fixture
def records(tmp_path: Path, machine: UUID) -> Records:
    records = Records(tmp_path)
    records.keep(machine, group="0/dev", node="n")
    return records


def all_of(records: Records, machine: UUID) -> bytes:
    offset, said = 0, b""
    while data := records.read(machine, offset, 7)[1]:
        offset, said = offset + len(data), said + data
    assert records.size(machine) == len(said)
    return said


def test_a_machine_that_said_nothing_has_an_empty_record(records: Records, machine: UUID) -> None:
    assert all_of(records, machine) == b""
    assert all_of(records, uuid4()) == b""


def test_what_was_rotated_away_is_still_read_in_order(
    records: Records, machine: UUID, tmp_path: Path
) -> None:
    log = Virtlogd(tmp_path / f"{machine}.log")
    for number in range(10):
        log.write(f"part {number}\n".encode())
        records.sweep()
        log.rotate()
    log.write(b"end")
    assert all_of(records, machine) == b"".join(b"part %d\n" % n for n in range(10)) + b"end"


def test_what_grew_while_nobody_looked_is_found_in_order(
    records: Records, machine: UUID, tmp_path: Path
) -> None:
    log = Virtlogd(tmp_path / f"{machine}.log")
    for number in range(KEPT):
        log.write(f"part {number}\n".encode())
        log.rotate()
    log.write(b"end")
    assert all_of(records, machine) == b"part 0\npart 1\npart 2\nend"


@given(st.lists(st.one_of(st.binary(max_size=40), st.just(None)), max_size=30))
def test_no_sequence_of_writes_and_rotations_loses_a_byte(
    tmp_path_factory: pytest.TempPathFactory, steps: list[bytes | None]
) -> None:
    place, machine = tmp_path_factory.mktemp("records"), uuid4()
    records, log = Records(place), Virtlogd(place / f"{machine}.log")
    records.keep(machine, group="0/dev", node="n")
    for step in steps:
        if step is None:
            records.sweep()
            log.rotate()
        else:
            log.write(step)
    assert all_of(records, machine) == b"".join(step for step in steps if step is not None)


async def test_purging_a_group_removes_its_records_and_no_others(
    records: Records, machine: UUID, tmp_path: Path
) -> None:
    other = uuid4()
    records.keep(other, group="0/prod", node="n")
    for each in (machine, other):
        Virtlogd(tmp_path / f"{each}.log").write(b"kept")
    records.sweep()
    await records.purge("0/dev")
    assert all_of(records, machine) == b""
    assert all_of(records, other) == b"kept"
    assert not [path for path in tmp_path.iterdir() if str(machine) in path.name]


async def test_a_record_stays_its_owners_when_another_user_has_a_machine_of_the_same_id(
    records: Records, machine: UUID, tmp_path: Path
) -> None:
    """Ids of machines follow from that of their cluster, which a file may choose."""
    virtlogd = Virtlogd(tmp_path / f"{machine}.log")
    virtlogd.write(b"early ")
    records.sweep()
    virtlogd.rotate()
    virtlogd.write(b"and late")
    records.keep(machine, group="1000/thief", node="n")
    assert all_of(records, machine) == b""
    assert records.find("1000/thief", "n") == machine
    virtlogd.write(b"of the other")
    assert all_of(records, machine) == b"of the other"
    kept = records.find("0/dev", "n")
    assert kept is not None
    assert all_of(records, kept) == b"early and late"
    await records.purge("1000/thief")
    assert all_of(records, kept) == b"early and late"
    await records.purge("0/dev")
    assert records.find("0/dev", "n") is None
    assert not list(tmp_path.iterdir())


def test_a_record_goes_on_in_another_cluster_of_its_owner(records: Records, machine: UUID) -> None:
    records.append(machine, b"said")
    records.keep(machine, group="0/renamed", node="m")
    assert all_of(records, machine) == b"said"
    assert records.find("0/renamed", "m") == machine


async def test_purging_where_nothing_was_recorded_is_no_error(tmp_path: Path) -> None:
    await Records(tmp_path / "nowhere").purge("0/dev")


def test_a_full_record_loses_its_oldest_files_and_offsets_stay(
    machine: UUID, tmp_path: Path
) -> None:
    records, log = Records(tmp_path, most=50), Virtlogd(tmp_path / f"{machine}.log")
    records.keep(machine, group="0/dev", node="n")
    written = b""
    for number in range(40):
        part = b"part %04d\n" % number
        written += part
        log.write(part)
        records.sweep()
        log.rotate()
    records.sweep()
    assert sum(file.stat().st_size for file in (tmp_path / f"{machine}.d").glob("*.log")) == 50
    again = Records(tmp_path, most=50)
    assert again.size(machine) == len(written)
    assert again.read(machine, 0, 10) == (350, b"part 0035\n")
    assert again.read(machine, 365, 10) == (365, b"0036\n")
    assert again.read(machine, len(written), 10) == (len(written), b"")
    assert again.tail(machine, 15) == written[-15:]


def test_a_record_that_has_all_its_names_is_not_looked_at_again(
    machine: UUID, tmp_path: Path
) -> None:
    """Tens of thousands are kept of machines that are gone: each second all were looked at."""
    looked = list[UUID]()

    class Counting(Records):
        def _written_of(self, machine: UUID) -> list[tuple[int, Path]]:
            looked.append(machine)
            return super()._written_of(machine)

    records, log = Counting(tmp_path), Virtlogd(tmp_path / f"{machine}.log")
    records.keep(machine, group="0/dev", node="n")
    log.write(b"a")
    records.sweep()
    assert looked == [machine]
    log.write(b"b")
    records.sweep()
    assert looked == [machine]
    log.rotate()
    log.write(b"c")
    records.sweep()
    assert looked == [machine, machine], "a new file"
    assert all_of(records, machine) == b"abc"


def test_a_stamp_changes_with_whatever_is_written(machine: UUID, tmp_path: Path) -> None:
    records, log = Records(tmp_path), Virtlogd(tmp_path / f"{machine}.log")
    seen = [records.stamp(machine)]
    records.keep(machine, group="0/dev", node="n")

    def differs() -> bool:
        seen.append(records.stamp(machine))
        return seen[-1] not in seen[:-1] and records.stamp(machine) == seen[-1]

    log.write(b"a")
    assert differs()
    records.sweep()
    log.write(b"b")
    assert differs()
    log.rotate()
    log.write(b"cc")
    assert differs()
    other = uuid4()
    records.keep(other, group="0/dev", node="m")
    empty = records.stamp(other)
    records.append(other, b"of SOL")
    assert records.stamp(other) != empty


def test_files_that_virtlogd_still_has_are_not_dropped(machine: UUID, tmp_path: Path) -> None:
    records, log = Records(tmp_path, most=1), Virtlogd(tmp_path / f"{machine}.log")
    records.keep(machine, group="0/dev", node="n")
    for number in range(KEPT):
        log.write(b"part %d\n" % number)
        log.rotate()
    for _ in range(3):
        records.sweep()
    assert all_of(records, machine) == b"part 0\npart 1\npart 2\n"


def test_a_segment_that_a_crash_left_after_it_was_dropped_does_not_count(
    machine: UUID, tmp_path: Path
) -> None:
    records = Records(tmp_path, most=SEGMENT_SIZE)
    records.keep(machine, group="0/dev", node="n")
    for letter in b"abc":
        records.append(machine, bytes([letter]) * SEGMENT_SIZE)
    (tmp_path / f"{machine}.d" / "00000001.log").write_bytes(b"left")
    assert records.size(machine) == 3 * SEGMENT_SIZE
    assert records.read(machine, 0, 1) == (2 * SEGMENT_SIZE, b"c")


def test_a_record_that_became_shorter_is_read_from_its_beginning(
    records: Records, machine: UUID, tmp_path: Path
) -> None:
    """That of a simulated machine is cut at its place."""
    (tmp_path / f"{machine}.log").write_bytes(b"rest")
    assert records.read(machine, 100, 10) == (0, b"rest")
