"""A machine's serial port as virtlogd writes it: read also while no daemon of ours lives."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from nospoon.runtime.clock import monotonic

LOOK_SECONDS = 0.05


@dataclass
class Serial:
    """Reads a console record from where it stopped last. For records shorter than a rotation."""

    record: Path
    offset: int = 0

    def hears(self, *words: bytes, seconds: float = 240) -> bytes:
        """The first of these words that comes; what came before is skipped."""
        deadline = monotonic() + seconds
        while monotonic() < deadline:
            heard = self.unheard()
            found = [(heard.index(word), word) for word in words if word in heard]
            if found:
                at, word = min(found)
                self.offset += at + len(word)
                return word
            time.sleep(LOOK_SECONDS)
        raise AssertionError(f"heard none of {words} in {seconds} s; instead: {self.unheard()!r}")

    def skip(self) -> None:
        """What was said until now is not heard any more."""
        self.offset = len(self.all())

    def unheard(self) -> bytes:
        """What was said since."""
        return self.all()[self.offset :]

    def all(self) -> bytes:
        return self.record.read_bytes() if self.record.exists() else b""
