"""How the simulated deploy agents of a host behave."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Agents:
    """Deploy agents of machines that boot from the network or from a medium. Times in seconds.

    `api`: URL of Ironic's API; "": what the boot script or the medium says. `boot_script`: URL of
    the iPXE script that a DHCP server would name. Agents answer at `address` and `port` (0: a free
    one), with `tls` or without.

    `command`: how long a command takes that takes its time; `commands`: the same by name of a
    command or step. `failing`: name -> what it fails with. `failures`: the part of commands, and
    `silent`: the part of boots that come to nothing, from 0 to 1. `heartbeat` 0: as the conductor
    asks.
    """

    api: str = ""
    boot_script: str = ""
    address: str = "127.0.0.1"
    port: int = 0
    tls: bool = True
    command: float = 0.0
    commands: tuple[tuple[str, float], ...] = ()
    failing: tuple[tuple[str, str], ...] = ()
    failures: float = 0.0
    silent: float = 0.0
    heartbeat: float = 0.0
