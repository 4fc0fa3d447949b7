"""What a libvirt host can do, as it says itself (`virConnectGetDomainCapabilities`).

https://libvirt.org/formatdomaincaps.html
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from xml.etree import ElementTree as ET

import libvirt

from nospoon.model.capabilities import ChangeRule
from nospoon.model.cluster import Arch, Firmware
from nospoon.model.resources.keys import Kind
from nospoon.providers.libvirt.bindings import Connect
from nospoon.providers.libvirt.domain_xml import CLEAN_TRAFFIC, MACHINE_TYPES
from nospoon.providers.libvirt.elements import parsed
from nospoon.providers.libvirt.faults import NO_NWFILTER, NO_SUPPORT

RULES: Mapping[Kind, Mapping[str, ChangeRule]] = {
    Kind.NETWORK: {
        "address": ChangeRule.LIVE,
        "address6": ChangeRule.LIVE,
        "mtu": ChangeRule.LIVE,
        "nat": ChangeRule.LIVE,
        "host_ports": ChangeRule.LIVE,
        "tunnel": ChangeRule.LIVE,
    },
    Kind.VOLUME: {"size": ChangeRule.LIVE},
    Kind.MACHINE: {
        "boot_order": ChangeRule.LIVE,
        "autostart": ChangeRule.LIVE,
        "unlinked": ChangeRule.LIVE,
        "ends": ChangeRule.AT_POWER_OFF,
        "cpus": ChangeRule.AT_POWER_OFF,
        "memory": ChangeRule.AT_POWER_OFF,
        "firmware": ChangeRule.AT_POWER_OFF,
        "tpm": ChangeRule.AT_POWER_OFF,
        "disks": ChangeRule.AT_POWER_OFF,
        "nics": ChangeRule.AT_POWER_OFF,
        "boot": ChangeRule.AT_POWER_OFF,
        "ipv6": ChangeRule.AT_POWER_OFF,
        "seed": ChangeRule.AT_POWER_OFF,
    },
}
"""How fields may change; what is not named is replaced. A boot order is for later starts."""


LABEL = re.compile(r"\+(\d{1,10}):\+(\d{1,10})")
"""What DAC calls a user and a group."""
NO_FILTERS = frozenset({NO_NWFILTER, NO_SUPPORT})
NO_EMULATOR = frozenset({libvirt.VIR_ERR_INVALID_ARG, libvirt.VIR_ERR_CONFIG_UNSUPPORTED})
"""The latter where QEMU for it is not installed: libvirt 9 says so."""


@dataclass(frozen=True, slots=True)
class HypervisorFacts:
    """What a host has. `memory` in bytes; `name`: its host name; `user`: uid and gid that QEMU has
    there, None where it is who runs libvirtd, or root.
    """

    archs: frozenset[Arch]
    firmwares: frozenset[Firmware]
    tpm: bool
    cpus: int
    memory: int
    name: str
    user: tuple[int, int] | None


def ask_facts(connect: Connect) -> HypervisorFacts:
    """In a worker thread."""
    told = {arch: _domain_capabilities(connect, arch) for arch in Arch}
    present = {arch: root for arch, root in told.items() if root is not None}
    firmwares = {firmware for arch, root in present.items() for firmware in _firmwares(arch, root)}
    return HypervisorFacts(
        archs=frozenset(present),
        firmwares=frozenset(firmwares),
        tpm=any(_has_tpm(root) for root in present.values()),
        cpus=int(connect.getInfo()[2]),
        memory=_memory(connect),
        name=str(connect.getHostname()),
        user=user_of(parsed(connect.getCapabilities())),
    )


def user_of(capabilities: ET.Element) -> tuple[int, int] | None:
    """Whom libvirt's DAC security driver has QEMU be (https://libvirt.org/formatcaps.html)."""
    for model in capabilities.iterfind("host/secmodel"):
        if model.findtext("model") == "dac":
            label = LABEL.fullmatch(model.findtext("baselabel") or "")
            if label is not None and int(label[1]):
                return int(label[1]), int(label[2])
    return None


def has_filter(connect: Connect) -> bool:
    """Whether it has the filter that anti-spoofing is. libvirt comes with or without its filters,
    and for a user's own libvirtd it has none at all.
    """
    try:
        connect.nwfilterLookupByName(CLEAN_TRAFFIC)
    except libvirt.libvirtError as error:
        if error.get_error_code() in NO_FILTERS:
            return False
        raise
    return True


def _domain_capabilities(connect: Connect, arch: Arch) -> ET.Element | None:
    """None when there is no emulator for it."""
    try:
        return parsed(connect.getDomainCapabilities(None, arch, MACHINE_TYPES[arch], "qemu", 0))
    except libvirt.libvirtError as error:
        if error.get_error_code() in NO_EMULATOR:
            return None
        raise


def _firmwares(arch: Arch, root: ET.Element) -> set[Firmware]:
    found = {Firmware.BIOS} if arch is Arch.X86_64 else set()
    if "efi" in _values(root, "os/enum[@name='firmware']"):
        found.add(Firmware.UEFI)
        if "yes" in _values(root, "os/loader/enum[@name='secure']"):
            found.add(Firmware.UEFI_SECURE)
    return found


def _has_tpm(root: ET.Element) -> bool:
    """libvirt lists the emulator backend when swtpm and swtpm_setup are installed."""
    return "emulator" in _values(root, "devices/tpm/enum[@name='backendModel']")


def _values(root: ET.Element, path: str) -> set[str]:
    return {(value.text or "").strip() for value in root.iterfind(f"{path}/value")}


def _memory(connect: Connect) -> int:
    """All of it, as /proc/meminfo says: `virNodeGetInfo` counts NUMA cells, at times less."""
    stats = connect.getMemoryStats(libvirt.VIR_NODE_MEMORY_STATS_ALL_CELLS, 0)
    return int(stats.get("total", 0)) << 10
