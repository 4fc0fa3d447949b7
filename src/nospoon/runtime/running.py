"""Which deployments have a daemon on this machine: each holds an abstract name (unix(7)) while it
runs, so that nothing is left behind, however it ends.

A name says that a process runs, and no more: whoever holds it by mistake or malice only keeps
`recover` from taking that deployment over.
"""

from __future__ import annotations

import contextlib
import socket


def hold(deployment: str) -> socket.socket:
    """Hold the name of a deployment until the socket is closed; another daemon of it may, too."""
    holder = socket.socket(socket.AF_UNIX)
    with contextlib.suppress(OSError):  # a daemon that stands by for the same database has it
        holder.bind(_name(deployment))
    return holder


def runs(deployment: str) -> bool:
    """Whether a daemon of this deployment runs on this machine."""
    with socket.socket(socket.AF_UNIX) as tried:
        try:
            tried.bind(_name(deployment))
        except OSError:
            return True
    return False


def _name(deployment: str) -> str:
    return f"\0nospoon-deployment-{deployment}"
