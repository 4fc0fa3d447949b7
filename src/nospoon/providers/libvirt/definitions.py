"""Domains' definitions, as far as they can be read: their owners write what they like into them.

libvirt takes metadata with names of namespaces that stand for nothing, and entities, which no
parser of namespaces reads, and definitions that are longer than its answers may be (4 MiB). One
such domain must not keep nospoon from all others of its host.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree as ET

import libvirt
import structlog

from nospoon.errors import ProviderError
from nospoon.providers.libvirt.bindings import Connect, Domain
from nospoon.providers.libvirt.elements import parsed
from nospoon.providers.libvirt.faults import NO_DOMAIN, TOO_LONG_TEXT

log = structlog.get_logger()


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
    log.debug("machine cannot be read", domain=domain.name(), why=why)
    return None
