"""The process that daemons of tests are forked from: a program, started by
`nospoon.testing.daemons`. Its arguments: the descriptor of a socket at which requests arrive, and
one that makes place for the command line of a daemon, which has that of this process.

It has one thread, and has imported what a daemon imports as a daemon does: without a look for
garbage. It imports nothing else of nospoon.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import json
import os
import runpy
import select
import socket
import sys
import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path

LONGEST = 1 << 17
"""Bytes of a request, nearly all of them the environment. A socket takes 208 KiB (socket(7))."""
ARG_START, ARG_END = 45, 46
"""Of what follows the command's name in /proc/PID/stat: fields 48 and 49 (proc(5))."""


@dataclass(frozen=True, slots=True)
class _Request:
    """`descriptors`: of the reply, of the log, and of what the daemon has as `ready`."""

    argv: list[str]
    environment: dict[str, str]
    directory: str
    umask: int
    ready: int
    descriptors: list[int]


def _serve(arriving: int) -> _Request:
    """Fork as long as another process can send a request; returns in each process that is forked.

    A request is answered when there is a process, and once more, by its exit status, at its end.
    """
    control = socket.socket(fileno=arriving)
    daemons = dict[int, tuple[int, int]]()  # its pidfd -> its pid, where its end is reported
    while True:
        ready, _, _ = select.select([arriving, *daemons], [], [])
        for ended in [each for each in ready if each in daemons]:
            pid, reply = daemons.pop(ended)
            _, status = os.waitpid(pid, 0)
            _send(reply, str(os.waitstatus_to_exitcode(status)))
            os.close(reply)
            os.close(ended)
        if arriving not in ready:
            continue
        message, descriptors, _, _ = socket.recv_fds(control, LONGEST, 3)
        if not message:
            sys.exit()
        request = _Request(**json.loads(message), descriptors=descriptors)
        _import()
        assert len(list(Path("/proc/self/task").iterdir())) == threading.active_count() == 1
        pid = os.fork()
        if not pid:
            control.close()
            return request
        reply, *others = descriptors
        daemons[os.pidfd_open(pid)] = (pid, reply)
        _send(reply, "forked")
        for each in others:
            os.close(each)


def _send(reply: int, what: str) -> None:
    with contextlib.suppress(OSError):  # a command does not wait for the end of its daemon
        os.write(reply, what.encode())


@cache
def _import() -> None:
    gc.disable()
    import nospoon.daemon.wiring  # noqa: F401, PLC0415  (when the first daemon is asked for)
    from nospoon.daemon.connections import Connections  # noqa: PLC0415

    Connections.prepare()
    gc.freeze()


def _become(request: _Request) -> None:
    """Be the daemon, as if it were started so."""
    os.setsid()
    log, ready = (
        fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, request.ready + 1)
        for each in request.descriptors[1:]
    )
    for each, number in ((log, 1), (log, 2), (ready, request.ready)):
        os.dup2(each, number)
    for each in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if each not in {0, 1, 2, request.ready}:
            with contextlib.suppress(OSError):  # that of the list
                os.close(each)
    os.environ.clear()
    os.environ.update(request.environment)
    os.chdir(request.directory)
    os.umask(request.umask)
    _entitle(request.argv)
    gc.enable()
    at = request.argv.index("-m") + 1
    module, sys.argv[1:] = request.argv[at], request.argv[at + 1 :]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _entitle(argv: list[str]) -> None:
    """Have /proc/PID/cmdline show this command: it shows what is at this place in memory."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[ARG_START]), int(fields[ARG_END])
    title = b"".join(os.fsencode(each) + b"\0" for each in argv)
    ctypes.memmove(start, title.ljust(end - start, b"\0")[: end - start], end - start)


if __name__ == "__main__":
    _become(_serve(int(sys.argv[1])))
