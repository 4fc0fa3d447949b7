"""The daemon `nospoond` for tests, which start it hundreds of times: forked from a process that has
imported it once (`nospoon.testing.forking`), asked by the command that would start it.

Python's start and the imports take one to two seconds of the processor, most of what a daemon takes
in its life. That the program starts is proven where it is started as such: by systemd, by the
documents' commands, in another network, and where `Rack.forks` is false.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from nospoon.cli.connect import BEGIN, Begun
from nospoon.testing.forking import LONGEST

TITLE = " " * 200


@cache
def forking() -> socket.socket:
    """Where the process that forks daemons is asked for them; it is started now, if it is not there
    yet. It ends with this process, or with the last one that has the socket.
    """
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with there:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "nospoon.testing.forking", str(there.fileno()), TITLE],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[there.fileno()],
            start_new_session=True,  # daemons are needed after Ctrl-C, to take clusters down
        )
    atexit.register(_end, process)
    return here


def _end(process: subprocess.Popen[bytes]) -> None:
    """Its daemons stay."""
    process.kill()
    process.wait()


def fork_daemon(control: socket.socket) -> None:
    """Have the daemon that this process begins forked. `control`: a copy of `forking()`."""
    control.set_inheritable(False)
    BEGIN.set(partial(begin, control))


@dataclass(frozen=True, slots=True)
class _Forked:
    reply: socket.socket

    def wait(self) -> int:
        with self.reply:
            return int(_received(self.reply))


def begin(control: socket.socket, argv: Sequence[str], log: int, ready: int) -> Begun:
    """As `nospoon.cli.connect` starts it: returns once the process is there."""
    umask = os.umask(0)
    os.umask(umask)
    asked = {
        "argv": argv, "environment": dict(os.environ), "directory": str(Path.cwd()),
        "umask": umask, "ready": ready,
    }  # fmt: skip
    message = json.dumps(asked).encode()
    assert len(message) < LONGEST
    reply, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        socket.send_fds(control, [message], [theirs.fileno(), log, ready])
    _received(reply)
    return _Forked(reply)


def _received(reply: socket.socket) -> bytes:
    said = reply.recv(16)
    if not said:
        raise ChildProcessError("the process that forks daemons has ended; see its traceback")
    return said
