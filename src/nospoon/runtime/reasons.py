"""Why something failed, in our words: what libraries say is for programmers."""

from __future__ import annotations

import errno
import http.client
import socket
import ssl
import urllib.error
from collections.abc import Iterator

import httptools


class OurWords:
    """Mixed into errors of ours that pass through a library: their text is repeated."""


_KINDS: tuple[tuple[tuple[type[BaseException], ...], str], ...] = (
    ((ssl.SSLError,), "TLS failed: the server may speak plain HTTP, or another version of TLS"),
    ((socket.gaierror,), "its host name is not known"),
    ((TimeoutError,), "no answer in time"),
    ((ConnectionRefusedError,), "connection refused"),
    (
        (http.client.RemoteDisconnected, http.client.IncompleteRead, EOFError),
        "the server closed the connection",
    ),
    ((http.client.HTTPException, httptools.HttpParserError), "its answer is not HTTP"),
)
"""The first that fits counts."""


def reason(error: BaseException) -> str:
    """'connection refused', for an error of a library, and what it was caused by.

    Text of `ValueError`s is not repeated, for it may be a library's.
    """
    for each in _causes(error):
        if found := _reason(each):
            return found
    return f"an unexpected error ({type(error).__name__})"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what is in it, as urllib's `reason` and the arguments of requests' and
    urllib3's; of each what it was raised from.
    """
    seen: set[int] = set()
    waiting: list[object] = [error]
    while waiting:
        each = waiting.pop(0)
        if not isinstance(each, BaseException) or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        waiting += [getattr(each, "reason", None), *each.args, each.__cause__, each.__context__]


def _reason(error: BaseException) -> str:
    match error:
        case OurWords():
            return str(error)
        case urllib.error.HTTPError():
            return f"the server answered {error.code} {error.reason}".rstrip()
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted ({error.verify_message})"
        case UnicodeDecodeError():
            line = error.object[: error.start].count(b"\n") + 1
            return f"it is not UTF-8 text (line {line}, byte {error.start + 1} of the file)"
    for kinds, text in _KINDS:
        if isinstance(error, kinds):
            return text
    if isinstance(error, OSError) and error.errno in errno.errorcode and error.strerror:
        return error.strerror[:1].lower() + error.strerror[1:]
    return ""
