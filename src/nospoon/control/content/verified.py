"""Downloads whose checksum the cluster file gives: as they should be, or not kept."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from nospoon.control.content.fetch import Access, Terms, Transfer, download, told
from nospoon.errors import ProviderError
from nospoon.protocols import checksums
from nospoon.protocols.checksums import Checksum
from nospoon.runtime.reach import ANYWHERE, Reach

LARGEST_LIST = 1 << 20
"""Bytes of a list of checksums; no project's is nearly as long."""


def promised(source: str) -> str:
    """The SHA-256 that `URL CHECKSUM` promises, "" when it promises none that is known yet."""
    found = checksums.parse(source.partition(" ")[2])
    return found.digits if found is not None and found.algorithm == "sha256" else ""


def expected(url: str, given: str, transfer: Transfer, reach: Reach = ANYWHERE) -> Checksum:
    """What a URL is to have whose checksum is given: itself, or as the URL of a list, fetched here.

    `transfer` and `reach` are those of the file, so that who stops one stops the other. Raises
    `ProviderError` when the list is not available, or says nothing of the file.
    """
    found = checksums.parse(given)
    if found is not None:
        return found
    name = PurePosixPath(unquote(urlsplit(url).path)).name
    listed = checksums.listed(_list(given, transfer, reach), name)
    if listed is None:
        raise ProviderError(
            f"{told(given)} has no SHA-256 or SHA-512 of {name}",
            hint="Name another list, or give the checksum itself.",
        )
    return listed


def _list(url: str, transfer: Transfer, reach: Reach) -> str:
    content = _Short(told(url))
    download(url, Access(), content, transfer, Terms(reach=reach))
    transfer.got -= content.tell()  # it counts the file
    return content.getvalue().decode(errors="replace")


class _Short(io.BytesIO):
    """Takes no more than a list has."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self._place = place

    def write(self, data: bytes) -> int:  # type: ignore[override]  # bytes are all that comes
        if self.tell() + len(data) > LARGEST_LIST:
            raise ProviderError(f"{self._place} is too long for a list of checksums")
        return super().write(data)


def refuse_other(url: str, wanted: Checksum, path: Path) -> None:
    """Raises `ProviderError` for a file that has another checksum."""
    with path.open("rb") as content:
        got = hashlib.file_digest(content, wanted.algorithm).hexdigest()
    if got != wanted.digits:
        raise ProviderError(
            f"{told(url)} is not what it should be: its {wanted.algorithm} is {got}, "
            f"not {wanted.digits}. It was not kept",
            hint="Look whether the image or the checksum in the file is the wrong one.",
        )
