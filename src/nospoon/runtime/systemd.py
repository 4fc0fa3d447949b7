"""What systemd is told of the daemon (sd_notify(3)); nothing where it did not start it."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping


def notify(state: str, environment: Mapping[str, str] = os.environ) -> None:
    """Send a state, such as READY=1."""
    address = environment.get("NOTIFY_SOCKET")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.sendto(state.encode(), address.replace("@", "\0", 1))


async def feed_watchdog(environment: Mapping[str, str] = os.environ) -> None:
    """Report twice within WATCHDOG_USEC, for ever: an event loop that hangs does not, and systemd
    restarts the daemon (sd_watchdog_enabled(3)).
    """
    interval = int(environment.get("WATCHDOG_USEC", "0")) / 2_000_000
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return
    while interval:
        notify("WATCHDOG=1", environment)
        await asyncio.sleep(interval)
