"""Consoles of servers, of which Nova tells the end: nothing twice, and nothing missing unsaid."""

from __future__ import annotations

from nospoon.providers.openstack.records import GAP, LONGEST_PAUSE, OVERLAP, Known

TAIL = 100 << 10
"""What Nova gives of a log at most."""


def lines(first: int, last: int) -> str:
    return "".join(f"line {number}: something happens\r\n" for number in range(first, last))


def test_what_is_said_twice_is_told_once() -> None:
    known = Known()
    assert known.more(lines(0, 5), restarted=True) == lines(0, 5)
    assert known.more(lines(0, 5), restarted=False) == ""
    assert known.more(lines(0, 9), restarted=False) == lines(5, 9)


def test_a_log_of_which_the_beginning_is_cut_off_goes_on_where_it_was() -> None:
    known = Known()
    known.more(lines(0, 3000)[-TAIL:], restarted=True)
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


def test_lines_that_repeat_are_told_as_often_as_they_came() -> None:
    known, same = Known(), "tick\r\n"
    assert known.more(same * 10, restarted=True) == same * 10
    assert known.more(same * 25, restarted=False) == same * 15
    assert len(known.end) <= OVERLAP


def test_a_log_that_says_nothing_is_read_less_and_less_often_until_it_says_something() -> None:
    known, now, pauses = Known(), 100.0, []
    for _ in range(5):
        known.rest(now, said=False, shortest=10)
        pauses.append(known.due - now)
        now = known.due
    assert pauses == [10, 20, 40, 60, 60]
    assert pauses[-1] == 10 * LONGEST_PAUSE
    known.rest(now, said=True, shortest=10)
    assert known.due == now
