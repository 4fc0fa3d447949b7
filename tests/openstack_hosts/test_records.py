"""Consoles of servers, of which Nova tells the end: nothing twice, and nothing missing unsaid."""

from __future__ import annotations

import re

import pytest

from nospoon.providers.openstack.records import (
    FAST,
    GAP,
    LONGEST_LOG,
    LONGEST_PAUSE,
    LONGEST_SILENCE,
    OVERLAP,
    Known,
    is_cut,
)

TAIL = 100 << 10
"""What Nova gives of a log at most."""


def lines(first: int, last: int) -> str:
    return "".join(f"line {number}: something happens\r\n" for number in range(first, last))


def test_what_is_said_twice_is_told_once() -> None:
    known = Known()
    assert known.more(lines(0, 5), restarted=True) == lines(0, 5)
    assert known.more(lines(0, 5), restarted=False) == ""
    assert known.more(lines(0, 9), restarted=False) == lines(5, 9)


def shown(log: str) -> str:
    """What Nova gives of a log."""
    return re.sub("[\x00-\x08\x0b-\x1f]", "", log[-TAIL:])


@pytest.mark.parametrize("restarted", [True, False])
@pytest.mark.parametrize(
    "line",
    ["\x1b[2J\x1b[01;01H\x1b[0mline {}: \x1b[32mOK\x1b[m\r\n", "line {}\r\n", "\xff{}"],
)
def test_a_log_that_is_cut_when_it_is_read_first_begins_with_a_gap(
    line: str, *, restarted: bool
) -> None:
    whole = "".join(line.format(number) for number in range(20_000))
    known, cut = Known(), shown(whole)
    assert known.more(cut, restarted=restarted) == f"{GAP}{cut}"
    assert known.more(cut, restarted=False) == ""
    for length in (TAIL // 3, TAIL - 999):
        kept = shown(whole[:length])
        assert Known().more(kept, restarted=restarted) == kept, "it is whole"


def test_a_boot_that_says_more_than_is_kept_before_it_is_read_has_a_gap() -> None:
    known = Known()
    known.more(lines(0, 10), restarted=True)
    known.is_over = True
    known.begin(100.0, 2)
    cut = lines(100, 9000)[-TAIL:]
    assert known.more(cut, restarted=True) == f"{GAP}{cut}"
    other = lines(9000, 20_000)[-TAIL:]
    assert known.more(other, restarted=True) == f"{GAP}{other}"


def test_a_log_without_control_characters_is_cut_where_it_has_all_that_nova_gives() -> None:
    assert not is_cut("x" * (TAIL - OVERLAP))
    assert is_cut("x" * TAIL)
    assert is_cut("\r\n" * (TAIL // 2))
    assert not is_cut("\r\n" * (TAIL // 3))
    assert is_cut("[" * LONGEST_LOG)


def test_a_log_goes_on_where_its_record_ends() -> None:
    recorded, log = lines(0, 5), lines(0, 9)
    for record, at, expected in (
        (recorded, log, lines(5, 9)),
        ("", log, log),
        (recorded, lines(7, 9), GAP + lines(7, 9)),
        (f"{recorded}BIOS\nlogin: ", "BIOS\nlogin: root", "root"),
        (f"{recorded}BIOS\nlogin: ", "BIOS\nlogin: ", ""),
        (f"{recorded}B", "BIOS", f"{GAP}BIOS"),
    ):
        known = Known()
        known.recall(record, at)
        assert known.more(at, restarted=False) == expected


def test_a_log_of_which_the_beginning_is_cut_off_goes_on_where_it_was() -> None:
    known = Known()
    known.more(lines(0, 3000)[-TAIL:], restarted=True)
    assert known.more(lines(0, 3000)[-TAIL:], restarted=False) == ""
    assert known.more(lines(0, 3500)[-TAIL:], restarted=False) == lines(3000, 3500)


def test_where_more_came_than_is_kept_a_gap_is_marked() -> None:
    known = Known()
    known.more(lines(0, 10), restarted=True)
    later = lines(0, 9000)[-TAIL:]
    assert known.more(later, restarted=False) == f"{GAP}{later}"


def test_a_log_that_begins_anew_with_a_boot_has_no_gap() -> None:
    known = Known()
    known.more(lines(0, 100), restarted=True)
    assert known.more("BIOS\r\n", restarted=True) == "BIOS\r\n"


@pytest.mark.parametrize("log", [lines(0, 3), lines(0, 9), "BIOS\r\n" + lines(0, 3)])
def test_a_boot_that_says_what_the_one_before_said_is_told_whole(log: str) -> None:
    """Nova begins a new log with each start; its text was taken for that of the boot before."""
    known = Known()
    assert known.more(lines(0, 3), restarted=True) == lines(0, 3)
    known.is_over = True
    known.begin(100.0, 2)
    assert known.more(log, restarted=True) == log
    assert known.more(log + "more", restarted=False) == "more"


def test_of_a_machine_that_did_not_start_nothing_is_told_twice() -> None:
    known = Known()
    known.more(lines(0, 3), restarted=True)
    known.is_over = True
    known.begin(100.0, 2)
    assert known.more(lines(0, 3), restarted=True, is_on=False) == ""
    known.begin(200.0, 2)
    known.start()
    assert known.more(lines(0, 3), restarted=True, is_on=False) == lines(0, 3)


def test_lines_that_repeat_are_told_as_often_as_they_came() -> None:
    known, same = Known(), "tick\r\n"
    assert known.more(same * 10, restarted=True) == same * 10
    assert known.more(same * 25, restarted=False) == same * 15
    assert len(known.end) <= OVERLAP


def pauses(known: Known, now: float, *said: int) -> list[float]:
    """After readings with so many new characters each, of a log that is read when it is due."""
    found = []
    for each in said:
        known.rest(now, said=each, shortest=2)
        found.append(known.due - now)
        now = known.due
    return found


def test_a_log_that_says_nothing_is_read_less_and_less_often_until_it_says_something() -> None:
    known = Known()
    assert pauses(known, 100.0, *[0] * 7) == [2, 4, 8, 16, 32, 60, 60]
    assert known.pause == 2 * LONGEST_SILENCE
    assert pauses(known, 500.0, 1, 0, 0) == [2, 4, 8]


def test_a_log_that_says_little_is_read_seldom_and_one_that_says_much_often() -> None:
    known, much = Known(), 2 * LONGEST_PAUSE * FAST
    assert pauses(known, 100.0, 10, 10, 10, 10, 10) == [2, 4, 8, 10, 10]
    assert pauses(known, 200.0, much, much, much) == [2, 2, 2]


def test_a_machine_that_starts_has_a_console_that_is_read_soon() -> None:
    known = Known()
    pauses(known, 100.0, *[0] * 7)
    known.is_over = True
    known.begin(700.0, 2)
    assert (known.due, known.is_over) == (704.0, False)
