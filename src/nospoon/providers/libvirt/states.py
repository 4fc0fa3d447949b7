"""libvirt's states and events in our words, as tables.

virDomainState, virDomainEventType and its details: libvirt-domain.h,
https://libvirt.org/html/libvirt-libvirt-domain.html.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import libvirt

from nospoon.model.machine import MachineChange, PowerState

POWER: dict[int, PowerState] = {
    libvirt.VIR_DOMAIN_NOSTATE: PowerState.UNKNOWN,
    libvirt.VIR_DOMAIN_RUNNING: PowerState.ON,
    libvirt.VIR_DOMAIN_BLOCKED: PowerState.ON,
    libvirt.VIR_DOMAIN_PAUSED: PowerState.ON,
    libvirt.VIR_DOMAIN_SHUTDOWN: PowerState.ON,
    libvirt.VIR_DOMAIN_SHUTOFF: PowerState.OFF,
    libvirt.VIR_DOMAIN_CRASHED: PowerState.FAILED,
    libvirt.VIR_DOMAIN_PMSUSPENDED: PowerState.ON,
}

STOPPED: dict[int, tuple[MachineChange, str]] = {
    libvirt.VIR_DOMAIN_EVENT_STOPPED_SHUTDOWN: (MachineChange.SHUTDOWN, ""),
    libvirt.VIR_DOMAIN_EVENT_STOPPED_DESTROYED: (MachineChange.STOPPED, ""),
    libvirt.VIR_DOMAIN_EVENT_STOPPED_CRASHED: (MachineChange.CRASHED, "the guest crashed"),
    libvirt.VIR_DOMAIN_EVENT_STOPPED_FAILED: (MachineChange.CRASHED, "QEMU ended unexpectedly"),
}
"""Detail of a STOPPED event -> what happened and why. Other details: STOPPED."""


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """A virDomainEventType of a domain with its detail."""

    uuid: UUID
    event: int
    detail: int


@dataclass(frozen=True, slots=True)
class Rebooted:
    """QEMU reset the machine: the guest asked, or we did."""

    uuid: UUID


RawEvent = Lifecycle | Rebooted
