"""Checksums of images, and the lists in which projects publish them. PURE.

A list is what sha256sum(1) and sha512sum(1) write, with or without `--tag`: a line a file,

    DIGITS  NAME        (or " *NAME", read as binary; a backslash before it all: NAME is escaped)
    SHA256 (NAME) = DIGITS

or the digits alone. Other lines, such as those of a PGP signature around it, say nothing. MD5 and
SHA-1 are not taken: files of one checksum can be made (RFC 6151, RFC 6194).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from posixpath import basename

ALGORITHMS = {64: "sha256", 128: "sha512"}
"""Hexadecimal digits -> whose they are."""
_DIGITS = r"[0-9a-fA-F]{128}|[0-9a-fA-F]{64}"
_ONE = re.compile(rf"(?:(?P<algorithm>sha256|sha512):)?(?P<digits>{_DIGITS})\Z")
_GNU = re.compile(rf"\\?(?P<digits>{_DIGITS})[ \t]+\*?(?P<name>\S.*)\Z")
_BSD = re.compile(rf"SHA(?:256|512)[ ]?\((?P<name>.+)\)[ ]?= ?(?P<digits>{_DIGITS})\Z")


@dataclass(frozen=True, slots=True)
class Checksum:
    """`algorithm` by hashlib's name; `digits` in lower-case hexadecimal."""

    algorithm: str
    digits: str

    def __str__(self) -> str:
        return f"{self.algorithm}:{self.digits}"


def parse(text: str) -> Checksum | None:
    """`sha256:DIGITS`, `sha512:DIGITS`, or digits of either; None for anything else."""
    match = _ONE.match(text)
    if match is None:
        return None
    algorithm = ALGORITHMS[len(match["digits"])]
    said = match["algorithm"] or algorithm
    return Checksum(algorithm, match["digits"].lower()) if said == algorithm else None


def listed(text: str, name: str) -> Checksum | None:
    """What a list says of a file of this name, in whatever directory; None: nothing."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for match in (_GNU.match(line) or _BSD.match(line) for line in lines):
        if match is not None and basename(match["name"]) == name:
            return parse(match["digits"])
    return parse(lines[0]) if len(lines) == 1 else None
