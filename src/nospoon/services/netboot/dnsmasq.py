"""One dnsmasq as a process of ours that outlives the daemon.

It is known by its pid and its start time (a pid alone may be somebody else's by now), and by our
configuration file in its arguments. Signals go through a pidfd, so that they cannot miss.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from nospoon.errors import Conflict, ProviderError
from nospoon.runtime import process

STOP_SECONDS = 5.0
_START_TIME_FIELD = 19  # of what follows the command's name in /proc/PID/stat: field 22, proc(5)
_TAKEN = ("Address already in use", "failed to bind")


@dataclass(frozen=True, slots=True)
class Process:
    """A running dnsmasq; `started` in clock ticks since the machine's start."""

    pid: int
    started: int


async def start(configuration: Path, *, pid_file: Path) -> Process:
    """Start it and return when it has its sockets. Raises `Conflict`, `MissingTool`."""
    argv = ["dnsmasq", f"--conf-file={configuration}"]
    done = await process.run(argv, check=False)
    if done.status != 0 and any(sign in done.stderr for sign in _TAKEN):
        raise Conflict(
            f"another DHCP or TFTP server is in the way of ours: {done.stderr.strip()}",
            hint="Only one may answer on a bridge: stop the other, or write `netboot: none`.",
        )
    if done.status != 0:
        process.refuse(done)
    found = find(configuration, pid_file=pid_file)
    if found is None:
        raise ProviderError(f"`{done.line}` ended at once", hint="Its log may tell why.")
    return found


def find(configuration: Path, *, pid_file: Path) -> Process | None:
    """The dnsmasq that runs with this configuration, None where none does."""
    try:
        pid = int(pid_file.read_text())
    except (FileNotFoundError, ValueError):
        return None
    started = _start_time(pid)
    if started is None or f"--conf-file={configuration}" not in _arguments(pid):
        return None
    return Process(pid, started)


def reload(which: Process) -> None:
    """Have it read its reservations again; what runs no more is let be."""
    with _handle(which) as handle:
        if handle is not None:
            _send(handle, signal.SIGHUP)


async def stop(which: Process) -> None:
    """End it and return when it is gone."""
    with _handle(which) as handle:
        if handle is None:
            return
        _send(handle, signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await _gone(handle)
        except TimeoutError:
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
        yield handle if _start_time(which.pid) == which.started else None
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


def _start_time(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[_START_TIME_FIELD])


def _arguments(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []
