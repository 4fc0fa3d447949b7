"""What a machine's console says of itself: a kernel's panic, an installer that failed.

Patterns as Beaker's watchdog has them (its LabController's default.conf and
install-failure-patterns); a lab's file may give texts in place of those of a panic. Guests say
anything, without a line end and for ever, and other users write a lab's file: lines are cut, and
no pattern goes back over a line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

PANIC = (
    r"Kernel panic",
    r"Oops[\s:\[]",
    r"general protection fault(?! ip:)",
    r"general protection handler: wrong gs",
    r"\(XEN\) Panic",
    r"kernel BUG at [^:]{1,200}:[0-9]{1,9}!",
)
INSTALL_FAILED = (
    r"Press 'OK' to reboot your system\.",
    r"You do not have enough RAM to install",
    r"Not enough disk space to proceed with the installation",
    r"No usable disks were found",
    r"Installation failed",
    r"The installation cannot continue",
    r"The following error was found while parsing the kickstart",
    r"Pane is dead",
    r"Bad archive mirror",
    r"Error while installing (GRUB|LILO|Yaboot)",
    r"Warning: anaconda: failed to fetch kickstart",
)
MOST_LINE = 512
"""Characters of a line that are looked at: a longer one is cut into pieces of that."""
OVERLAP = 128
"""Characters of the piece before that are looked at again, so that a cut hides nothing."""
SHOWN = 200
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[@-Z\\-_])|[\x00-\x09\x0b-\x1f\x7f]")


def _searching(patterns: Sequence[str]) -> Callable[[str], bool]:
    search = re.compile("|".join(patterns)).search
    return lambda line: search(line) is not None


_PANIC, _INSTALL_FAILED = _searching(PANIC), _searching(INSTALL_FAILED)


def _has_any(texts: Sequence[tuple[str, ...]], line: str) -> bool:
    return any(_has(pieces, line) for pieces in texts)


def _has(pieces: tuple[str, ...], line: str) -> bool:
    """Whether all pieces are in the line, one after another."""
    at = 0
    for piece in pieces:
        found = line.find(piece, at)
        if found < 0:
            return False
        at = found + len(piece)
    return bool(pieces)


class Sign(StrEnum):
    PANIC = "panic"
    INSTALL_FAILED = "install failed"


@dataclass(frozen=True, slots=True)
class Finding:
    sign: Sign
    line: str


class Detector:
    """Reads a console as it grows; findings once each. `panic`: texts in place of `PANIC`, in which
    `*` is any text.
    """

    def __init__(self, panic: Sequence[str] = ()) -> None:
        texts = [tuple(filter(None, each.split("*"))) for each in panic]
        self._signs: dict[Sign, Callable[[str], bool]] = {
            Sign.PANIC: partial(_has_any, texts) if texts else _PANIC,
            Sign.INSTALL_FAILED: _INSTALL_FAILED,
        }
        self._rest = ""
        self._found = set[Sign]()

    def feed(self, data: bytes) -> list[Finding]:
        """What is new in these bytes, which may end in the middle of a line."""
        return list(self._feed(data))

    def _feed(self, data: bytes) -> Iterator[Finding]:
        text = self._rest + data.decode("utf-8", "replace")
        *lines, self._rest = text.split("\n")
        for line in lines:
            yield from self._look(line)
        while len(self._rest) > MOST_LINE:
            piece, self._rest = self._rest[:MOST_LINE], self._rest[MOST_LINE - OVERLAP :]
            yield from self._look(piece)

    def idle(self) -> list[Finding]:
        """Nothing came for a while: a last line that has no end is looked at as it is."""
        return list(self._look(self._rest))

    def _look(self, line: str) -> Iterator[Finding]:
        for start in range(0, max(len(line), 1), MOST_LINE - OVERLAP):
            plain = _ESCAPES.sub("", line[start : start + MOST_LINE])
            for sign, shows in self._signs.items():
                if sign not in self._found and shows(plain):
                    self._found.add(sign)
                    yield Finding(sign, plain.strip()[:SHOWN])
