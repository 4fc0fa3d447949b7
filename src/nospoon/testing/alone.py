"""What tests on one machine must not use at the same time, whatever workers and runs they are of.

Who holds a name has it until the process ends. Abstract names of sockets (unix(7)) belong to a
network namespace, as ports do, and leave nothing behind.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator

PATIENCE = 400.0
"""Seconds; a test may be ended by pytest-timeout before."""


def held(name: str) -> int | None:
    """A descriptor that holds a name until it is closed; None when someone else has the name."""
    holder = socket.socket(socket.AF_UNIX)
    with contextlib.closing(holder), contextlib.suppress(OSError):
        holder.bind(f"\0nospoon-test-{name}")
        return holder.detach()
    return None


@contextlib.contextmanager
def alone(name: str, *, patience: float = PATIENCE) -> Iterator[None]:
    """Hold a name, once no one else does."""
    end = time.monotonic() + patience
    while (descriptor := held(name)) is None:
        assert time.monotonic() < end, f"somebody else has {name}"
        time.sleep(0.1)
    try:
        yield
    finally:
        os.close(descriptor)
