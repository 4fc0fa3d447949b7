"""Run by the environment's Python: nova-compute, for libvirt 9 and a switch in userspace.

Nova 34 writes `secure` on a loader that libvirt is to choose. libvirt refuses that before version
10.1, and has `<feature name='secure-boot'>` for it, which Nova writes as well.
https://libvirt.org/formatdomain.html#bios-bootloader

A rescue ends the domain and starts another one. Open vSwitch in userspace keeps the tap of the
first one open, so that the other one has no network: its ports are plugged in again. And where the
serial console is enabled, Nova gives the second domain no serial port, for the first one has one:
it gets one here.

libvirt makes the taps of guests and takes them up, while Open vSwitch, which waits for them, adds
"promiscuous" to the flags that they had: on a busy machine it takes them down again by that. They
are up for good once both have been at it.

A further compute host shares the switch, and the agent of Neutron that serves it: its ports are
bound at that agent's host, which a variable of the environment names.

Where containers have user namespaces, Nova 34 hands what it maps to its privileged process as
objects, which cannot be serialised; `nova.privsep.idmapshift` wants tuples.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from nova.cmd.compute import main
from nova.privsep import idmapshift, linux_net
from nova.virt.libvirt import config, utils
from nova.virt.libvirt.driver import LibvirtDriver

_format = config.LibvirtConfigGuest._format_os  # noqa: SLF001  (there is no other way in)
_create = LibvirtDriver._create_guest  # noqa: SLF001
_destroy = LibvirtDriver._destroy  # noqa: SLF001
_has_serial = LibvirtDriver._serial_ports_already_defined  # noqa: SLF001
PROMISCUOUS = 0x100
"""Of an interface's flags (netdevice(7), IFF_PROMISC)."""
SWITCHED = 10.0
"""Seconds for the switch to find a tap."""
_rescuing = set[str]()
"""Instances of which a rescue begins or ends."""


def _formatted(guest: Any, root: Any) -> None:
    kept = guest.os_loader_secure
    if guest.os_firmware is not None and guest.os_loader is None:
        guest.os_loader_secure = None
    try:
        _format(guest, root)
    finally:
        guest.os_loader_secure = kept


def _noted(call: Callable[..., object]) -> Callable[..., object]:
    def noted(driver: Any, context: Any, instance: Any, *more: Any, **named: Any) -> Any:
        _rescuing.add(instance.uuid)
        try:
            return call(driver, context, instance, *more, **named)
        finally:
            _rescuing.discard(instance.uuid)

    return noted


def _destroyed(driver: Any, instance: Any, *more: Any, **named: Any) -> None:
    _destroy(driver, instance, *more, **named)
    if instance.uuid in _rescuing:
        driver.unplug_vifs(instance, instance.get_network_info())
        driver.plug_vifs(instance, instance.get_network_info())


def _defined(driver: Any, instance: Any) -> Any:
    return instance.uuid not in _rescuing and _has_serial(driver, instance)


def _created(driver: object, context: object, xml: str, *more: object, **named: object) -> object:
    guest = _create(driver, context, xml, *more, **named)
    for tap in re.findall(r"""<target dev=["'](tap[0-9a-f-]+)""", xml):
        _take_up(tap)
    return guest


def _take_up(tap: str) -> None:
    """A tap that is there, once the switch has it, or seems not to want it."""
    flags = Path("/sys/class/net", tap, "flags")
    end = time.monotonic() + SWITCHED
    while flags.exists() and not int(flags.read_text(), 16) & PROMISCUOUS:
        if time.monotonic() > end:
            break
        time.sleep(0.05)
    if flags.exists():
        linux_net.set_device_enabled(tap)


def _bound_at(host: str) -> Callable[..., str]:
    def bound_at(driver: object, context: object, instance: object) -> str:
        del driver, context, instance
        return host

    return bound_at


def _chowned(path: str, maps: Iterable[object]) -> None:
    kinds = config.LibvirtConfigGuestUIDMap, config.LibvirtConfigGuestGIDMap
    known = [*maps]
    uids, gids = (
        [(each.start, each.target, each.count) for each in known if isinstance(each, kind)]
        for kind in kinds
    )
    idmapshift.shift(path, uids, gids)


if __name__ == "__main__":
    config.LibvirtConfigGuest._format_os = _formatted  # noqa: SLF001
    LibvirtDriver._create_guest = _created  # noqa: SLF001
    LibvirtDriver._destroy = _destroyed  # noqa: SLF001
    LibvirtDriver._serial_ports_already_defined = _defined  # noqa: SLF001
    LibvirtDriver.rescue = _noted(LibvirtDriver.rescue)
    LibvirtDriver.unrescue = _noted(LibvirtDriver.unrescue)
    utils.chown_for_id_maps = _chowned
    if network_host := os.environ.get("NOSPOON_NETWORK_HOST"):
        LibvirtDriver.network_binding_host_id = _bound_at(network_host)
    sys.exit(main())
