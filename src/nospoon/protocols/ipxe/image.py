"""iPXE scripts of the boot image: for machines of clouds, which start from it at every power-on.

Such a machine has nothing else that nospoon decides: its firmware's boot order is our image alone.
So the script asks until it is answered, for as long as it takes, and never goes on to a disk by
itself; and an answer has all that firmware would have: PXE on the machine's own networks, and the
loaders on its disk. If nothing of an answer boots, the machine asks again.

Scripts go to both firmwares. iPXE for UEFI boots no local disks: a GRUB on the image does that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nospoon.model.boot import BootDevice
from nospoon.protocols.ipxe.offer import Offer
from nospoon.protocols.ipxe.script import is_image, load, plain, written

RECIPE = "2"
"""Counts the ways in which images were made; those that were made otherwise are outdated."""
PAUSE = 5  # seconds
BASE = "${base}"
"""The daemon's URL as the machine knows it, which is the one that its image was made for."""
FORGET = ("clear net${nic}.dhcp/filename ||", "clear proxydhcp/filename ||")
"""iPXE keeps what DHCP said on a NIC, and would take its file name for that of the next one."""
DISK = "disk"
"""End of the URL where a machine asks for the start of its disk."""
LEAVING = 120
"""Seconds until it asks again."""
DISK_LOADER = "disk.efi"
"""The file on the image that boots a disk's loader under UEFI."""


def ask(base_url: str) -> str:
    """The script on the image. It asks by each NIC that gets an address, by UUID and then by MAC:
    a machine whose UUID the daemon does not know yet may be one that is just being made.
    """
    return written(
        f"echo nospoon: boot image for {plain(base_url)}",
        f"set base {base_url}",
        "set round:int32 0",
        ":round",
        "inc round",
        "clear answered ||",
        *_each_nic(
            "dhcp net${nic} && goto ask ||",
            "echo nospoon: no address from DHCP on net${nic} (try ${round})",
            "goto next",
            ":ask",
            *FORGET,
            f"chain --autofree {BASE}/boot/${{uuid}}/ipxe ||",
            "isset ${answered} && goto pause ||",
            f"chain --autofree {BASE}/boot/mac/${{net${{nic}}/mac:hexhyp}}/ipxe ||",
            "isset ${answered} && goto pause ||",
            f"echo nospoon: no answer from {BASE} on net${{nic}} (try ${{round}})",
            ":next",
            "ifclose net${nic} ||",
            done="pause",
        ),
        f"echo nospoon: asking again in {PAUSE} s",
        f"sleep {PAUSE} ||",
        "goto round",
    )


def answer(offers: Sequence[Offer], *, disk: str = "") -> str:
    """The script that tries these in turn, and then has the machine ask again. `disk`: the name by
    which it asks for the start of a disk that it cannot boot itself.
    """
    lines: list[str] = []
    for number, offer in enumerate(offers):
        if disk and offer.device is BootDevice.DISK:
            lines += [
                "echo nospoon: boot the disk",
                f"chain --autofree {BASE}/boot/{disk}/{DISK} ||",
            ]
        else:
            lines += _device(offer, number)
    return written("set answered yes", *lines, "echo nospoon: nothing booted", "exit 1")


def left() -> str:
    """The script of a machine whose disk is started without the boot image: it ends meanwhile."""
    return written("echo nospoon: without the boot image", f"sleep {LEAVING} ||", "exit 1")


def _device(offer: Offer, number: int) -> Iterator[str]:
    match offer:
        case Offer(device=BootDevice.NETWORK, kernel=kernel) if kernel is not None:
            yield from load(kernel, label=f"{number}")
        case Offer(device=BootDevice.NETWORK):
            yield "echo nospoon: boot the network"
            yield from _each_nic("autoboot net${nic} ||", *FORGET, done=f"network{number}")
            yield "echo nospoon: the network did not boot"
        case Offer(device=BootDevice.DISK):
            yield "echo nospoon: boot the disk"
            yield from _disk(number)
        case Offer(device=BootDevice.HTTP | BootDevice.CDROM as device, uri=uri) if uri:
            place = "".join(uri.split())
            yield f"echo nospoon: boot {device} {plain(place.removeprefix(BASE))}"
            image = device is BootDevice.CDROM or is_image(place)
            yield f"{'sanboot --no-describe' if image else 'chain --autofree'} {place} ||"
        case Offer(device=device, refusal=refusal):
            yield f"echo nospoon: {plain(refusal or f'nothing to boot from the {device}')}"


def _disk(number: int) -> Iterator[str]:
    """BIOS: the first hard disk by INT 13h. UEFI: GRUB looks for the disk's loader; iPXE starts
    programs only while a NIC is open (efi_image.c).
    """
    yield f"iseq ${{platform}} pcbios && goto bios{number} ||"
    yield "ifopen net0 ||"
    yield f"chain --autofree file:/{DISK_LOADER} ||"
    yield f"goto disk{number}"
    yield f":bios{number}"
    yield "sanboot --no-describe --drive 0x80 ||"
    yield f":disk{number}"
    yield "echo nospoon: the disk did not boot"


def _each_nic(*lines: str, done: str) -> Iterator[str]:
    """These lines for net0, net1, ..., as ${nic}."""
    yield "set nic:int32 0"
    yield f":{done}_nic"
    yield f"isset ${{net${{nic}}/mac}} || goto {done}"
    yield from lines
    yield "inc nic"
    yield f"goto {done}_nic"
    yield f":{done}"
