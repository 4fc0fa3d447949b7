"""A log that cannot be written breaks nothing, and tells afterwards how much of it is missing."""

from __future__ import annotations

import io

from nospoon.runtime.logs import Unfailing


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
