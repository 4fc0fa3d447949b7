"""The CD drive of a domain that someone else made: borrowed for virtual media, and given back.

What was there is written into the domain's metadata before anything is changed, so that it can be
put back also by a daemon that knows nothing more. A domain without a drive is given one, on a bus
that it has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from pathlib import PurePosixPath
from string import ascii_lowercase
from xml.etree import ElementTree as ET

import libvirt
import structlog

from nospoon.errors import ProviderError
from nospoon.providers.libvirt.bindings import Connect, Domain
from nospoon.providers.libvirt.domain_parse import medium_of
from nospoon.providers.libvirt.elements import attribute_of, element, parsed, written
from nospoon.providers.libvirt.faults import NO_DOMAIN_METADATA
from nospoon.providers.libvirt.owner import CDROM
from nospoon.providers.libvirt.storage_xml import MEDIUM

log = structlog.get_logger()
CONFIG, LIVE = libvirt.VIR_DOMAIN_AFFECT_CONFIG, libvirt.VIR_DOMAIN_AFFECT_LIVE
ELEMENT = libvirt.VIR_DOMAIN_METADATA_ELEMENT
FORCE = libvirt.VIR_DOMAIN_DEVICE_MODIFY_FORCE
"""A guest that locked its tray is not asked: a BMC's eject is a person at the drive."""
BUSES = {"sata": "sd", "scsi": "sd", "ide": "hd", "usb": "sd"}
"""Buses that have CD drives, best first, and how their devices are called. On USB, libvirt's is one
of hard disks for the guest.
"""
PLUGGABLE = frozenset({"scsi", "usb"})
"""Into these a drive is plugged while the machine runs; others have it from its next start on."""
BUILT_IN = re.compile(r"pc(-i440fx-.*)?$")
"""Machine types with an IDE controller, of which libvirt tells when something is on it."""
MEDIA = ("source", "backingStore")
"""Elements of a drive that are its medium."""
IDE = re.compile(
    r"(?<!\s)\s*<controller type='ide'(?:[^>]*/>|[^>]*(?<!/)>.*?</controller>)", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Borrowed:
    """The drive that was changed, by its target (`sda`), and its XML before; "": it was added.
    `controller`: libvirt told of no IDE controller before.
    """

    target: str
    original: str
    controller: bool = False


def borrow(domain: Domain, path: str) -> str:
    """Put a medium into the first drive, or take out what is in there (""); the path of what it
    was. Raises `ProviderError` where there is no drive and no bus for one.
    """
    root = _defined(domain)
    drive = root.find("devices/disk[@device='cdrom']")
    if drive is None:
        if path:
            _add(domain, root, path)
        return ""
    target = attribute_of(drive, "target", "dev")
    noted = _borrowed(domain)
    if noted is None:
        noted = Borrowed(target, written(drive))
        _note(domain, noted)
    if not path and attribute_of(drive, "target", "bus") == "usb":
        _eject_usb(domain, drive, noted)
    else:
        _update(domain, written(_with_medium(drive, path)), target)
    return medium_of(root)


def _eject_usb(domain: Domain, drive: ET.Element, noted: Borrowed) -> None:
    """QEMU (7.2) starts no machine with an empty drive on USB ("drive property not set"): until
    the next medium, one that was added is out of the definition, and another has what was in it.
    """
    running = _drive(parsed(domain.XMLDesc(0)), noted.target) if domain.isActive() else None
    if running is not None:
        domain.updateDeviceFlags(written(_with_medium(running, "")), LIVE | FORCE)
    if noted.original:
        domain.updateDeviceFlags(written(_as_before(drive, noted.original)), CONFIG)
    else:
        domain.detachDeviceFlags(written(drive), CONFIG)


def give_back(connect: Connect, domain: Domain) -> str:
    """The drive is as it was, unless its owner put something of his into it meanwhile. The path of
    the medium that was in it, "" for none.
    """
    noted = _borrowed(domain)
    if noted is None:
        return ""
    root = _defined(domain)
    drive = _drive(root, noted.target)
    medium = _medium(drive) if drive is not None else ""
    if drive is None or (medium and not _is_ours(medium)):
        return ""
    if domain.isActive():
        running = _drive(parsed(domain.XMLDesc(0)), noted.target)
        if running is not None and (not _medium(running) or _is_ours(_medium(running))):
            _give_back_live(domain, noted, running)
    if noted.original:
        domain.updateDeviceFlags(written(_as_before(drive, noted.original)), CONFIG)
    else:
        domain.detachDeviceFlags(written(drive), CONFIG)
    if noted.controller:
        _without_controller(connect, domain)
    return medium


def _without_controller(connect: Connect, domain: Domain) -> None:
    """In libvirt's own text, which a parser would write with other names of namespaces."""
    root = _defined(domain)
    if not root.findall("devices/disk/target[@bus='ide']"):
        xml = domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE)
        before, devices, inside = xml.rpartition("<devices>")  # the metadata may have such elements
        connect.defineXMLFlags(before + devices + IDE.sub("", inside), 0)


