"""What a connection can do, as it answers when it is asked.

What is known before that is in `nospoon.model.declared`. Whether its machines have snapshots, CD
drives and boot orders, the ports of its driver say (`nospoon.providers.base.MachineDriver`), and
which kinds of resources only wait, the table of kinds (`nospoon.plan.order.kinds`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from nospoon.model.cluster import Arch, Firmware
from nospoon.model.resources.keys import Kind


class ChangeRule(StrEnum):
    """How a field of a shape may change on a connection."""

    LIVE = "live"
    AT_POWER_OFF = "at power-off"
    REPLACE = "replace"


def identity_of(machine: str) -> str:
    """Of a machine by its own name. No host of a file is called so, whose names have no spaces: who
    calls a simulated host as a machine takes nothing of it.
    """
    return f"machine {machine}"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a connection can do, as data; the plan reads it and refuses the rest with reasons.

    `rules`: per kind, field name -> rule; a field that is not named is replaced.
    `accelerator`: "kvm", or "tcg" with the reason in `accelerator_note`; "" before it was tried,
    which making the first machine does.
    `runs_guests`: its machines run what they boot; else they only report what they have.
    `anti_spoofing`: NICs of its machines can be kept to their own MAC and IPv4 address.
    `unlimited_roots`: why the disks of its machines may grow past their size, "" where not.
    `cpus`, `memory` (bytes): what the host has; 0 is unknown and not checked. `identity`: names
    the machine behind the connection; those of one identity share what it has.
    """

    kinds: frozenset[Kind]
    firmwares: frozenset[Firmware]
    archs: frozenset[Arch]
    tpm: bool
    accelerator: str
    accelerator_note: str = ""
    runs_guests: bool = True
    anti_spoofing: bool = False
    unlimited_roots: str = ""
    cpus: int = 0
    memory: int = 0
    identity: str = ""
    rules: Mapping[Kind, Mapping[str, ChangeRule]] = field(default_factory=dict)
