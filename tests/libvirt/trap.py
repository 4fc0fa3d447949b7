"""Files that look like images of QEMU's, and whether libvirt opens what they name."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

HEADER = struct.Struct(">4sIQIIQIIQQIIQQQQII8x")
"""Of qcow2, version 3 (QEMU, docs/interop/qcow2.txt)."""


def image_over(backing: Path) -> bytes:
    """A qcow2 image on top of that file, whose format it leaves open, so that it is looked at."""
    name = str(backing).encode()
    size = HEADER.size
    head = HEADER.pack(
        b"QFI\xfb", 3, size, len(name), 16, 1 << 20, 0, 1, 3 << 16, 1 << 16, 1, 0, 0, 0, 0, 0, 4,
        size,
    )  # fmt: skip
    return head + name


class Trap:
    """A FIFO that says whether a process opened it, and lets that go on at once: what has opened
    one to read waits until then.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.opened = path, False
        os.mkfifo(path)
        self._ended = Event()
        self._thread = Thread(target=self._look_on)
        self._thread.start()

    def _look_on(self) -> None:
        while not self._ended.wait(0.005):
            with suppress(OSError):  # ENXIO: no process reads
                os.close(os.open(self.path, os.O_WRONLY | os.O_NONBLOCK))
                self.opened = True

    def close(self) -> None:
        self._ended.set()
        self._thread.join()


@contextmanager
def a_trap(directory: Path) -> Iterator[Trap]:
    """Around what may open it, so that the end of that finds it open."""
    made = Trap(directory / "fifo")
    try:
        yield made
    finally:
        made.close()
