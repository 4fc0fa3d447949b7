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
STARTED = (
    r"Linux version [0-9]",
    r"SeaBIOS \(",
    r"BdsDxe: ",
    r"iPXE [0-9i]",
    r"GNU GRUB",
    r"(?:SYS|ISO|PXE|EXT)LINUX [0-9]",
    r"U-Boot [0-9]",
    r"Xen version [0-9]",
)
"""What firmware, boot loaders and kernels write first. All that a panic writes comes before."""
MOST_LINE = 512
"""Bytes of a line that are looked at: a longer one is cut into pieces of that."""
OVERLAP = 128
"""Bytes of the piece before that are looked at again, so that a cut hides nothing."""
SHOWN = 200
MOST_PANICS = 100
"""Of a machine that are found: a guest may write as many as it likes."""
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[@-Z\\-_])|[\x00-\x09\x0b-\x1f\x7f]")


def _searching(patterns: Sequence[str]) -> Callable[[str], bool]:
    search = re.compile("|".join(patterns)).search
    return lambda line: search(line) is not None


_PANIC, _INSTALL_FAILED = _searching(PANIC), _searching(INSTALL_FAILED)
_STARTED = _searching(STARTED)


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
    """`number`: of a panic, from 1 on. `end`: offset in the console behind what was looked at."""

    sign: Sign
    line: str
    number: int = 0
    end: int = 0


class Detector:
    """Reads a console as it grows. `panic`: texts in place of `PANIC`, in which `*` is any text.

    A panic writes many lines that show it; the next one is another if the machine has started again
    in between. A failed installation is found once. `at`: offset where it goes on, behind the last
    of `panics` that were found before.
    """

    def __init__(self, panic: Sequence[str] = (), *, at: int = 0, panics: int = 0) -> None:
        texts = [tuple(filter(None, each.split("*"))) for each in panic]
        self._shows_panic = partial(_has_any, texts) if texts else _PANIC
        self._rest, self._end, self._panics = b"", at, panics
        self._in_panic, self._failed = panics > 0, False
        self.waits = False
        """Whether a last line that has no end was not looked at so far."""

    def feed(self, data: bytes) -> list[Finding]:
        """What is new in these bytes, which may end in the middle of a line."""
        return list(self._feed(data))

    def skip(self, at: int) -> None:
        """The bytes up to this offset are missing."""
        self._rest, self._end = b"", at

    def _feed(self, data: bytes) -> Iterator[Finding]:
        *lines, rest = (self._rest + data).split(b"\n")
        at = self._end - len(self._rest)
        self._end += len(data)
        for line in lines:
            at += len(line) + 1
            yield from self._look(line, at)
        while len(rest) > MOST_LINE:
            piece, rest = rest[:MOST_LINE], rest[MOST_LINE - OVERLAP :]
            yield from self._look(piece, self._end - len(rest))
        self._rest, self.waits = rest, bool(rest)

    def idle(self) -> list[Finding]:
        """Nothing came for a while: a last line that has no end is looked at as it is."""
        self.waits = False
        return list(self._look(self._rest, self._end))

    def _look(self, line: bytes, end: int) -> Iterator[Finding]:
        for start in range(0, max(len(line), 1), MOST_LINE - OVERLAP):
            text = line[start : start + MOST_LINE].decode("utf-8", "replace")
            plain = _ESCAPES.sub("", text)
            shown = plain.strip()[:SHOWN]
            if self._in_panic and _STARTED(plain):
                self._in_panic = False
            goes_on = self._in_panic or self._panics >= MOST_PANICS
            if not goes_on and self._shows_panic(plain):
                self._in_panic, self._panics = True, self._panics + 1
                yield Finding(Sign.PANIC, shown, self._panics, end)
            if not self._failed and _INSTALL_FAILED(plain):
                self._failed = True
                yield Finding(Sign.INSTALL_FAILED, shown, end=end)
