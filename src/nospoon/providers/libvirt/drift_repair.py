"""What someone changed of a domain beside its shape, and how it is put back.

Whether it starts with its host is no part of its XML; the link of a running machine's NIC is
changed at once, by `virsh domif-setlink`, and may be put back at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from xml.etree import ElementTree as ET

import libvirt

from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Deviation, Observed
from nospoon.providers.libvirt.bindings import Connect, Domain
from nospoon.providers.libvirt.domain_parse import unlinked
from nospoon.providers.libvirt.elements import attribute_of, parsed
from nospoon.providers.libvirt.ends import WANTED, parsed_ends
from nospoon.providers.unlinked import UNLINKED


def autostarted(connect: Connect) -> set[bytes]:
    """The UUIDs of the domains that start with their host."""
    domains = connect.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_AUTOSTART)
    return {domain.UUID() for domain in domains}


def with_autostart(seen: Observed, themselves: set[bytes]) -> Observed:
    """A machine that starts with its host says so."""
    assert isinstance(seen.shape, Machine)
    if seen.shape.uuid.bytes not in themselves:
        return seen
    return replace(seen, deviations=(*seen.deviations, Deviation("autostart", "yes", "no")))


def deviations_of(defined: ET.Element, now: ET.Element) -> Iterator[Deviation]:
    """Of a domain's definition, and of what runs by it: links are put up in both at once."""
    ends = parsed_ends(defined)
    if ends != WANTED:
        yield Deviation("ends", str(ends), str(WANTED))
    down = [nic for root in (defined, now) for nic in unlinked(root)]
    if down:
        macs = dict.fromkeys(attribute_of(nic, "mac", "address").lower() for nic in down)
        yield Deviation(UNLINKED, tuple(macs), ())


def late_in(defined: ET.Element, now: ET.Element) -> Iterator[Deviation]:
    """What a domain that runs was started with, and its definition has no more."""
    ends = parsed_ends(now)
    if ends not in {WANTED, parsed_ends(defined)}:
        yield Deviation("ends", str(ends), str(WANTED))


def repair(domain: Domain) -> None:
    """Put back what its new definition leaves as it is."""
    if domain.autostart():
        domain.setAutostart(0)
    if domain.isActive():
        for nic in unlinked(parsed(domain.XMLDesc(0))):
            for link in nic.iterfind("link"):
                link.set("state", "up")
            xml = ET.tostring(nic, encoding="unicode")
            domain.updateDeviceFlags(xml, libvirt.VIR_DOMAIN_AFFECT_LIVE)
