"""URIs that clients give: what is fetched there, or told."""

from __future__ import annotations

from urllib.parse import urlsplit

SCHEMES = ("http", "https")
SHAPE = "http://HOST… or https://HOST…, without blanks"


def is_web(uri: object) -> bool:
    """Whether it is an absolute http or https URI with a host (RFC 9110 §4.2, RFC 3986)."""
    if not isinstance(uri, str) or not uri.isascii() or not uri.isprintable() or " " in uri:
        return False
    try:
        parts = urlsplit(uri)
        return parts.scheme in SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def without_account(uri: str) -> str:
    """As it may be shown: the account that it may hold (RFC 3986 §3.2.1) is the client's alone."""
    parts = urlsplit(uri)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl() if "@" in uri else uri
