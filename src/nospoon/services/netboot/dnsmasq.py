"""One dnsmasq as a process of ours that outlives the daemon.

It is known by its pid and its start time, by our configuration file in its arguments, and by its
user: anyone on this machine may give a process these arguments.
"""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

from nospoon.errors import Conflict, ProviderError
from nospoon.runtime import owned, process
from nospoon.runtime.owned import Process
from nospoon.runtime.udp import ANY, holder_of
from nospoon.runtime.users import unprivileged_uid

STOP_SECONDS = 5.0
ONLY_ONE = "Only one server may answer on a bridge: stop the other, or write `netboot: none`."
PROGRAM, OPTION = "dnsmasq", "--conf-file="
_UNUSED = "127.255.255.254"
"""Of loopback's: whoever hinders a socket there has all addresses."""
_TAKEN = ("Address already in use", "failed to bind")


async def start(configuration: Path, *, pid_file: Path, group: str) -> Process:
    """Start it and return when it has its sockets. Raises `Conflict`, `MissingTool`.

    `group`: which it is of once it is no longer root, for only they may enter its directory;
    "" where it is no one's but ours.
    """
    argv = [PROGRAM, f"{OPTION}{configuration}", *([f"--group={group}"] if group else [])]
    done = await process.run(argv, check=False)
    if done.status != 0 and any(sign in done.stderr for sign in _TAKEN):
        raise obstacle() or Conflict(
            f"another DHCP or TFTP server uses the same address: {done.stderr.strip()}",
            hint=ONLY_ONE,
        )
    if done.status != 0:
        process.refuse(done)
    found = find(configuration, pid_file=pid_file)
    if found is None:
        raise ProviderError(f"`{done.line}` ended at once", hint="Its log may show why.")
    return found


def obstacle(*, dhcp: int = 67, tftp: int = 69) -> Conflict | None:
    """The DHCP or TFTP server of all interfaces that one of ours cannot run beside."""
    for what, port, address in (("DHCP", dhcp, ANY), ("TFTP", tftp, _UNUSED)):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            if port == dhcp:  # as dnsmasq opens it: beside those of other interfaces
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
            try:
                probe.bind((address, port))
            except OSError as error:
                by = holder_of("udp", port) or error.strerror
                return Conflict(
                    f"cannot serve {what} on UDP port {port}, which another server has: {by}",
                    hint=ONLY_ONE,
                )
    return None


def find(configuration: Path, *, pid_file: Path) -> Process | None:
    """The dnsmasq that runs with this configuration, None where none does.

    Without its pid file, as after a loss of the state directory, it is found by its arguments.
    """
    try:
        pid = int(pid_file.read_text())
    except (FileNotFoundError, ValueError):
        return all_below(configuration.parent).get(configuration)
    started = owned.start_time(pid)
    if started is None or f"{OPTION}{configuration}" not in _arguments(pid) or not _is_own(pid):
        return None
    return Process(pid, started)


def all_below(directory: Path) -> dict[Path, Process]:
    """Configuration file below a directory -> the dnsmasq that runs with it here: in this mount
    and network namespace, because a daemon in a container may use the same path (namespaces(7)).
    """
    found = {}
    start = f"{OPTION}{directory}/"
    for each in Path("/proc").glob("[0-9]*"):
        pid = int(each.name)
        files = [word for word in _arguments(pid) if word.startswith(start)]
        if not files or not _is_here(each) or not _is_own(pid):
            continue
        started = owned.start_time(pid)
        if started is not None:
            found[Path(files[0].removeprefix(OPTION))] = Process(pid, started)
    return found


def _is_here(process: Path) -> bool:
    try:
        return all(
            (process / "ns" / kind).readlink() == (Path("/proc/self/ns") / kind).readlink()
            for kind in ("mnt", "net")
        )
    except OSError:  # it ended, or belongs to another user
        return False


def _is_own(pid: int) -> bool:
    """Whether it is a dnsmasq, and runs as who starts one, or as the user that it becomes (proc(5),
    `Uid`): anyone may have sudo wait for a password as root, with any arguments.
    """
    process = Path(f"/proc/{pid}")
    try:
        lines = (process / "status").read_text().splitlines()
        program = (process / "exe").readlink().name.partition(" ")[0]  # " (deleted)"
    except OSError:  # it ended
        return False
    if not program.startswith(PROGRAM):
        return False
    users = {int(each) for line in lines if line.startswith("Uid:") for each in line.split()[1:]}
    here = os.geteuid()
    return users <= ({here} if here else {here, unprivileged_uid()})


def reload(which: Process) -> None:
    """Have it read its reservations again; what runs no more is let be."""
    owned.send(which, signal.SIGHUP)


async def stop(which: Process) -> None:
    """End it and return when it is gone."""
    await owned.stop(which, patience=STOP_SECONDS)


def _arguments(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:  # it ended
        return []
