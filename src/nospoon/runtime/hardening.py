"""What keeps passwords from other users: memory out of core dumps, directories of few rights."""

from __future__ import annotations

import ctypes
import os
import resource
import stat
from pathlib import Path

import structlog

log = structlog.get_logger()
PR_SET_DUMPABLE = 4  # prctl(2)


def protect_memory() -> None:
    """No core dumps, and no ptrace by processes of the same user (prctl(2), PR_SET_DUMPABLE).

    Programs that this process starts are dumpable again, for execve(2) resets it; they keep the
    limit of 0 bytes on core files (getrlimit(2)).
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        log.warning("prctl refused", why=os.strerror(ctypes.get_errno()))


def restrict(directory: Path, mode: int) -> None:
    """Take away rights beyond `mode`, which an earlier version or a umask gave. A directory of
    another user, or one that is shared (sticky, as /tmp), is left as it is.
    """
    found = directory.stat()
    if found.st_uid == os.geteuid() and not found.st_mode & stat.S_ISVTX:
        more = stat.S_IMODE(found.st_mode) & ~mode
        if more:
            directory.chmod(stat.S_IMODE(found.st_mode) & mode)
            log.info("rights taken away", directory=str(directory), mode=f"{more:o}")
