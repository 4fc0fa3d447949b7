"""One HTTP request out: a POST whose answer's status is all that is wanted (RFC 9112)."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Sequence
from urllib.parse import urlsplit

from nospoon.errors import ProviderError

_PORTS = {"http": 80, "https": 443}
LONGEST_LINE = 1 << 10


async def post(
    url: str,
    body: bytes,
    *,
    headers: Sequence[tuple[str, str]],
    verify: bool,
    patience: float,
) -> int:
    """The status of the answer. Raises `ProviderError` when there is none within `patience` s."""
    try:
        async with asyncio.timeout(patience):
            return await _post(url, body, headers, _context(url, verify=verify))
    except TimeoutError:
        raise ProviderError(f"{url} did not answer within {patience:.0f} s") from None
    except (OSError, ValueError, asyncio.IncompleteReadError) as error:
        raise ProviderError(f"{url} does not answer: {error}") from error


def _context(url: str, *, verify: bool) -> ssl.SSLContext | None:
    if not url.startswith("https:"):
        return None
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


async def _post(
    url: str, body: bytes, headers: Sequence[tuple[str, str]], context: ssl.SSLContext | None
) -> int:
    parts = urlsplit(url)
    port = parts.port or _PORTS[parts.scheme]
    reader, writer = await asyncio.open_connection(
        parts.hostname, port, ssl=context, limit=LONGEST_LINE
    )
    try:
        writer.write(_head(url, len(body), headers) + body)
        await writer.drain()
        return _status(await reader.readuntil(b"\r\n"))
    except asyncio.LimitOverrunError as error:
        raise ValueError("its answer is no HTTP") from error
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def _head(url: str, size: int, headers: Sequence[tuple[str, str]]) -> bytes:
    """Headers that are given come last, and never twice."""
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    given = {name.lower() for name, _ in headers}
    ours = (
        ("Host", parts.netloc.rpartition("@")[2]),
        ("Content-Length", str(size)),
        ("Connection", "close"),
        ("Content-Type", "application/json"),
        ("User-Agent", "nospoon"),
    )
    lines = [f"POST {target} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in ours if name.lower() not in given]
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")


def _status(line: bytes) -> int:
    words = line.split()
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        raise ValueError("its answer is no HTTP")
    return int(words[1])
