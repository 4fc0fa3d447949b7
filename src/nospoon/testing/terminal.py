"""A program on a terminal of its own, typed at and read, as a person does."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from nospoon.runtime.clock import monotonic


class Terminal:
    """`heard` is what the program showed and no one has asked for yet."""

    def __init__(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None) -> None:
        self.master, self.slave = pty.openpty()
        self.before = termios.tcgetattr(self.slave)
        self.heard = b""
        self.process = subprocess.Popen(
            ["env", "--default-signal=INT", *argv],
            stdin=self.slave, stdout=self.slave, stderr=self.slave, env=env,
            start_new_session=True,
        )  # fmt: skip

    def types(self, data: bytes) -> None:
        os.write(self.master, data)

    def shows(self, word: bytes, *, seconds: float = 240) -> None:
        """Wait until it shows this; what came before is skipped."""
        deadline = monotonic() + seconds
        while word not in self.heard:
            ready, _, _ = select.select([self.master], [], [], max(0, deadline - monotonic()))
            assert ready, f"no {word!r} in {seconds} s; instead: {self.heard!r}"
            self.heard += os.read(self.master, 1 << 16)
        self.heard = self.heard.partition(word)[2]

    def ends(self) -> int:
        """Wait for its end; the exit status. The terminal must be as it was before."""
        status = self.process.wait(60)
        assert termios.tcgetattr(self.slave) == self.before
        return status

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@contextmanager
def terminal(argv: Sequence[str], *, env: Mapping[str, str] | None = None) -> Iterator[Terminal]:
    """A terminal that is closed at the end, and its program with it."""
    made = Terminal(argv, env=env)
    try:
        yield made
    finally:
        made.close()
