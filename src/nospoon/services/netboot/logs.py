"""Bounds of the logs of our dnsmasqs: a guest has one write a line with each of its packets."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path

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
    for path in state.glob(f"*/*/{LOG}"):
        with suppress(FileNotFoundError), path.open("ab+") as log:  # its service may go meanwhile
            if os.fstat(log.fileno()).st_size > MOST:
                log.seek(-KEPT, os.SEEK_END)
                end = log.read().partition(b"\n")[2]
                log.truncate(0)
                log.write(end)
