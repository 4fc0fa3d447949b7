"""What is said to QEMU itself, over libvirt: the boot order of this boot and of those after it.

QEMU gives firmware the boot order as the fw_cfg file `bootorder`, made from the `bootindex`
properties at every reset of the machine (QEMU docs/specs/fw_cfg.rst, hw/nvram/fw_cfg.c). So: set
the properties to `now`, reset, set them to `after`. The boot at hand follows `now`; any reset by
the guest later on follows `after`, with no one's help, also when this daemon is dead.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree as ET

import libvirt_qemu

from nospoon.errors import ProviderError
from nospoon.model.boot import BootDevice
from nospoon.providers.libvirt.bindings import Domain
from nospoon.providers.libvirt.domain_parse import Bootable, bootables, own_order
from nospoon.providers.libvirt.elements import parsed

PRELAUNCH = "prelaunch"
NOT_BOOTABLE = -1
PAUSE_REASONS = {
    "internal-error": "QEMU stopped it: internal error",
    "io-error": "QEMU stopped it: I/O error on a disk (is the pool full?)",
    "guest-panicked": "the guest panicked",
}
"""QMP `RunState` -> why a machine that does not run has failed; other states are no failure."""


def execute(domain: Domain, command: str, **arguments: object) -> Any:
    """Run a QMP command. Raises libvirt's error, or `ProviderError` with what QEMU answered."""
    request = json.dumps({"execute": command, "arguments": arguments})
    answer = json.loads(libvirt_qemu.qemuMonitorCommand(domain, request, 0))
    if "error" in answer:
        raise ProviderError(f"QEMU refused {command} {arguments}: {answer['error'].get('desc')}")
    return answer["return"]


def run_state(domain: Domain) -> str:
    """QMP `RunState` of a machine, as `prelaunch`, `paused` or `internal-error`."""
    return str(execute(domain, "query-status")["status"])


def set_order(domain: Domain, order: Sequence[BootDevice]) -> None:
    """Say what the next reset boots, first tried first. Other devices are not booted from."""
    root = parsed(domain.XMLDesc(0))
    for device in bootables(root):
        _set_index(domain, device, NOT_BOOTABLE)  # two devices may not share an index
    for index, device in enumerate(in_order(root, order)):
        _set_index(domain, device, index)


def in_order(root: ET.Element, order: Sequence[BootDevice]) -> list[Bootable]:
    """The devices of these classes. Where the definition has the classes in this order, they are
    its devices, as its owner mixed them; so is what follows the class that an override puts first,
    of which all devices are tried. Otherwise they come class by class.
    """
    own, every = own_order(root), bootables(root)
    order = [kind for kind in order if kind in _classes(every)]
    if tuple(order) == _classes(own):
        return own
    ranked = [*own, *(each for each in every if each not in own)]
    head = [each for each in ranked if each.device in order[:1]]
    rest = [each for each in own if each.device not in order[:1]]
    if tuple(order[1:]) == _classes(rest):
        return head + rest
    for kind in order[1:]:
        mine = [each for each in own if each.device is kind]
        head += mine or [each for each in every if each.device is kind]
    return head


def _classes(devices: Sequence[Bootable]) -> tuple[BootDevice, ...]:
    return tuple(dict.fromkeys(each.device for each in devices))


def _set_index(domain: Domain, device: Bootable, index: int) -> None:
    path = f"/machine/peripheral/{device.alias}"
    execute(domain, "qom-set", path=path, property="bootindex", value=index)
