"""Bounds of the logs of our dnsmasqs: a guest has one write a line with each of its packets."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import structlog

log = structlog.get_logger()
LOG = "dnsmasq.log"
MOST, KEPT = 4 << 20, 1 << 20
"""Bytes of one log before it is cut, and of its end that are kept."""
SECONDS = 10.0
"""Between two looks."""


async def keep_small(state: Path) -> None:
    """Cut the logs of all services below this directory, again and again."""
    while True:
        await asyncio.to_thread(cut, state)
        await asyncio.sleep(SECONDS)


def cut(state: Path) -> None:
    """Keep the last lines of logs that grew too long. dnsmasq appends, so that it goes on."""
    for path in sorted(state.glob(f"*/*/{LOG}")):
        try:
            _cut(path)
        except FileNotFoundError:
            continue  # its service went meanwhile
        except OSError as error:
            log.warning("a log of network boot is not kept small", file=str(path), why=str(error))


def _cut(path: Path) -> None:
    with path.open("ab+") as file:
        if os.fstat(file.fileno()).st_size > MOST:
            file.seek(-KEPT, os.SEEK_END)
            end = file.read().partition(b"\n")[2]
            file.truncate(0)
            file.write(end)
