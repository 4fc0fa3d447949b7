"""The command `nospoon` for tests, which run it thousands of times: forked from a process that has
imported it once. So is the daemon that it begins (`nospoon.testing.daemons`).

Python's start and the imports take a tenth of a second of the processor, ten times what a command
does then. All else is as a shell would have it: a process with its own environment, directory and
streams. That the program starts is proven where it is run as such: tests/cli, tests/docs.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerContext
from pathlib import Path

from nospoon.cli import start
from nospoon.testing.daemons import fork_daemon, forking

BIN = Path(sys.executable).parent
USUAL = ("bmc", "daemon", "down", "host", "lab", "node", "plan", "request", "status", "up")
IMPORTED = [
    "pytest",  # multiprocessing has each process import it, if it is the program that runs here
    __name__,
    "nospoon.cli.main",
    *(f"nospoon.cli.commands.{name}" for name in USUAL),
]
"""By the process from which commands are forked; a command imports what else it needs."""
AT_START = ("PYTHON", "LC_", "LANG", "TZ", "LD_", "GLIBC_", "MALLOC_", "LIBVIRT_", "OPENSSL_")
"""Variables that a program, or what it imports, reads as it starts: with other ones it has to be
started.
"""
NETWORK = Path("/proc/self/ns/net").readlink()
"""That of the tests, and of the process from which commands are forked."""


def can_fork(environment: Mapping[str, str]) -> bool:
    """Whether a program that is started here with this environment would be what is forked: a
    thread may be in a network of its own.
    """
    others = {key for key, _ in environment.items() ^ os.environ.items()}
    program = shutil.which("nospoon", path=environment["PATH"])
    return (
        program == str(BIN / "nospoon")
        and not any(key.startswith(AT_START) for key in others)
        and Path("/proc/thread-self/ns/net").readlink() == NETWORK
    )


def run(
    argv: Sequence[str],
    environment: Mapping[str, str],
    directory: Path,
    *,
    stdin: str | None = None,
    timeout: float,
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` of `nospoon` with these arguments, which captures what it says."""
    context = _context()
    with tempfile.TemporaryDirectory(prefix="nospoon-command-") as place:
        streams = [Path(place, name) for name in ("stdin", "stdout", "stderr")]
        for stream, text in zip(streams, (stdin or "", "", ""), strict=True):
            stream.write_text(text)
        process = context.Process(
            target=_command,
            args=(list(argv), dict(environment), directory, streams, forking()),
        )
        process.start()
        process.join(timeout)
        status = process.exitcode
        if status is None:
            process.kill()
            process.join()
        process.close()
        said, complained = (stream.read_text(errors="replace") for stream in streams[1:])
    if status is None:
        raise subprocess.TimeoutExpired(["nospoon", *argv], timeout, said, complained)
    return subprocess.CompletedProcess(["nospoon", *argv], status, said, complained)


def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    return context


def _command(
    argv: list[str],
    environment: dict[str, str],
    directory: Path,
    streams: list[Path],
    forking_daemons: socket.socket,
) -> None:
    """The process that was forked."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    for number, stream in enumerate(streams):
        opened = os.open(stream, os.O_RDWR | os.O_APPEND)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = os.fdopen(0, closefd=False)  # multiprocessing closed it
    sys.argv = [str(BIN / "nospoon"), *argv]
    fork_daemon(forking_daemons)
    start.main()
