"""Machines by libvirt and QEMU: `qemu:///system`, `qemu:///session`, and the same over ssh."""

from nospoon.providers.libvirt.connection import LibvirtConnection
from nospoon.providers.libvirt.kvm import Trial

__all__ = ["LibvirtConnection", "Trial"]
