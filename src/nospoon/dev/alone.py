"""One command at a time on a service's directory."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nospoon.errors import Conflict


@contextmanager
def alone(state: Path) -> Iterator[None]:
    """The directory itself is the lock, so that nothing is left of it. Raises `Conflict` where
    another command removed it while this one waited.
    """
    handle = os.open(state, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if not state.exists():
            raise Conflict("another command took it down meanwhile", hint="Run this again.")
        yield
    finally:
        os.close(handle)
