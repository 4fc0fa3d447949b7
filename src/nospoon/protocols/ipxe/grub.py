"""GRUB configurations: for machines that start signed loaders only, for aarch64, for our UEFI ISO.

Debian's signed network images (grubnetx64.efi.signed and its like, GRUB 2.06) carry the tftp module
and no http, and under secure boot no module can be loaded after it: so all comes by TFTP from
dnsmasq. Our own image on the ISO carries http. GRUB's language has no arithmetic, so tries are
counted by a list. Words are quoted with ', in which nothing is special.
"""

from __future__ import annotations

from nospoon.model.boot import BootDevice
from nospoon.protocols.ipxe.offer import Kernel, Offer

DISK_LOADERS = (
    "(hd*)/EFI/BOOT/BOOTX64.EFI",
    "(hd*,*)/EFI/BOOT/BOOTX64.EFI",
    "(hd*,*)/EFI/*/shimx64.efi",
    "(hd*,*)/EFI/*/grubx64.efi",
    "(hd*)/EFI/BOOT/BOOTAA64.EFI",
    "(hd*,*)/EFI/BOOT/BOOTAA64.EFI",
    "(hd*,*)/EFI/*/shimaa64.efi",
    "(hd*,*)/EFI/*/grubaa64.efi",
)
"""Where installed systems have loaders, as patterns of GRUB's module regexp; those of another
architecture do not start, and the next one is tried."""

TRIES = 60
PAUSE = 5  # seconds
ISO_PAUSE = 1  # GRUB asks for a connection again and again for 18 s by itself
ISO_NIC = "net_efinet0_dhcp"
"""What GRUB calls the interface that `net_dhcp` made of the first NIC, in names of variables."""


def ask(address: str) -> str:
    """grub.cfg of a TFTP server at this address: look for the file of this machine's MAC."""
    place = machine_file("${net_default_mac}")
    return _lines(
        f"for try in {' '.join(str(number) for number in range(1, TRIES + 1))}; do",
        f'  source "(tftp,{address})/{place}"',
        f'  echo "nospoon: no instructions yet (try ${{try}} of {TRIES})"',
        f"  sleep {PAUSE}",
        "done",
        *_leave(),
    )


def ask_from_iso(server: str) -> str:
    """The configuration inside our ISO's GRUB: asks the daemon at "address:port" by HTTP, by UUID
    and by MAC, until it answers.
    """
    place = f"(http,{server})/boot"
    return _lines(
        "smbios --type 1 --get-uuid 8 --set uuid",
        "while true; do",
        "  net_dhcp",
        f'  source "{place}/${{uuid}}/grub"',
        f'  source "{place}/mac/${{{ISO_NIC}_mac}}/grub"',
        f'  echo "nospoon: no answer from {server}, again in {ISO_PAUSE} s"',
        f"  sleep {ISO_PAUSE}",
        "done",
    )


def boot_disk() -> str:
    """The configuration of the GRUB on the boot image, which iPXE starts to boot a disk."""
    return _lines(*_disk(), 'echo "nospoon: no loader on any disk"', "exit")


def machine_file(mac: str) -> str:
    """Path below the TFTP root of one machine's configuration."""
    return f"grub/machines/{mac}.cfg"


def answer(offer: Offer) -> str:
    """The configuration that boots what is offered."""
    match offer:
        case Offer(device=BootDevice.NETWORK, kernel=Kernel() as kernel):
            return _lines(*_load(kernel))
        case Offer(device=BootDevice.HTTP):
            why = "nospoon: HTTP boot needs iPXE, which is not signed: no secure boot with it"
            return _lines(f"echo {quoted(why)}", *_disk(), *_leave())
        case Offer(device=BootDevice.DISK):
            return _lines('echo "nospoon: boot the disk"', *_disk(), *_leave())
        case Offer(device=BootDevice.SETUP):
            return _lines('echo "nospoon: enter the firmware setup"', "fwsetup", *_leave())
        case Offer(device=device, refusal=refusal):
            why = refusal or f"nothing to boot from the {device}"
            return _lines(f"echo {quoted('nospoon: ' + why)}", *_disk(), *_leave())


def _load(kernel: Kernel) -> list[str]:
    words = " ".join([quoted(kernel.kernel), *(quoted(word) for word in kernel.words)])
    initrds = " ".join(quoted(place) for place in kernel.initrds)
    # in a condition, a failure is an answer and not the end of the script
    return [
        f"echo {quoted('nospoon: boot ' + kernel.name)}",
        f"if linux {words}; then",
        *([f"  if initrd {initrds}; then boot; fi"] if initrds else ["  boot"]),
        "fi",
        'echo "nospoon: that failed"',
    ]


def _disk() -> list[str]:
    """Start the disk's loader. GRUB 2.06 can leave with success only, and firmware whose boot
    option succeeded stops at its menu (UEFI 2.10 §3.1.1) instead of trying the next one.
    """
    return [
        f"for place in {' '.join(DISK_LOADERS)}; do",
        '  if [ -f "$place" ]; then',
        '    echo "nospoon: start $place"',
        "    regexp --set=1:root '^[(]([^)]*)[)]' \"$place\"",  # chainloader wants its device there
        '    if chainloader "$place"; then boot; fi',
        "  fi",
        "done",
    ]


def _leave() -> tuple[str, ...]:
    return ('echo "nospoon: leaving to the next boot device"', "exit")


def quoted(word: str) -> str:
    """One word of GRUB's language."""
    return "'" + word.replace("'", "'\\''") + "'"


def _lines(*lines: str) -> str:
    return "\n".join(("# written by nospoon", *lines)) + "\n"
