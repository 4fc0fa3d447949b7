"""What somebody changed of a domain beside its definition, and how it is put back.

Whether it starts with its host is no part of its XML; the link of a running machine's NIC is
changed at once, by `virsh domif-setlink`, and may be put back at once.
"""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree as ET

import libvirt

from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Observed
from nospoon.providers.libvirt.bindings import Connect, Domain
from nospoon.providers.libvirt.domain_parse import unlinked
from nospoon.providers.libvirt.elements import parsed


def autostarted(connect: Connect) -> set[bytes]:
    """The UUIDs of the domains that start with their host."""
    domains = connect.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_AUTOSTART)
    return {domain.UUID() for domain in domains}


def with_autostart(seen: Observed, themselves: set[bytes]) -> Observed:
    """A machine that starts with its host says so, as it is and as it will be."""
    shape, live = seen.shape, seen.live
    assert isinstance(shape, Machine)
    if shape.uuid.bytes not in themselves:
        return seen
    if isinstance(live, Machine):
        live = replace(live, autostart=True)
    return replace(seen, shape=replace(shape, autostart=True), live=live)


def mend(domain: Domain) -> None:
    """Put back what its new definition leaves as it is."""
    if domain.autostart():
        domain.setAutostart(0)
    if domain.isActive():
        for nic in unlinked(parsed(domain.XMLDesc(0))):
            for link in nic.iterfind("link"):
                link.set("state", "up")
            xml = ET.tostring(nic, encoding="unicode")
            domain.updateDeviceFlags(xml, libvirt.VIR_DOMAIN_AFFECT_LIVE)
