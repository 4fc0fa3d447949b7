"""A guest's console: what it writes while `verify` looks for the probe's record."""

from __future__ import annotations

import hashlib

from nospoon.probe.record import LONGEST_LINE, MAX_LINES, MAX_RECORDS, Finder, decode, frame
from nospoon.testing.probed import body

FORGED = b"#nospoon 0123456789abcdef %d/%d %s\n"


def test_a_line_that_a_guest_repeats_does_not_have_the_whole_record_joined_each_time() -> None:
    finder = Finder()
    finder.feed(b"".join(FORGED % (n, MAX_LINES, b"A" * 48) for n in range(1, MAX_LINES + 1)))
    repeated = 2000
    finder.feed(b"".join(FORGED % (1, MAX_LINES, b"%04d" % n) for n in range(repeated)))
    assert finder.tries <= 4 * (MAX_LINES + repeated)


def test_what_a_guest_writes_is_not_kept_nor_read_again() -> None:
    finder = Finder()
    for number in range(100):
        mark = hashlib.sha256(b"%d" % number).hexdigest()[:16].encode()
        finder.feed(b"#nospoon " + mark + b" 1/2 AAAA\n" + b"x" * 10_000)
        assert finder.kept <= MAX_RECORDS * 4 + LONGEST_LINE
    (found,) = finder.feed(b"\n" + frame(body()))
    assert found.record == decode(body())


def test_a_record_is_found_wherever_the_stream_is_cut() -> None:
    stream = b"boot\r\n" + frame(body())
    finder = Finder()
    found = [each for byte in stream for each in finder.feed(bytes([byte]))]
    assert [each.record for each in found] == [decode(body())]
    assert found[0].end == len(stream) - 1  # before the line's end
