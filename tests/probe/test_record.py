"""Finding the record in a console's bytes: whole, torn, repeated, mixed with noise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nospoon.probe.record import Record, decode, find, find_all, frame
from nospoon.testing.probed import body

GOOD = frame(body())
LINES = GOOD.splitlines(keepends=True)


def cpus(stream: bytes) -> int | None:
    record = find(stream)
    return record.cpus if record else None


def test_a_record_is_read() -> None:
    record = find(GOOD)
    assert record is not None
    assert (record.cpus, record.memory, record.secure_boot) == (2, 256 << 20, False)
    assert [(disk.name, disk.size, disk.serial) for disk in record.disks] == [
        ("vda", 1 << 30, "SER1")
    ]
    assert [nic.mac for nic in record.nics] == ["02:00:00:00:00:01"]


def test_no_line_is_longer_than_a_terminal() -> None:
    assert max(len(line.rstrip()) for line in LINES) <= 80


@pytest.mark.parametrize(
    ("name", "stream"),
    [
        ("carriage returns", GOOD.replace(b"\n", b"\r\n")),
        ("noise around", b"\x1b[2J\x00BdsDxe: loading\r\n" + GOOD + b"nospoon-probe# "),
        ("echo", b"".join(line + line for line in LINES)),
        ("kernel messages between", b"[  1.0] random: crng init done\n".join(LINES)),
        ("half a line of somebody first", b"login: " + GOOD),
        ("a torn first copy", GOOD[:500] + b"\r\n" + GOOD),
        ("gaps that copies fill", b"".join(LINES[::2]) + b"".join(LINES[1::2])),
        ("lines out of order", b"".join(reversed(LINES))),
    ],
)
def test_a_record_is_found_in_spite_of(name: str, stream: bytes) -> None:
    assert cpus(stream) == 2, name


@pytest.mark.parametrize(
    ("name", "stream"),
    [
        ("nothing", b""),
        ("only noise", b"GRUB loading..\r\n" * 50),
        ("a line missing", b"".join(LINES[:3] + LINES[4:])),
        ("a last line without its end", GOOD.rstrip(b"\n")),
        ("a damaged character", GOOD.replace(LINES[2], LINES[2][:60] + b"A" + LINES[2][61:])),
        ("a number past the total", LINES[0].replace(b" 1/", b" 9999/")),
        ("number zero", LINES[0].replace(b" 1/", b" 0/")),
        ("a sound frame around something else", frame(b'{"version": 1}')),
        ("a sound frame around no JSON", frame(b"\xff\x00")),
    ],
)
def test_no_record_is_found_in(name: str, stream: bytes) -> None:
    assert find(stream) is None, name


def test_a_damaged_line_is_outdone_by_a_sound_copy() -> None:
    damaged = GOOD.replace(LINES[2], LINES[2][:60] + b"A" + LINES[2][61:])
    assert cpus(damaged + GOOD) == 2


def test_the_last_record_wins() -> None:
    assert cpus(GOOD + frame(body(cpus=7))) == 7
    assert cpus(frame(body(cpus=7)) + GOOD + GOOD) == 2


def test_an_unfinished_later_record_does_not_hide_an_earlier_one() -> None:
    assert cpus(GOOD + frame(body(cpus=7))[:-100]) == 2


def test_each_record_is_counted_once_and_where_it_ends() -> None:
    other = frame(body(cpus=7))
    found = find_all(GOOD + GOOD + other)
    assert [one.record.cpus for one in found] == [2, 7]
    assert found[0].end <= len(GOOD) * 2 < found[1].end


@given(st.binary(max_size=500), st.binary(max_size=500))
def test_garbage_before_and_behind_does_no_harm(before: bytes, behind: bytes) -> None:
    assert cpus(before + b"\n" + GOOD + behind) == 2


@given(st.data())
def test_whatever_is_torn_out_gives_the_truth_or_nothing(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(GOOD)))
    end = data.draw(st.integers(start, len(GOOD)))
    assert cpus(GOOD[:start] + GOOD[end:]) in {2, None}


@given(
    st.lists(st.sampled_from([*LINES, b"#nospoon ", b"0/0 ", b"\n", b"1/2 QQ==\n"]), max_size=30)
)
def test_mixed_up_pieces_never_raise(pieces: list[bytes]) -> None:
    find_all(b"".join(pieces))


@given(st.binary(max_size=200))
def test_garbage_over_http_is_no_record(data: bytes) -> None:
    assert decode(data) is None


def test_fields_unknown_to_us_are_let_pass() -> None:
    assert isinstance(decode(body(later="addition")), Record)