def lacks_drive(domain: Domain) -> bool:
    """Whether a running domain was given a drive that it has from its next start on."""
    noted = _borrowed(domain)
    if noted is None or noted.original or not domain.isActive():
        return False
    return _drive(parsed(domain.XMLDesc(0)), noted.target) is None


def _give_back_live(domain: Domain, noted: Borrowed, running: ET.Element) -> None:
    if noted.original:
        try:
            domain.updateDeviceFlags(written(_as_before(running, noted.original)), LIVE | FORCE)
        except libvirt.libvirtError as error:  # its owner's disc is gone: the drive is left empty
            log.warning("disc is not available", domain=domain.name(), why=str(error))
            domain.updateDeviceFlags(written(_with_medium(running, "")), LIVE | FORCE)
        return
    with suppress(libvirt.libvirtError):  # not every bus: it stays, empty, until a power-off
        domain.updateDeviceFlags(written(_with_medium(running, "")), LIVE | FORCE)
        domain.detachDeviceFlags(written(running), LIVE)


def _defined(domain: Domain) -> ET.Element:
    return parsed(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))


def _drive(root: ET.Element, target: str) -> ET.Element | None:
    drives = root.iterfind("devices/disk[@device='cdrom']")
    return next((each for each in drives if attribute_of(each, "target", "dev") == target), None)


def _medium(drive: ET.Element) -> str:
    """What is in it; "?" for what is no file."""
    source = drive.find("source")
    return "" if source is None else source.get("file") or "?"


def _is_ours(path: str) -> bool:
    return MEDIUM.match(PurePosixPath(path).name) is not None


def _with_medium(drive: ET.Element, path: str) -> ET.Element:
    changed = _emptied(drive)
    changed.set("type", "file")
    if path:
        changed.insert(0, element("source", file=path))
    return changed


def _as_before(drive: ET.Element, original: str) -> ET.Element:
    """With the medium that was in it. What else its owner changed of it meanwhile is kept."""
    changed, before = _emptied(drive), parsed(original)
    changed.set("type", before.get("type", "file"))
    for name in reversed(MEDIA):
        for each in before.findall(name):
            changed.insert(0, each)
    return changed


def _emptied(drive: ET.Element) -> ET.Element:
    changed = deepcopy(drive)
    for name in MEDIA:
        for each in changed.findall(name):
            changed.remove(each)
    return changed


def _update(domain: Domain, xml: str, target: str) -> None:
    runs = domain.isActive() and _drive(parsed(domain.XMLDesc(0)), target) is not None
    domain.updateDeviceFlags(xml, CONFIG | LIVE | FORCE if runs else CONFIG)


def _add(domain: Domain, root: ET.Element, path: str) -> None:
    bus = next(_buses(root), "")
    if not bus:
        raise ProviderError(
            f"the domain {domain.name()} has no CD drive, and no controller for one",
            hint=f"Give it a drive, or a controller of {', '.join(BUSES)}.",
        )
    target = _free_target(root, BUSES[bus])
    xml = written(
        element(
            "disk",
            element("driver", name="qemu", type="raw"),
            element("source", file=path),
            element("target", dev=target, bus=bus),
            element("readonly"),
            type="file",
            device="cdrom",
        )
    )
    _note(domain, Borrowed(target, "", controller=bus == "ide" and "ide" not in _has(root)))
    domain.attachDeviceFlags(xml, CONFIG)
    if domain.isActive() and bus in PLUGGABLE:
        with suppress(libvirt.libvirtError):  # no free port: it has it from its next start on
            domain.attachDeviceFlags(xml, LIVE)


def _buses(root: ET.Element) -> Iterator[str]:
    has = _has(root)
    if BUILT_IN.match(attribute_of(root, "os/type", "machine")):
        has.add("ide")
    return (bus for bus in BUSES if bus in has)


def _has(root: ET.Element) -> set[str]:
    """The types of its controllers."""
    there = root.iterfind("devices/controller")
    return {each.get("type", "") for each in there if each.get("model") != "none"}


def _free_target(root: ET.Element, prefix: str) -> str:
    taken = {attribute_of(disk, "target", "dev") for disk in root.iterfind("devices/disk")}
    free = (name for letter in ascii_lowercase if (name := prefix + letter) not in taken)
    found = next(free, "")
    if not found:
        raise ProviderError("the machine has 26 disks, and no slot for another")
    return found


def _note(domain: Domain, what: Borrowed) -> None:
    more = {"controller": "ide"} if what.controller else {}
    xml = written(element("cdrom", target=what.target, original=what.original, **more))
    domain.setMetadata(ELEMENT, xml, "nospoon-cdrom", CDROM, CONFIG)


def _borrowed(domain: Domain) -> Borrowed | None:
    try:
        noted = parsed(domain.metadata(ELEMENT, CDROM, CONFIG))
    except libvirt.libvirtError as error:
        if error.get_error_code() == NO_DOMAIN_METADATA:
            return None
        raise
    added = noted.get("controller") is not None
    return Borrowed(noted.get("target", ""), noted.get("original", ""), added)
