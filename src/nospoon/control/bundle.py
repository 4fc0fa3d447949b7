"""The support bundle: file, status, operations, logs, consoles and versions; secrets are masked."""

from __future__ import annotations

import io
import json
import platform
import re
import tarfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import msgspec

from nospoon import __version__
from nospoon.errors import NospoonError
from nospoon.runtime import process

MASK = "********"
LOG_TAIL = 2 << 20
"""Bytes of the daemon's log that are packed, from its end."""
_PASSWORD = re.compile(
    r"""(?i)(?P<key>\b(?:\w*(?:password|secret|passcode|token)|k_g)\b['"]?\s*:\s*)"""
    r"""(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\n]|'')*'|[^\s,}\]"'][^,}\]\n]*)"""
)
"""A key of a password in YAML or JSON, and its value: in double quotes, in single ones, plain."""
_ACCOUNT = re.compile(r"(?P<before>://)[^/\s?#\"]+@")
"""Name and password of a URL (RFC 3986 §3.2.1), up to the last @ before its path."""
TOOLS = (
    ("libvirtd", "--version"),
    ("qemu-system-x86_64", "--version"),
    ("dnsmasq", "--version"),
    ("ip", "-brief", "address"),
    ("ip", "route"),
)


def masked(text: str, secrets: Collection[str]) -> str:
    """The text without these secrets, however they are quoted, without anything that follows
    `password:`, and without the accounts of URLs. JSON stays JSON.
    """
    spellings = {each for secret in secrets if secret for each in _spellings(secret)}
    for secret in sorted(spellings, key=len, reverse=True):  # one may be part of another
        text = text.replace(secret, MASK)
    text = _PASSWORD.sub(lambda match: f'{match["key"]}"{MASK}"', text)
    return _ACCOUNT.sub(lambda match: f"{match['before']}{MASK}@", text)


def _spellings(secret: str) -> set[str]:
    """How a text may hold it: plain, in JSON and YAML's double quotes, in YAML's single ones."""
    escaped = {json.dumps(secret, ensure_ascii=plain)[1:-1] for plain in (True, False)}
    return {secret, secret.replace("'", "''"), quote(secret, safe=""), *escaped}


@dataclass(frozen=True, slots=True)
class Bundle:
    """Texts by name; packing masks every one of them."""

    texts: Mapping[str, str]
    secrets: Collection[str]

    def pack(self) -> bytes:
        """A .tar.gz of all texts below `nospoon-support/`."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            for name, text in self.texts.items():
                data = masked(text, self.secrets).encode()
                info = tarfile.TarInfo(f"nospoon-support/{name}")
                info.size, info.mode = len(data), 0o600
                archive.addfile(info, io.BytesIO(data))
        return buffer.getvalue()


async def versions() -> str:
    """What runs here, one fact a paragraph."""
    lines = [f"nospoon {__version__}", f"Python {platform.python_version()}", platform.platform()]
    for argv in TOOLS:
        try:
            done = await process.run(argv, check=False, timeout=10)
            lines.append(f"$ {done.line}\n{done.stdout or done.stderr}")
        except NospoonError as error:
            lines.append(f"$ {' '.join(argv)}\n{error}")
    return "\n".join(lines)


def log_tail(path: Path) -> str:
    """The end of the daemon's log."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LOG_TAIL))
            return file.read().decode(errors="replace")
    except OSError as error:
        return f"cannot read {path}: {error}"


def as_json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode()
