"""Processes of ours that outlive who started them.

Each is known by its pid and its start time, for a pid alone may be someone else's by now. Signals
go through a pidfd, so that they cannot miss (pidfd_open(2)).
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

log = structlog.get_logger()

_START_TIME_FIELD = 19  # of what follows the command's name in /proc/PID/stat: field 22, proc(5)


@dataclass(frozen=True, slots=True)
class Process:
    """A process; `started` in clock ticks since the machine's start."""

    pid: int
    started: int


def begin(argv: Sequence[str], *, output: Path, env: Mapping[str, str]) -> Process:
    """Start a program, by its path, in a session of its own; `output` gets what it says."""
    with output.open("ab") as said, Path(os.devnull).open("rb") as nothing:
        pid = os.posix_spawn(
            argv[0],
            list(argv),
            env,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, nothing.fileno(), 0),
                (os.POSIX_SPAWN_DUP2, said.fileno(), 1),
                (os.POSIX_SPAWN_DUP2, said.fileno(), 2),
            ],
            setsid=True,
        )
    log.debug("started", command=shlex.join(argv), pid=pid)
    return Process(pid, start_time(pid) or 0)


def is_alive(which: Process) -> bool:
    """Whether exactly this process runs."""
    return start_time(which.pid) == which.started


def start_time(pid: int) -> int | None:
    """In clock ticks since the machine's start; None where no such process runs."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[_START_TIME_FIELD])


def send(which: Process, number: signal.Signals) -> None:
    """Send it a signal; what runs no more is let be."""
    with _handle(which) as handle:
        if handle is not None:
            _send(handle, number)


async def stop(which: Process, *, patience: float, with_session: bool = False) -> None:
    """End it and return when it is gone: by SIGTERM, after `patience` seconds by SIGKILL.

    `with_session`: the kill takes along what it started in its session; `begin` gave it one.
    """
    with _handle(which) as handle:
        if handle is None:
            return
        _send(handle, signal.SIGTERM)
        try:
            async with asyncio.timeout(patience):
                await _gone(handle)
        except TimeoutError:
            if with_session and os.getsid(which.pid) == which.pid:
                os.killpg(which.pid, signal.SIGKILL)
            _send(handle, signal.SIGKILL)
            await _gone(handle)


@contextmanager
def _handle(which: Process) -> Iterator[int | None]:
    """A pidfd of exactly this process, None if it is gone or the pid is another's."""
    try:
        handle = os.pidfd_open(which.pid)
    except ProcessLookupError:
        yield None
        return
    try:
        yield handle if is_alive(which) else None
    finally:
        os.close(handle)


def _send(handle: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # it ended by itself: that is what a signal asks for
        signal.pidfd_send_signal(handle, number)


async def _gone(handle: int) -> None:
    """Wait for the end of the process: its pidfd becomes readable (pidfd_open(2))."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(handle, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(handle)
