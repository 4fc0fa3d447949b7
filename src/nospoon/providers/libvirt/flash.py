"""Files of UEFI variables, read and written over libvirt while their machines are off."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import libvirt

from nospoon.errors import ProviderError
from nospoon.providers.libvirt.hypervisor import Connect
from nospoon.providers.libvirt.pools import VirVolume
from nospoon.providers.libvirt.varstore import LARGEST, BadVariables

CHUNK = 1 << 18
Edit = Callable[[bytes], bytes]


def download(connect: Connect, volume: VirVolume) -> bytes:
    """As much of the file as may hold variables."""
    stream = connect.newStream(0)
    volume.download(stream, 0, min(volume.info()[1], LARGEST), 0)
    data = bytearray()
    try:
        while chunk := stream.recv(CHUNK):
            data += chunk
        stream.finish()
    except libvirt.libvirtError:
        stream.abort()
        raise
    return bytes(data)


def upload(connect: Connect, volume: VirVolume, before: bytes, after: bytes) -> None:
    """Write what differs, as one piece: the packed variables, which one message holds. Both are
    the beginning of the file, of one length; the rest of it stays.
    """
    if before == after:
        return
    first = next(n for n, (old, new) in enumerate(zip(before, after, strict=True)) if old != new)
    last = next(n for n in range(len(after) - 1, -1, -1) if before[n] != after[n])
    stream = connect.newStream(0)
    volume.upload(stream, first, last + 1 - first, 0)
    view = memoryview(after)[first : last + 1]
    try:
        while view:
            view = view[stream.send(bytes(view[:CHUNK])) :]
        stream.finish()
    except libvirt.libvirtError:
        stream.abort()
        raise


def edited(where: str, flash: bytes, edits: Iterable[Edit]) -> bytes:
    """What is in the file at `where` after some edits. Raises `ProviderError`."""
    try:
        for each in edits:
            flash = each(flash)
    except BadVariables as error:
        raise ProviderError(
            f"{where}: {error}",
            hint="Start the machine once without setup: the firmware then makes what it lacks.",
        ) from error
    return flash
