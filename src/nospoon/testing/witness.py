"""A program that says what a process has from its start, as JSON; with the options of the daemon.

For tests that compare a process that was forked with one that was started.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import random
import resource
import signal
import sys
import threading
from pathlib import Path

STATUS = 7
"""Its exit status."""
LIMITS = [each for each in dir(resource) if each.startswith("RLIMIT_")]


def main() -> None:
    found = {
        "name": __name__,
        "argv": sys.argv,
        "path": sys.path,
        "flags": str(sys.flags),
        "environment": dict(os.environ),
        "directory": str(Path.cwd()),
        "umask": _umask(),
        "descriptors": {each: _descriptor(each) for each in range(100) if _is_open(each)},
        "streams": [_stream(each) for each in (sys.stdin, sys.stdout, sys.stderr)],
        "handlers": {each.name: str(signal.getsignal(each)) for each in signal.Signals},
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "status": _status(),
        "limits": {each: resource.getrlimit(getattr(resource, each)) for each in LIMITS},
        "own session": os.getsid(0) == os.getpid(),
        "own group": os.getpgrp() == os.getpid(),
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "core dumps": Path("/proc/self/coredump_filter").read_text(),
        "out of memory": Path("/proc/self/oom_score_adj").read_text(),
        "networks": str(Path("/proc/self/ns/net").readlink()),
        "threads": threading.active_count(),
        "garbage": [gc.isenabled(), *gc.get_threshold()],
        "command": Path("/proc/self/cmdline").read_text().rstrip("\0"),
        "random": random.random(),
    }
    for each in (sys.stdout, sys.stderr):
        each.write(f"{each.name}\n")
    with os.fdopen(int(sys.argv[-1]), "w") as ready:
        json.dump(found, ready)
    sys.exit(STATUS)


def _umask() -> int:
    found = os.umask(0)
    os.umask(found)
    return found


def _is_open(descriptor: int) -> bool:
    return os.path.lexists(f"/proc/self/fd/{descriptor}")


def _descriptor(each: int) -> list[object]:
    kind = str(Path(f"/proc/self/fd/{each}").readlink()).partition(":[")[0]
    flags = [fcntl.fcntl(each, command) for command in (fcntl.F_GETFL, fcntl.F_GETFD)]
    return [kind, *flags]


def _stream(which: object) -> dict[str, object]:
    names = ("name", "mode", "encoding", "errors", "newlines", "line_buffering", "write_through")
    return {each: getattr(which, each) for each in names}


def _status() -> list[str]:
    """But for what is counted, as memory is, and signals that wait for any process of a user
    (SigQ of proc_pid_status(5)).
    """
    names = ("Name", "Threads", "Uid", "Gid", "Groups", "Seccomp", "NoNewPrivs")
    lines = Path("/proc/self/status").read_text().splitlines()
    kept = (*names, "SigPnd", "SigBlk", "SigIgn", "SigCgt", "Shd", "Cap", "Cpus")
    return [each for each in lines if each.startswith(kept)]


if __name__ == "__main__":
    main()
