"""Sockets that a daemon opens: which it cannot open and why, and its port for boot scripts."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from nospoon.errors import NospoonError
from nospoon.model.cluster import Host
from nospoon.model.resources.bmcs import Bmc
from nospoon.model.resources.netboot import NetbootService
from nospoon.model.resources.resource import Resource
from nospoon.runtime.udp import holder_of
from nospoon.services.agents.service import AgentService
from nospoon.services.bmcs.service import BmcService
from nospoon.services.netboot import dnsmasq
from nospoon.services.netboot.serving import HttpListeners
from nospoon.settings import Settings

log = structlog.get_logger()
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Sockets:
    """Of all services of a daemon together."""

    bmcs: BmcService
    boot_http: HttpListeners
    agents: AgentService

    def violations(
        self, resources: Sequence[Resource], coming: Collection[str], hosts: Sequence[Host]
    ) -> list[str]:
        """Why sockets of these cannot be opened here; see `CheckSockets`."""
        bmcs = [each.shape for each in resources if isinstance(each.shape, Bmc)]
        found = self.bmcs.listeners.violations(bmcs, coming=coming)
        boots = any(isinstance(e.shape, NetbootService) and not e.shape.router for e in resources)
        obstacle = dnsmasq.obstacle() if boots else None
        serving = ((each.name, each.connection.agents) for each in hosts)
        agents = (
            f"host {name}: {why}"
            for name, behaviour in serving
            if behaviour is not None
            and behaviour.address not in coming
            and (why := self.agents.obstacle(behaviour)) is not None
        )
        clouds = [
            f"host {host.name}: boot_address: {reason}"
            for host in hosts
            if (address := host.connection.boot_address) and (reason := self._unanswerable(address))
        ]
        return [*found, *([str(obstacle)] if obstacle is not None else []), *agents, *clouds]

    def _unanswerable(self, address: str) -> str:
        """Why boot images that ask at this address cannot be answered, "" where they can."""
        try:
            self.boot_http.refuse(address)
        except NospoonError as error:
            return str(error)
        return ""


def other_holder(port: int) -> str:
    """The program that has a UDP port, "" for this one."""
    holder = holder_of("udp", port)
    return "" if holder.endswith(f"(pid {os.getpid()})") else holder


def boot_port(settings: Settings) -> int:
    """The port for boot scripts; a free one is chosen once and kept, for dnsmasq refers to it."""
    if settings.boot_port:
        return settings.boot_port
    kept: Path = settings.state / "boot-port"
    port = int(kept.read_text()) if kept.exists() else 0
    free = _free_port(port)
    if free != port:
        kept.write_text(str(free))
    return free


def _free_port(wanted: int) -> int:
    """The wanted one, or any other when that is taken meanwhile."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, wanted))
        except OSError:
            probe.bind((LOOPBACK, 0))
            log.warning("another boot port", taken=wanted, port=probe.getsockname()[1])
        return int(probe.getsockname()[1])
