"""A log that cannot be written breaks nothing, and tells afterwards how much of it is missing."""

from __future__ import annotations

import io
from pathlib import Path

from nospoon.runtime.logs import Unfailing


def test_a_line_for_which_there_is_no_room_is_lost_and_nothing_else() -> None:
    with Path("/dev/full").open("w", buffering=1) as full:
        log = Unfailing(full)
        log.write("a line\n")
        log.flush()
        assert log.lost > 0
        full.buffer.raw.close()  # type: ignore[attr-defined]  (it would complain once more)


class Filling(io.StringIO):
    """A stream that has no room for a while."""

    full = True

    def write(self, text: str) -> int:
        if self.full:
            raise OSError(28, "No space left on device")
        return super().write(text)


def test_how_many_lines_are_lost_is_told_when_there_is_room_again() -> None:
    stream = Filling()
    log = Unfailing(stream)
    log.write("one\n")
    log.write("two\n")
    stream.full = False
    log.write("three\n")
    assert stream.getvalue() == '{"level": "error", "lost_lines": 2}\nthree\n'
