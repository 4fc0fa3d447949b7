"""What benchmarks with a real Ironic share: one of their own, and what CPU it takes.

It is the development one: SQLite, no debug logging.
"""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from nospoon.dev import ironic
from nospoon.dev.configuration import Wanted
from nospoon.dev.ironic import Ironic
from nospoon.testing.rack import CACHE

TICKS = os.sysconf("SC_CLK_TCK")


@contextmanager
def own_ironic(*options: str) -> Iterator[Ironic]:
    """An Ironic with these options (`SECTION.OPTION=VALUE`); nothing of it is left."""
    with tempfile.TemporaryDirectory(prefix="nospoon-bench-") as directory:
        state = Path(directory) / "ironic"
        wanted = Wanted(port=free_port(), files_port=free_port(), options=options)
        try:
            yield asyncio.run(ironic.up(wanted, state=state, cache=CACHE))
        finally:
            asyncio.run(ironic.down(state=state, cache=CACHE, purge=False))


def restarted(found: Ironic, *options: str) -> Ironic:
    """The same Ironic with other options; it knows its nodes still."""
    wanted = replace(found.wanted, options=options)
    return asyncio.run(ironic.up(wanted, state=found.state, cache=CACHE))


def bmcs() -> str:
    """`bmc:` of a cluster file: an address that nobody else on this machine has BMCs on."""
    return f"{{address: 127.20.0.1, ports: 20001-29999, redfish_port: {free_port()}}}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def daemon_of(env: Mapping[str, str]) -> int:
    """The process of a daemon, which has a session of its own."""
    return int(Path(env["NOSPOON_RUNTIME_DIR"], "nospoond.pid").read_text())


def cpu(session: int) -> float:
    """CPU seconds of all processes of a session, and of those that they waited for (proc(5))."""
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == session:
            total += sum(map(int, fields[11:15]))
    return total / TICKS
