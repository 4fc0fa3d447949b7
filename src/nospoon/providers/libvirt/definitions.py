"""Domains' definitions, as far as they can be read: their owners write what they like into them.

libvirt takes metadata with names of namespaces that stand for nothing, and entities, which no
parser of namespaces reads, and definitions that are longer than its answers may be (4 MiB). One
such domain must not keep nospoon from all others of its host.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree as ET

import libvirt

from nospoon.errors import ProviderError
from nospoon.providers.libvirt.bindings import Connect, Domain
from nospoon.providers.libvirt.elements import parsed
from nospoon.providers.libvirt.faults import NO_DOMAIN, TOO_LONG_TEXT
from nospoon.runtime.log_rate import RateLimitedLog

log = RateLimitedLog()


def defined(
    connect: Connect, *, of: int = 0, flags: int = libvirt.VIR_DOMAIN_XML_INACTIVE
) -> Iterator[tuple[Domain, ET.Element]]:
    """All domains that are there and can be read. `of`: which, by `listAllDomains`'s flags."""
    for domain in connect.listAllDomains(of):
        root = definition(domain, flags)
        if root is not None:
            yield domain, root


def definition(domain: Domain, flags: int = libvirt.VIR_DOMAIN_XML_INACTIVE) -> ET.Element | None:
    """None of one that went meanwhile, or cannot be read."""
    try:
        return parsed(domain.XMLDesc(flags))
    except ProviderError as error:
        why = str(error)
    except libvirt.libvirtError as error:
        if error.get_error_code() == NO_DOMAIN:
            return None
        why = error.get_error_message() or ""
        if TOO_LONG_TEXT not in why:
            raise
    leave_out(domain.name(), why)
    return None


def leave_out(name: str, why: str) -> None:
    """A machine that says what none of nospoon's does, such as a processor that it does not know,
    whatever tag it has.
    """
    log.warning("machine cannot be read and is left out", domain=name, why=why)
