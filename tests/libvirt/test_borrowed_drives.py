"""CD drives of domains that others made: given a medium, ejected, and given back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import libvirt
import pytest

from nospoon.providers.libvirt.adopted_drives import IDE, borrow, give_back
from nospoon.providers.libvirt.owner import CDROM
from nospoon.testing.libvirtd import OwnLibvirt

pytestmark = pytest.mark.libvirt
Define = Callable[[str, str], Any]
INACTIVE = libvirt.VIR_DOMAIN_XML_INACTIVE
OWN = "<source file='/owner.iso' startupPolicy='optional'/>"


@pytest.fixture
def define(own_libvirt: OwnLibvirt) -> Iterator[Define]:
    """Defines a domain on a machine type, with these devices."""
    connect = libvirt.open(own_libvirt.uri)
    made: list[Any] = []

    def defined(machine: str, devices: str) -> Any:
        xml = (
            f"<domain type='qemu'><name>drive-{len(made)}</name><uuid>{uuid4()}</uuid>"
            f"<memory unit='MiB'>64</memory><os><type arch='x86_64' machine='{machine}'>hvm</type>"
            f"</os><devices>{devices}</devices></domain>"
        )
        made.append(connect.defineXML(xml))
        return made[-1]

    yield defined
    for each in made:
        each.undefine()
    connect.close()


def drive(bus: str, source: str = "") -> str:
    """The XML of a CD drive, with a controller."""
    name = "hdc" if bus == "ide" else "sdc"
    more = "<controller type='scsi' model='virtio-scsi'/>" if bus == "scsi" else ""
    return (
        f"{more}<disk type='file' device='cdrom'>{source}<target dev='{name}' bus='{bus}'/></disk>"
    )


def put_back(domain: Any) -> str:
    """The definition without the note, after the drive was given back."""
    give_back(libvirt.open(domain.connect().getURI()), domain)
    domain.setMetadata(
        libvirt.VIR_DOMAIN_METADATA_ELEMENT,
        None,
        "nospoon",
        CDROM,
        libvirt.VIR_DOMAIN_AFFECT_CONFIG,
    )
    xml: str = domain.XMLDesc(INACTIVE)
    return xml


def medium(tmp_path: Path) -> str:
    return str(tmp_path / f"media-{'a' * 64}.iso")


@pytest.mark.parametrize("source", ["", OWN], ids=["empty", "with a disc"])
@pytest.mark.parametrize("bus", ["ide", "sata", "scsi", "usb"])
def test_a_drive_on_each_bus_is_as_it_was(
    define: Define, tmp_path: Path, bus: str, source: str
) -> None:
    domain = define("pc" if bus == "ide" else "q35", drive(bus, source))
    before = domain.XMLDesc(INACTIVE)
    borrow(domain, medium(tmp_path))
    assert medium(tmp_path) in domain.XMLDesc(INACTIVE)
    borrow(domain, "")
    assert medium(tmp_path) not in domain.XMLDesc(INACTIVE)
    borrow(domain, medium(tmp_path))
    after = put_back(domain).replace("  <metadata/>\n", "")
    assert after.replace("  <metadata>\n  </metadata>\n", "") == before


def test_what_its_owner_changes_of_a_borrowed_drive_is_kept(define: Define, tmp_path: Path) -> None:
    domain = define("q35", drive("sata", OWN))
    borrow(domain, medium(tmp_path))
    cut = domain.XMLDesc(INACTIVE).partition("bus='sata'/>")
    domain.connect().defineXML(f"{cut[0]}{cut[1]}<boot order='1'/>{cut[2]}".replace(
        "<boot dev='hd'/>", ""
    ))  # fmt: skip
    after = put_back(domain)
    assert "<boot order='1'/>" in after
    assert "file='/owner.iso'" in after


def test_a_machine_that_runs_is_given_back_without_a_disc_that_its_owner_removed(
    define: Define, tmp_path: Path
) -> None:
    own, other = tmp_path / "own.iso", Path(medium(tmp_path))
    for each in (own, other):
        each.write_bytes(bytes(1 << 16))
    domain = define("q35", drive("sata", f"<source file='{own}'/>"))
    borrow(domain, str(other))
    domain.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED)
    try:
        own.unlink()
        after = put_back(domain)
        assert f"file='{own}'" in after, "what its owner defined stays defined"
        assert "file=" not in domain.XMLDesc(0).partition("device='cdrom'")[2]
    finally:
        domain.destroy()


def test_a_drive_on_usb_is_never_left_empty(define: Define, tmp_path: Path) -> None:
    """QEMU would not start the machine."""
    domain = define("q35", drive("usb", OWN))
    borrow(domain, medium(tmp_path))
    borrow(domain, "")
    assert "file='/owner.iso'" in domain.XMLDesc(INACTIVE)


def test_an_ide_controller_goes_alone(define: Define, tmp_path: Path) -> None:
    domain = define("pc", "")
    theirs = "<app><controller type='ide' index='0'/><controller type='x'></controller></app>"
    element, config = libvirt.VIR_DOMAIN_METADATA_ELEMENT, libvirt.VIR_DOMAIN_AFFECT_CONFIG
    domain.setMetadata(element, theirs, "a", "urn:a", config)
    before = domain.XMLDesc(INACTIVE)
    borrow(domain, medium(tmp_path))
    assert put_back(domain) == before
    following = "<controller type='usb'><address/></controller>"
    assert IDE.sub("", f"<controller type='ide' index='0'/>{following}") == following
    assert IDE.sub("", f"<controller type='ide'><address/></controller>{following}") == following
