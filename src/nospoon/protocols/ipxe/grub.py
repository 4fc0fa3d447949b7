"""GRUB configurations, for machines that start signed loaders only and for our UEFI boot ISO.

Debian's signed network image (grubnetx64.efi.signed, GRUB 2.06) carries the tftp module and no
http, and under secure boot no module can be loaded after it: so everything comes by TFTP from
dnsmasq. Our own image on the ISO carries http. GRUB's language has no arithmetic, so tries are
counted by a list. Words are quoted with ', in which nothing is special.
"""

from __future__ import annotations

from nospoon.model.boot import BootDevice
from nospoon.protocols.ipxe.offer import Kernel, Offer

TRIES = 60
PAUSE = 5  # seconds
ISO_TRIES = 5


def ask(address: str) -> str:
    """grub.cfg of a TFTP server at this address: look for the file of this machine's MAC."""
    place = machine_file("${net_default_mac}")
    return _lines(
        *_patiently(f'source "(tftp,{address})/{place}"', "no instructions yet", tries=TRIES),
        *_leave(),
    )


def ask_from_iso(server: str) -> str:
    """The configuration inside our ISO's GRUB: asks the daemon at "address:port" by HTTP."""
    source = f'source "(http,{server})/boot/${{uuid}}/grub"'
    return _lines(
        "net_dhcp",
        "smbios --type 1 --get-uuid 8 --set uuid",
        *_patiently(source, f"no answer from {server}", tries=ISO_TRIES),
        'echo "nospoon: nobody tells what to boot, so the disk"',
        *_leave(),
    )


def machine_file(mac: str) -> str:
    """Path below the TFTP root of one machine's configuration."""
    return f"grub/machines/{mac}.cfg"


def answer(offer: Offer) -> str:
    """The configuration that boots what is offered."""
    match offer:
        case Offer(device=BootDevice.NETWORK, kernel=Kernel() as kernel):
            return _lines(*_load(kernel))
        case Offer(device=BootDevice.DISK):
            return _lines('echo "nospoon: boot the disk"', *_leave())
        case Offer(device=BootDevice.SETUP):
            return _lines('echo "nospoon: enter the firmware setup"', "fwsetup", *_leave())
        case Offer(device=device, refusal=refusal):
            why = refusal or f"nothing to boot from the {device}"
            return _lines(f"echo {quoted('nospoon: ' + why)}", *_leave())


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


def _patiently(command: str, complaint: str, *, tries: int) -> list[str]:
    return [
        f"for try in {' '.join(str(number) for number in range(1, tries + 1))}; do",
        f"  {command}",
        f'  echo "nospoon: {complaint} (try ${{try}} of {tries})"',
        f"  sleep {PAUSE}",
        "done",
    ]


def _leave() -> tuple[str, ...]:
    return ('echo "nospoon: leaving to the next boot device"', "exit")


def quoted(word: str) -> str:
    """One word of GRUB's language."""
    return "'" + word.replace("'", "'\\''") + "'"


def _lines(*lines: str) -> str:
    return "\n".join(("# written by nospoon", *lines)) + "\n"
