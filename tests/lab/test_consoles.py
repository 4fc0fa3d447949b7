"""What a console says: panics and failed installations, in pieces as they come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nospoon.lab.consoles import MOST_LINE, Detector, Sign

PANICS = [
    "Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)",
    "Oops: 0002 [#1] SMP",
    "Oops[#1]:",
    "general protection fault: 0000 [#1] SMP",
    "(XEN) Panic on CPU 0:",
    "[ 9.1] kernel BUG at fs/btrfs/inode.c:1234!",
    "\x1b[1;31mKernel\x1b[0m panic - not syncing: \x00Fatal exception",
]
NOT_PANICS = [
    "traps: a.out[1] general protection fault ip:4004f4 sp:7ff",
    "Oopsie",
    "kernel BUGS at home",
    "panic=10 on the command line",
]


def found(data: bytes, *, panic: tuple[str, ...] = ()) -> list[Sign]:
    detector = Detector(panic)
    return [each.sign for each in (*detector.feed(data), *detector.idle())]


@pytest.mark.parametrize("line", PANICS)
def test_a_panic_is_seen_once(line: str) -> None:
    data = f"booting\r\n{line}\r\n{line}\r\n".encode()
    assert found(data) == [Sign.PANIC]


@pytest.mark.parametrize("line", NOT_PANICS)
def test_what_only_looks_like_one_is_none(line: str) -> None:
    assert found(f"{line}\n".encode()) == []


@pytest.mark.parametrize(
    "line",
    ["You do not have enough RAM to install Fedora", "Pane is dead", "Error while installing GRUB"],
)
def test_an_installer_that_gives_up_is_seen(line: str) -> None:
    assert found(f"{line}\n".encode()) == [Sign.INSTALL_FAILED]


@given(st.lists(st.integers(0, 60), max_size=6), st.sampled_from(PANICS[:6]))
def test_a_line_may_come_in_pieces(cuts: list[int], line: str) -> None:
    data = f"a\n{line}\nb".encode()
    detector, signs, start = Detector(), [], 0
    for cut in [*sorted(cuts), len(data)]:
        signs += [each.sign for each in detector.feed(data[start:cut])]
        start = max(start, cut)
    assert signs == [Sign.PANIC]


@pytest.mark.parametrize("before", [0, MOST_LINE - 5, 3 * MOST_LINE - 7])
def test_a_line_without_an_end_is_looked_at_in_bounded_pieces(before: int) -> None:
    detector, signs = Detector(), []
    data = b"x" * before + b"Kernel panic - not syncing" + b"y" * MOST_LINE
    for start in range(0, len(data), 1000):
        signs += [each.sign for each in detector.feed(data[start : start + 1000])]
    assert signs == [Sign.PANIC]


def test_other_patterns_take_the_place_of_the_usual_ones() -> None:
    assert found(b"guru meditation\n", panic=("guru",)) == [Sign.PANIC]
    assert found(b"Kernel panic\n", panic=("guru",)) == []
    assert found(b"guru says: meditation 7\n", panic=("x", "guru*meditation*7")) == [Sign.PANIC]
    assert found(b"meditation guru\n", panic=("guru*meditation",)) == []
    assert found(b"(a+)+$\n", panic=("(a+)+$",)) == [Sign.PANIC], "it is a text"


def test_what_is_not_utf8_is_no_obstacle() -> None:
    assert found(b"\xff\xfe Kernel panic \xc3\n") == [Sign.PANIC]
