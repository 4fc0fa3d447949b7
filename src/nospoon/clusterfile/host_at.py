"""A host that is named by a URI alone, as `recover --host` and the setting of this machine do."""

from __future__ import annotations

from nospoon.errors import UsageError
from nospoon.model.cluster import Host
from nospoon.model.connections import Libvirt, Simulated
from nospoon.model.destinations import LibvirtUri, Transport


def host_at(name: str, uri: str) -> Host:
    """A host by its libvirt URI, or `simulated`. Raises `UsageError`."""
    if uri == "simulated":
        return Host(name, Simulated())
    try:
        where = LibvirtUri.parse(uri)
    except ValueError as error:
        raise UsageError(str(error), hint="`simulated` is a host of this daemon.") from error
    ssh = f"ssh://{where.authority}" if where.transport is Transport.SSH else ""
    return Host(name, Libvirt(uri), ssh=ssh)
