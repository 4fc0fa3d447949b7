"""A network namespace of a test's own (network_namespaces(7)): every port is free in it.

It is the calling thread's, and that of the threads and processes which this one starts meanwhile.
Threads that run already stay where they are.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

CLONE_NEWNET = 0x40000000
"""linux/sched.h"""


@contextlib.contextmanager
def own_network() -> Iterator[None]:
    """Only loopback is there, and up. Needs root."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open(Path("/proc/thread-self/ns/net"), os.O_RDONLY | os.O_CLOEXEC)
    try:
        _checked(libc.unshare(CLONE_NEWNET))
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            yield
        finally:
            _checked(libc.setns(before, CLONE_NEWNET))
    finally:
        os.close(before)


def _checked(status: int) -> None:
    if status:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
