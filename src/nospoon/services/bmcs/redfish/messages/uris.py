"""URIs that clients give: what is fetched there, or told."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

ROOT = "/redfish/v1"
"""Of the service (DSP0266 §6.3)."""
SCHEMES = ("http", "https")
SHAPE = "http://HOST… or https://HOST…, without blanks, at most 8,000 characters"
LONGEST = 8000
"""Characters, as of URLs in cluster files: they are stored, shown and logged in many places."""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?!\d)")
"""A scheme (RFC 3986 §3.1), not a host with its port."""


def is_web(uri: object) -> bool:
    """Whether it is an absolute http or https URI with a host (RFC 9110 §4.2, RFC 3986)."""
    if not isinstance(uri, str) or len(uri) > LONGEST:
        return False
    if not uri.isascii() or not uri.isprintable() or " " in uri:
        return False
    try:
        parts = urlsplit(uri)
        return parts.scheme in SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def with_scheme(uri: str, protocol: str = "") -> str:
    """Of a URI without one the scheme is a transfer protocol's, HTTP's when that is not given.

    So UpdateService says it of SimpleUpdate, parameter `TransferProtocol`.
    """
    return uri if _SCHEME.match(uri) else f"{protocol.lower() or 'http'}://{uri}"
