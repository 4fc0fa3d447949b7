"""Downloads of BMC clients as the daemon has them, from servers on loopback."""

from __future__ import annotations

from ipaddress import ip_network

from nospoon.control.content.client_downloads import ClientDownloads, Limits
from nospoon.control.content.files import Files
from nospoon.runtime.reach import Reach
from nospoon.runtime.tasks import Tasks

LOOPBACK = Reach((ip_network("127.0.0.0/8"), ip_network("::1/128")))
HERE = Limits(reach=LOOPBACK)


def client_downloads(tasks: Tasks, files: Files, limits: Limits = HERE) -> ClientDownloads:
    """All machines belong to user 1000."""
    return ClientDownloads(tasks, limits, files.space, lambda _: 1000)
