"""iPXE scripts (ipxe.org/scripting; the commands are those of Debian's build of January 2019).

A script says what it does, and tries again when the daemon is away. One that came from the network
leaves to the firmware's next device after minutes; one from an ISO asks for as long as it takes.
`${uuid}` and other settings of iPXE in a kernel's command line are filled in by iPXE.
"""

from __future__ import annotations

from nospoon.model.boot import BootDevice
from nospoon.protocols.ipxe.offer import Kernel, Offer

ASK_TRIES = 60
ASK_PAUSE = 5  # seconds; 60 tries are five minutes, time enough to start a daemon again
LOAD_TRIES = 10
LOAD_PAUSE = 3
ISO_PAUSE = 3
MACHINE = "ipxe/${netX/mac:hexhyp}.ipxe"
"""Path of a machine's own script, in iPXE's words: netX is the NIC that was used last."""
NETWORK = "network"
"""End of the URL where a machine asks that started from the network of a relay."""
LEAVE = ("echo nospoon: leaving to the next boot device", "exit 1")


def ask(base_url: str) -> str:
    """The script that dnsmasq gives out: asks the daemon, for minutes if need be.

    It comes by TFTP from dnsmasq, so it is there while the daemon is not.
    """
    asking = _chained(f"{base_url}/boot/${{uuid}}/ipxe", base_url)
    return written(*asking, ":leave", *LEAVE)


def ask_files(address: str) -> str:
    """The same where the daemon is out of reach: looks for this machine's file by TFTP."""
    return written(*_chained(f"tftp://{address}/{MACHINE}", address), ":leave", *LEAVE)


def ask_through(base_url: str) -> str:
    """The same on a relay: what asks there is a boot image that looks for others on its networks,
    or may be anyone's. Answers name the URL as the boot image does.
    """
    asking = _chained(f"{base_url}/boot/${{uuid}}/{NETWORK}", base_url)
    return written(f"set base {base_url}", *asking, ":leave", *LEAVE)


def machine_file(mac: str) -> str:
    """Path below the TFTP root of one machine's script."""
    return f"ipxe/{mac.lower().replace(':', '-')}.ipxe"


def ask_from_iso(base_url: str) -> str:
    """The script on our boot ISO: gets an address, and asks by UUID and by MAC until the daemon
    answers, which alone says what boots.
    """
    command = f"chain --replace --autofree {base_url}/boot"
    return written(
        "set tries:int32 0",
        ":ask",
        "inc tries",
        "dhcp ||",
        f"{command}/${{uuid}}/ipxe ||",
        f"{command}/mac/${{netX/mac:hexhyp}}/ipxe ||",
        f"echo nospoon: no answer from {base_url} (try ${{tries}}), again in {ISO_PAUSE} s",
        f"sleep {ISO_PAUSE} ||",
        "goto ask",
    )


def answer(offer: Offer) -> str:
    """The script that the daemon answers with."""
    match offer:
        case Offer(device=BootDevice.NETWORK, kernel=Kernel() as kernel):
            return written(*load(kernel), *LEAVE)
        case Offer(device=BootDevice.HTTP, uri=uri) if uri:
            return written(*_fetch(uri))
        case Offer(device=BootDevice.DISK):
            return written("echo nospoon: boot the disk", *_disk())
        case Offer(device=device, refusal=refusal):
            why = refusal or f"nothing to boot from the {device}"
            return written(f"echo nospoon: {plain(why)}", *LEAVE)


def load(kernel: Kernel, *, label: str = "") -> list[str]:
    """Lines that boot this kernel, or go on after some tries. `label`: an end for their labels."""
    names = [f"initrd{number}" for number in range(len(kernel.initrds))]
    # an EFI kernel finds initrds by their name in iPXE's virtual file system; BIOS ignores this
    words = [*(f"initrd={name}" for name in names), *kernel.words]
    return [
        f"echo nospoon: boot {plain(kernel.name)}",
        "set tries:int32 0",
        f":load{label}",
        "inc tries",
        "imgfree",
        " ".join(["kernel --name kernel", kernel.kernel, *words]) + f" || goto failed{label}",
        *(
            f"initrd --name {name} {place} || goto failed{label}"
            for name, place in zip(names, kernel.initrds, strict=True)
        ),
        "boot ||",
        f":failed{label}",
        f"iseq ${{tries}} {LOAD_TRIES} && goto leave{label} ||",
        f"echo nospoon: that failed (try ${{tries}} of {LOAD_TRIES}), again in {LOAD_PAUSE} s",
        f"sleep {LOAD_PAUSE}",
        f"goto load{label}",
        f":leave{label}",
    ]


IMAGES = (".iso", ".img", ".raw")
"""Ends of paths that name the image of a whole medium; anything else is an EFI program."""


def is_image(place: str) -> bool:
    """Whether this URL names the image of a medium."""
    return place.partition("?")[0].lower().endswith(IMAGES)


def _fetch(uri: str) -> list[str]:
    """By firmware's rule for HTTP boot (UEFI 2.10 §24.7): a program runs, an image is a drive."""
    place = "".join(uri.split())
    command = "sanboot --no-describe" if is_image(place) else "chain --autofree"
    return [f"echo nospoon: boot {plain(place)}", f"{command} {place} ||", *LEAVE]


def _chained(place: str, server: str) -> list[str]:
    """Ask there until it is answered; after so many tries, goto leave."""
    return [
        "set tries:int32 0",
        ":ask",
        "inc tries",
        # --replace: what the answer does is final, its `exit` must not come back here
        f"chain --replace --autofree {place} && goto ask_done ||",
        f"echo nospoon: no answer from {server} (try ${{tries}} of {ASK_TRIES})",
        f"iseq ${{tries}} {ASK_TRIES} && goto leave ||",
        f"sleep {ASK_PAUSE}",
        "goto ask",
        ":ask_done",
    ]


def _disk() -> list[str]:
    """BIOS: the first hard disk by INT 13h. UEFI: back to the firmware, whose disk comes next."""
    return ["iseq ${platform} pcbios && sanboot --no-describe --drive 0x80 ||", *LEAVE]


def plain(text: str) -> str:
    """Text that no loader takes for syntax."""
    return "".join(char if char.isalnum() or char in " .,:;/=_+-()" else "?" for char in text)


def written(*lines: str) -> str:
    """A script of these lines."""
    return "\n".join(("#!ipxe", *lines)) + "\n"
