"""Formats that libvirt looks for in its pools, by fewer bytes than QEMU: what names other files is
neither taken as a medium nor as an image.
"""

from __future__ import annotations

import struct
from pathlib import Path

import libvirt
import pytest
from tests.libvirt.trap import a_trap, image_over

from nospoon.control.content.images import format_of, refuse_formatted
from nospoon.errors import UsageError
from nospoon.testing.libvirtd import OwnLibvirt

pytestmark = pytest.mark.libvirt
VMDK = struct.Struct("<4sIIQ")


def cow(backing: Path) -> bytes:
    """Of user-mode Linux, which QEMU knows no more."""
    return b"OOOM" + struct.pack(">I", 2) + str(backing).encode().ljust(1024, b"\0")


def qcow2(backing: Path) -> bytes:
    """With a magic number that QEMU does not take."""
    return image_over(backing).replace(b"QFI\xfb", b"QFIX", 1)


def qcow(backing: Path) -> bytes:
    return image_over(backing).replace(struct.pack(">I", 3), struct.pack(">I", 1), 1)


def vmdk(backing: Path) -> bytes:
    head = VMDK.pack(b"KDMV", 1, 3, 2048).ljust(512, b"\0")
    return head + f'parentFileNameHint="{backing}"'.encode()


@pytest.mark.parametrize("made", [cow, qcow2, qcow, vmdk, image_over])
def test_what_libvirt_takes_for_an_image_on_top_of_a_file_is_refused(
    own_libvirt: OwnLibvirt, tmp_path: Path, made: object
) -> None:
    assert callable(made)
    place = tmp_path / "pool"
    place.mkdir()
    file = place / "medium"
    connect = libvirt.open(own_libvirt.uri)
    with a_trap(tmp_path) as trap:
        file.write_bytes(made(trap.path).ljust(1 << 20, b"\0"))
        xml = f"<pool type='dir'><name>formats</name><target><path>{place}</path></target></pool>"
        connect.storagePoolCreateXML(xml, 0).destroy()
    connect.close()
    assert trap.opened, "libvirt looks for this format"
    with pytest.raises(UsageError, match="expected an ISO image"):
        refuse_formatted(file, "m.iso")
    with pytest.raises(UsageError, match=r"image m\.img"):
        format_of("m.img", file.read_bytes()[:4096])


@pytest.mark.parametrize("magic", [b"QFI", b"QFIX", b"QED", b"QEDX", b"OOOM", b"WithouFreSpacExt"])
def test_a_beginning_that_libvirt_knows_is_enough(tmp_path: Path, magic: bytes) -> None:
    file = tmp_path / "medium"
    file.write_bytes(magic.ljust(4096, b"\0"))
    with pytest.raises(UsageError, match="expected an ISO image"):
        refuse_formatted(file, "m.iso")
    with pytest.raises(UsageError, match="expected raw or qcow2"):
        format_of("m.img", magic)
