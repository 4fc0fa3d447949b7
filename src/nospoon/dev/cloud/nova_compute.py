"""Run by the environment's Python: nova-compute, whose UEFI guests libvirt 9 takes.

Nova 34 writes `secure` on a loader that libvirt is to choose. libvirt refuses that before version
10.1, and has `<feature name='secure-boot'>` for it, which Nova writes as well.
https://libvirt.org/formatdomain.html#bios-bootloader
"""

from __future__ import annotations

import sys
from typing import Any

from nova.cmd.compute import main
from nova.virt.libvirt import config

_format = config.LibvirtConfigGuest._format_os  # noqa: SLF001  (there is no other way in)


def _formatted(guest: Any, root: Any) -> None:
    kept = guest.os_loader_secure
    if guest.os_firmware is not None and guest.os_loader is None:
        guest.os_loader_secure = None
    try:
        _format(guest, root)
    finally:
        guest.os_loader_secure = kept


if __name__ == "__main__":
    config.LibvirtConfigGuest._format_os = _formatted  # noqa: SLF001
    sys.exit(main())
