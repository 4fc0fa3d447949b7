"""What a console says: panics and failed installations, in pieces as they come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nospoon.lab.consoles import MOST_LINE, MOST_PANICS, Detector, Sign

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


BOOTS = [
    "[    0.000000] Linux version 6.1.0-13-amd64 (debian-kernel@lists.debian.org)",
    "SeaBIOS (version 1.16.2-debian-1.16.2-1)",
    "iPXE 1.0.0+ -- Open Source Network Boot Firmware -- https://ipxe.org",
    "BdsDxe: loading Boot0001",
    "GNU GRUB  version 2.06",
]


@pytest.mark.parametrize("boot", BOOTS)
def test_each_panic_has_its_number_and_a_machine_starts_between_two(boot: str) -> None:
    once = f"Oops: 0002 [#1] SMP\ncall trace\n{PANICS[0]}\n---[ end {PANICS[0]} ]---\n"
    detector = Detector()
    findings = detector.feed(f"{boot}\n{once}{boot}\nlogin:\n{boot}\n{once}".encode())
    assert [each.number for each in findings] == [1, 2]
    assert {each.line for each in findings} == {"Oops: 0002 [#1] SMP"}


PIECES = st.sampled_from(
    [*(f"{each}\n" for each in (*PANICS, *BOOTS, "", "x" * 700)), "no end", "Kernel panic -"]
)


@given(st.lists(PIECES, max_size=20), st.lists(st.integers(0, 4000), max_size=5), st.data())
def test_another_daemon_goes_on_behind_the_last_panic_and_finds_the_same(
    pieces: list[str], cuts: list[int], data: st.DataObject
) -> None:
    """It knows how many there were, and where the last one was."""
    text = "".join(pieces).encode()
    whole = [(each.number, each.line) for each in Detector().feed(text + b"\n") if each.number]
    seen, detector, start = list[tuple[int, str]](), Detector(), 0
    for cut in [*sorted(min(each, len(text)) for each in cuts), len(text) + 1]:
        known = detector.feed((text + b"\n")[start:cut])
        panics = [each for each in known if each.number]
        lasts = data.draw(st.integers(0, len(panics)))  # it dies before the others are stored
        seen += [(each.number, each.line) for each in panics[:lasts]]
        if lasts:
            last = panics[lasts - 1]
            start = last.end
            detector = Detector(at=last.end, panics=last.number)
        elif panics:
            break
        else:
            start = cut
    assert seen == whole[: len(seen)]


def test_what_is_missing_of_a_console_is_no_part_of_a_line() -> None:
    detector = Detector()
    assert not detector.feed(b"Kernel pa")
    detector.skip(5000)
    (finding,) = detector.feed(b"nic\nKernel panic\n")
    assert (finding.number, finding.end) == (1, 5017)


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


def test_a_guest_that_panics_without_end_is_found_a_bounded_number_of_times() -> None:
    """Each finding is logged, and waits for its turn with the scheduler of all labs."""
    cycles = b"Linux version 6.1\nKernel panic - not syncing\n" * 500
    detector = Detector()
    numbers = [each.number for each in detector.feed(cycles)]
    assert numbers == list(range(1, MOST_PANICS + 1))
    assert not detector.feed(cycles)
    assert not Detector(at=9, panics=MOST_PANICS).feed(cycles), "of another daemon's"
    (finding,) = detector.feed(b"Error while installing GRUB\n")
    assert finding.sign is Sign.INSTALL_FAILED
