"""What the console log of a server says that it did not say before (os-getConsoleOutput).

Nova gives the end of a log, 100 KiB of it. Where nothing of what was known is in it any more, what
came between is lost, and that is said in the record; each boot may begin a new log.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

OVERLAP = 80
"""Characters by which a log is found again in what comes later; searched for in `LONGEST_LOG`."""
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
            return log[self.length :]
        at = log.rfind(self.end)
        if at >= 0:
            return log[at + len(self.end) :]
        return log if restarted else f"{GAP}{log}"


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
