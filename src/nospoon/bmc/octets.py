"""Texts that IPMI clients write as bytes, in parts that may cut a character; others read text.

They are kept as `str` in which a byte that is no UTF-8 is a surrogate (PEP 383), so that every byte
comes back as it was written, and a text is stored as text.
"""

from __future__ import annotations

_ESCAPED = "surrogateescape"


def kept(data: bytes) -> str:
    """As it is stored."""
    return data.decode(errors=_ESCAPED)


def octets(text: str) -> bytes:
    """As it was written."""
    return text.encode(errors=_ESCAPED)


def shown(text: str) -> str:
    """For people: UTF-8, with or without a byte order mark, and what is none of it Latin-1, the
    two encodings of DCMI 1.5 §6.4.2.
    """
    data = octets(text)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")
