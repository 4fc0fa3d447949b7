"""Namespaces of the cloud's own: mounts, processes and network, held by its keeper.

What is mounted there hides the host's runtime files (/run), libvirt's and Open vSwitch's.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nospoon.dev.cloud.keeper import LONGEST_REQUEST
from nospoon.dev.cloud.wanted import INSIDE
from nospoon.errors import Conflict, ProviderError
from nospoon.runtime import clock, owned
from nospoon.runtime.owned import Process

START_SECONDS = 30.0
SOCKET = "keeper"
SHOWN_LINES = 12
_BACKLOG = 128
_SET_UP = """
set -e
state=$1 inside=$2; shift 2
mount -n -t proc proc /proc
mkdir -p "$state/run" "$state/sys"
mount -n -t tmpfs -o mode=755 tmpfs "$state/run"
mkdir "$state/run/$(basename "$inside")" "$state/run/lock" "$state/run/openvswitch" \
  "$state/run/netns"
mount -n --bind "$state" "$state/run/$(basename "$inside")"
mount -n --move "$state/run" /run
# libvirtd starts every QEMU to see what it can do, unless the host's libvirtd knows it
mkdir -p "$inside/var/cache/libvirt"
[ ! -d /var/cache/libvirt/qemu ] || cp -an /var/cache/libvirt/qemu "$inside/var/cache/libvirt/"
for d in var/lib/libvirt var/cache/libvirt var/log/libvirt etc/libvirt; do
  mkdir -p "$inside/$d"; mount -n --bind "$inside/$d" "/$d"
done
# sysfs shows the interfaces of the namespace in which it is mounted
mount -n -t sysfs sysfs "$inside/sys"
[ ! -d /sys/fs/cgroup ] || mount -n --rbind /sys/fs/cgroup "$inside/sys/fs/cgroup"
mount -n --move "$inside/sys" /sys
ip link set lo up
# services import and read what is in their working directory
cd /
exec "$@"
"""
"""After `--bind` the state directory is seen a second time, where it does not contain the tmpfs."""


@dataclass(frozen=True, slots=True)
class Namespaces:
    """Held by `process`, a parent of the keeper: they end with it."""

    process: Process
    state: Path

    @property
    def alive(self) -> bool:
        return owned.is_alive(self.process)

    @property
    def first(self) -> int:
        """The keeper's pid on the host: it has the namespaces. Raises `ProviderError` where it has
        not begun, or has ended: the file is empty then, or gone with its process.
        """
        pid = self.process.pid
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except OSError:
            children = []
        if not children:
            raise ProviderError(f"the cloud's keeper ended:\n{tail(self.state / 'log/keeper.log')}")
        return int(children[0])

    async def ask(self, request: Mapping[str, Any]) -> Any:
        """The keeper's answer."""
        directory = os.open(self.state, os.O_PATH)  # its path may be too long for a socket
        try:
            path = f"/proc/self/fd/{directory}/{SOCKET}"
            reader, writer = await asyncio.open_unix_connection(path, limit=LONGEST_REQUEST)
        finally:
            os.close(directory)
        try:
            writer.write(json.dumps(request).encode() + b"\n")
            line = await reader.readline()
        finally:
            writer.close()
        if not line:
            raise ProviderError(f"the cloud's keeper ended:\n{tail(self.state / 'log/keeper.log')}")
        return json.loads(line)

    async def is_ready(self) -> bool:
        """Whether the keeper answers."""
        try:
            await self.services()
        except (OSError, ProviderError):
            return False
        return True

    async def run(self, argv: Sequence[str], env: Mapping[str, str]) -> str:
        """Run a command there to its end; what it said. A failure raises `ProviderError`."""
        told = await self.ask({"run": list(argv), "env": dict(env)})
        if told["status"] != 0:
            said = "\n".join(f"  {line}" for line in told["output"].splitlines()[-SHOWN_LINES:])
            raise ProviderError(f"`{' '.join(argv)}` failed with {told['status']}:\n{said}")
        return str(told["output"])

    async def start(
        self, name: str, argv: Sequence[str], env: Mapping[str, str], *, log: Path
    ) -> None:
        """Start a service there, which is known by its name."""
        await self.ask({"start": name, "argv": list(argv), "env": dict(env), "log": str(log)})

    async def services(self) -> dict[str, int | None]:
        """Exit status of each that was started, None while it runs."""
        told: dict[str, int | None] = await self.ask({"list": True})
        return told

    async def forget(self, names: Sequence[str]) -> None:
        """Services that were ended, and are not missed."""
        await self.ask({"forget": list(names)})

    async def end(self) -> None:
        """Kill all that runs in them; return when it is gone."""
        if not self.alive:
            return
        first = 0
        with suppress(ProviderError):  # its parent is all that is left
            first = self.first
        if first:
            await owned.stop(Process(first, owned.start_time(first) or 0), patience=0)
        await owned.stop(self.process, patience=0)


async def begin(state: Path, listeners: Mapping[int, socket.socket]) -> Namespaces:
    """Make them. `listeners`: of the host's loopback, by port; they lead inside."""
    told = [f"{port}={listener.fileno()}" for port, listener in listeners.items()]
    argv = [
        "/usr/bin/unshare", "--mount", "--net", "--pid", "--fork", "--kill-child",
        "sh", "-c", _SET_UP, "sh", str(state), str(INSIDE),
        sys.executable, "-P", "-m", "nospoon.dev.cloud.keeper", str(INSIDE / SOCKET), *told,
    ]  # fmt: skip
    log = state / "log/keeper.log"
    (state / SOCKET).unlink(missing_ok=True)
    made = Namespaces(owned.begin(argv, output=log, env=dict(os.environ)), state)
    end = clock.monotonic() + START_SECONDS
    while not await made.is_ready():
        if not made.alive or clock.monotonic() > end:
            await made.end()
            raise ProviderError(f"the cloud's namespaces cannot be made:\n{tail(log)}")
        await asyncio.sleep(0.05)
    return made


@contextmanager
def listening(ports: Iterable[int]) -> Iterator[Mapping[int, socket.socket]]:
    """Listeners on the host's loopback, to be inherited. Every port that is taken is named."""
    made: dict[int, socket.socket] = {}
    refused = []
    for port in ports:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError as error:
            refused.append(f"{port} ({error.strerror})")
            listener.close()
            continue
        listener.listen(_BACKLOG)
        listener.set_inheritable(True)
        made[port] = listener
    try:
        if refused:
            raise Conflict(
                f"the cloud cannot listen on 127.0.0.1 port {', '.join(refused)}",
                hint="Choose other ports with --port-base.",
            )
        yield made
    finally:
        for listener in made.values():
            listener.close()


def tail(path: Path) -> str:
    """The end of a log."""
    try:
        text = path.read_text(errors="replace")
    except FileNotFoundError:
        return "  (no log)"
    return "\n".join(f"  {line}" for line in text.splitlines()[-SHOWN_LINES:])
