"""libvirt's URIs of other tools, as a cluster file takes them: without a query.

A query names files and programs that libvirt would use (libvirt.org/uri.html), which a cluster file
may not.
"""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from nospoon.errors import UsageError

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
"""Hosts that are this machine, whose system libvirtd needs no ssh."""


def without_query(text: str) -> tuple[str, str]:
    """The URI, and the query that is lost with it; "" where it says nothing that matters: of this
    machine's libvirtd, all but another socket. Raises `UsageError`.
    """
    uri, _, query = text.partition("?")
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        raise UsageError(f"expected a libvirt URI, got {text!r}") from error
    scheme = parts.scheme.removesuffix("+unix")
    if scheme == "qemu+ssh" and parts.hostname in LOOPBACK and parts.path == "/system":
        return "qemu:///system", ""  # from a container of the tool
    if parts.netloc:
        return uri, query
    return f"{scheme}://{parts.path}", query if "socket" in parse_qs(query) else ""
