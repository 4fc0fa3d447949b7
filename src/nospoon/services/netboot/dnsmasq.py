"""One dnsmasq as a process of ours that outlives the daemon.

It is known by its pid and its start time, and by our configuration file in its arguments.
"""

from __future__ import annotations

import signal
from pathlib import Path

from nospoon.errors import Conflict, ProviderError
from nospoon.runtime import owned, process
from nospoon.runtime.owned import Process

STOP_SECONDS = 5.0
_TAKEN = ("Address already in use", "failed to bind")


async def start(configuration: Path, *, pid_file: Path, group: str) -> Process:
    """Start it and return when it has its sockets. Raises `Conflict`, `MissingTool`.

    `group`: which it is of once it is no longer root, for only they may enter its directory;
    "" where it is nobody's but ours.
    """
    argv = ["dnsmasq", f"--conf-file={configuration}", *([f"--group={group}"] if group else [])]
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
    started = owned.start_time(pid)
    if started is None or f"--conf-file={configuration}" not in _arguments(pid):
        return None
    return Process(pid, started)


def reload(which: Process) -> None:
    """Have it read its reservations again; what runs no more is let be."""
    owned.send(which, signal.SIGHUP)


async def stop(which: Process) -> None:
    """End it and return when it is gone."""
    await owned.stop(which, patience=STOP_SECONDS)


def _arguments(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []
