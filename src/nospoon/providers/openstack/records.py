"""What the console log of a server says that it did not say before (os-getConsoleOutput).

Nova gives the end of a log, 100 KiB of it, without most control characters. Where nothing of what
was known is in it any more, what came between is lost; so is the beginning of a log that is longer
when it is read first. The record says both. Each boot may begin a new log.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

OVERLAP = 80
"""Characters by which a log is found again in what comes later; searched for in `LONGEST_LOG`."""
MOST_SHOWN = 100 << 10
"""Bytes that Nova gives of a log (nova/virt/libvirt/driver.py:MAX_CONSOLE_BYTES)."""
ESCAPES = re.compile(r"\[[0-9;?]*[HJKhlm]")
"""What Nova leaves of ESC [ … (ECMA-48 §5.4): it removes U+0000 to U+001F but for tab and line
feed (nova/api/openstack/compute/console_output.py).
"""
STRAY = 32
"""Of others that it removes in 100 KiB, at most: a whole log that lacks fewer counts as cut."""
LEAST = 8
"""Characters that a log begins with, and a record does not end with by chance."""
LONGEST_LOG = 128 << 10
"""Characters of an answer that are looked at; Nova gives 100 KiB."""
GAP = "\r\n[nospoon: something of this console is missing here]\r\n"


FAST = 1024
"""Characters of a log a second, from which on its beginning may soon be cut off."""
LONGEST_PAUSE, LONGEST_SILENCE = 5, 30
"""Times the shortest, for logs that say little, and nothing: there may be a thousand of them."""


@dataclass(slots=True)
class Known:
    """What a log said last: its length, a digest of it, and its end. `due`: when it is read next,
    on the monotonic clock; the less it says, the later. `is_over`: it says no more until its
    machine starts. `is_left`: it is starting, with which Nova begins a new log. `is_held`: Nova
    resets it, and what it shows meanwhile may be of either boot.
    """

    length: int = 0
    digest: bytes = b""
    end: str = ""
    due: float = 0.0
    pause: float = 0.0
    is_over: bool = False
    is_left: bool = False
    is_held: bool = False

    def begin(self, now: float, shortest: float) -> None:
        """Its machine starts; as `rest`."""
        self.is_over, self.is_left = False, self.is_over or self.is_left
        self.pause = 2 * shortest
        self.due = now + self.pause

    def start(self) -> None:
        """It was started: all of its log is new, whatever it begins with."""
        if self.is_left:
            self.length, self.is_left = 0, False

    def recall(self, recorded: str, log: str) -> None:
        """`recorded`: the end of its record, which was written before this began. It may have all
        of a log that has said little.
        """
        end = recorded[-OVERLAP:]
        self.length, self.end = len(end), end
        if end and end in log:
            return
        for length in range(min(len(log), len(end)), LEAST, -1):
            if end.endswith(log[:length]):
                self.length, self.digest = length, _digest(log[:length])
                return

    def reset(self) -> None:
        """Nova has reset it: all of its log is of the new boot, whatever it begins with."""
        self.length = 0

    def rest(self, now: float, *, said: int, shortest: float) -> None:
        """It was read. `said`: characters that were new. `shortest` in seconds: from a reading to
        the next of a log that says much.
        """
        longest = shortest * (LONGEST_PAUSE if said else LONGEST_SILENCE)
        is_fast, was_silent = said >= FAST * self.pause, said and self.pause > longest
        slower = min(max(2 * self.pause, shortest), longest)
        self.pause = shortest if is_fast or was_silent else slower
        self.due = now + self.pause

    def more(self, log: str, *, restarted: bool, is_on: bool = True) -> str:
        """What is new of a log, with a mark where something is missing; it is known from now on.

        `restarted`: the machine was started since. `is_on`: it runs; else it may not have started.
        """
        if is_on:
            self.start()
        found = self._more(log, restarted=restarted)
        self.length, self.digest, self.end = len(log), _digest(log), log[-OVERLAP:]
        return found

    def _more(self, log: str, *, restarted: bool) -> str:
        if _digest(log[: self.length]) == self.digest or not self.length:
            return log[self.length :] if self.length or not is_cut(log) else f"{GAP}{log}"
        at = log.rfind(self.end)
        if at >= 0:
            return log[at + len(self.end) :]
        return log if restarted and not is_cut(log) else f"{GAP}{log}"


def is_cut(log: str) -> bool:
    """Whether there was more before its beginning, by the bytes that Nova read of it: each of them
    is a character here, or was removed.
    """
    if len(log) >= MOST_SHOWN or "\r" in log:  # not by Nova
        return len(log) >= MOST_SHOWN
    removed = log.count("\n") + sum(1 for _ in ESCAPES.finditer(log))
    return len(log) + removed + STRAY > MOST_SHOWN


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
