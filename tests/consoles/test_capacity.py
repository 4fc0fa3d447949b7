"""Console logs leave the disk its reserve; those of machines that are gone go first."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import UUID

from nospoon.services.consoles.capacity import LEAST, SHORTENED, Capacity, make_room
from nospoon.services.consoles.records import SEGMENT_SIZE, Records

PART = 100_000


def a_record(records: Records, number: int, user: int, *, age: int = 0, parts: int = 1) -> UUID:
    """Of a machine; `age`: seconds since it was written."""
    machine = UUID(int=number)
    records.keep(machine, group=f"{user}/c", node=f"n{number}")
    for _ in range(parts):
        records.append(machine, b"x" * PART)
    for file in (records.directory / f"{machine}.d").iterdir():
        os.utime(file, (1e9 - age, 1e9 - age))
    return machine


def left(records: Records) -> set[int]:
    return {machine.int for machine in records.machines()}


def free_of(records: Records, disk: int) -> int:
    """Bytes that a disk of so many has free."""
    return disk - sum(each.stat().st_size for each in records.directory.rglob("*.log"))


def test_logs_of_gone_machines_are_bounded_of_each_user_and_the_oldest_goes(tmp_path: Path) -> None:
    records = Records(tmp_path)
    for number in range(5):
        a_record(records, number, 1001, age=number)
    a_record(records, 10, 1002, age=100)
    living = a_record(records, 11, 1001, age=100, parts=9)
    make_room(records, Capacity(lambda each: each != living, most_gone=3 * PART + 100))
    assert left(records) == {0, 1, 2, 10, 11}


def test_empty_logs_of_gone_machines_count_too(tmp_path: Path) -> None:
    records = Records(tmp_path)
    for number in range(6):
        a_record(records, number, 1001, age=number, parts=0)
    make_room(records, Capacity(lambda _: True, most_gone=4 * LEAST))
    assert left(records) == {0, 1, 2, 3}


def test_on_a_full_disk_logs_of_gone_machines_go_first_of_the_user_who_has_most(
    tmp_path: Path,
) -> None:
    records = Records(tmp_path)
    living = {a_record(records, 1, 1001, age=500, parts=5)}
    for number in range(2, 6):
        a_record(records, number, 1001, age=number)
    for number in range(6, 8):
        a_record(records, number, 1002, age=100 + number)
    disk, reserve = 20 * PART, 11 * PART + 1

    def lacking() -> int:
        return max(0, reserve - free_of(records, disk))

    assert lacking() > 0
    make_room(records, Capacity(lambda each: each not in living, lacking))
    assert left(records) == {1, 2, 6, 7}
    assert lacking() == 0


def test_on_a_disk_that_is_still_full_logs_lose_their_older_files_the_largest_first(
    tmp_path: Path,
) -> None:
    records = Records(tmp_path)
    parts = SEGMENT_SIZE // PART * 8
    large = a_record(records, 1, 1001, parts=parts * 2)
    small = a_record(records, 2, 1002, parts=parts)
    gone = a_record(records, 3, 1002)
    before, end = records.usage(small), records.size(large)
    disk = end + before[1]

    def lacking() -> int:
        return max(0, 3 * SEGMENT_SIZE - free_of(records, disk))

    make_room(records, Capacity(lambda each: each == gone, lacking))
    assert left(records) == {1, 2}
    assert SHORTENED - SEGMENT_SIZE < records.usage(large)[1] <= SHORTENED + 100
    assert records.usage(small) == before
    assert records.size(large) == end


def test_a_log_whose_machine_came_back_meanwhile_stays(tmp_path: Path) -> None:
    records = Records(tmp_path)
    machine = a_record(records, 1, 1001)
    answers = iter([True, False])
    make_room(records, Capacity(lambda _: next(answers), most_gone=0))
    assert left(records) == {machine.int}


def test_files_of_virtlogd_go_with_the_log_of_a_gone_machine(tmp_path: Path) -> None:
    records = Records(tmp_path)
    machine = a_record(records, 1, 1001)
    for name in (f"{machine}.log", f"{machine}.log.0"):
        (tmp_path / name).write_bytes(b"x")
    records.sweep()
    make_room(records, Capacity(lambda _: True, most_gone=0))
    assert list(tmp_path.iterdir()) == []
