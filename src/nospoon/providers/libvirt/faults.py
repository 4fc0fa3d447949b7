"""libvirt's errors in our words: one table from its codes to our classes.

https://libvirt.org/html/libvirt-virterror.html#virErrorNumber. Messages say what was asked of which
host; hints say how to fix it. The numbers are spelt out so that this reads without libvirt.
"""

from __future__ import annotations

from dataclasses import dataclass

from nospoon.errors import (
    Conflict,
    Gone,
    HostUnreachable,
    MissingTool,
    NospoonError,
    OutOfSpace,
    ProviderError,
)
from nospoon.plan.closed import remedy

INTERNAL_ERROR, NO_SUPPORT, SYSTEM_ERROR, RPC, AUTH_FAILED = 1, 3, 38, 39, 45
NO_CONNECT, OPERATION_FAILED, OPERATION_INVALID, NO_DOMAIN = 5, 9, 55, 42
NO_NETWORK, NO_STORAGE_POOL, NO_STORAGE_VOL, NO_DOMAIN_METADATA = 43, 49, 50, 80
STORAGE_VOL_EXIST = 90
NO_INTERFACE, NO_NWFILTER, OPERATION_TIMEOUT, AUTH_CANCELLED, AUTH_UNAVAILABLE = 57, 62, 68, 79, 94
TOO_LONG_TEXT = "Unable to encode message payload"
"""Of an answer that is longer than libvirt's protocol carries, with the code RPC."""
ENOSPC_TEXT = ("no space left on device", "disk quota exceeded")
LOST_TEXT = ("socket", "connection reset", "broken pipe", "end of file", "cannot recv", "keepalive")


@dataclass(frozen=True, slots=True)
class Fault:
    """What libvirt said: its code and its text."""

    code: int
    text: str


CLASSES: dict[int, type[NospoonError]] = {
    NO_CONNECT: HostUnreachable,
    RPC: HostUnreachable,
    AUTH_FAILED: HostUnreachable,
    AUTH_CANCELLED: HostUnreachable,
    AUTH_UNAVAILABLE: HostUnreachable,
    OPERATION_TIMEOUT: ProviderError,
    NO_DOMAIN: Gone,
    NO_NETWORK: Gone,
    NO_STORAGE_POOL: Gone,
    NO_STORAGE_VOL: Gone,
    NO_SUPPORT: MissingTool,
}

HINTS: dict[type[NospoonError], str] = {
    HostUnreachable: "Is libvirtd running there? Start it: `systemctl start libvirtd virtlogd`, "
    "or without systemd `libvirtd -d; virtlogd -d`.",
    OutOfSpace: "Free space on the file system of the pool, or take smaller disks and images.",
    Gone: "It was removed by other means. `nospoon up` makes it again.",
    MissingTool: "Run `nospoon doctor`.",
    Conflict: "Close the other one first.",
}


CLOSED_TEXT = "): permission denied"
"""Of … storage file 'F' (as uid:64055, gid:64055): Permission denied."""
HINTS_BY_TEXT = (
    ("no connection driver", "Write a URI such as qemu:///system or qemu+ssh://HOST/system."),
    ("ssh", "Try it by hand, with the user that runs the daemon: ssh HOST virsh list."),
    ("could not resolve", "Is the host's name right?"),
)
"""Signs in libvirt's text that tell more than its code does."""


def translate(fault: Fault, *, host: str, doing: str, here: bool = True) -> NospoonError:
    """Our error for libvirt's. `doing`: what was asked, as in "start machine m0". `here`: the host
    is this machine.
    """
    kind, text = _class_of(fault), fault.text.strip()  # it ends with a line end of qemu-img's
    hint = next((h for sign, h in HINTS_BY_TEXT if sign in text.lower()), HINTS.get(kind, ""))
    if CLOSED_TEXT in text.lower():
        todo = remedy("", here=here)
        hint = f"QEMU runs as another user, who may not enter a directory above it: {todo}."
    return kind(f"host {host}: cannot {doing}: {text}", hint=hint)


def _class_of(fault: Fault) -> type[NospoonError]:
    text = fault.text.lower()
    if any(sign in text for sign in ENOSPC_TEXT):
        return OutOfSpace
    if fault.code == OPERATION_FAILED and "active console session" in text:
        return Conflict
    if fault.code in {SYSTEM_ERROR, INTERNAL_ERROR} and any(sign in text for sign in LOST_TEXT):
        return HostUnreachable
    return CLASSES.get(fault.code, ProviderError)
