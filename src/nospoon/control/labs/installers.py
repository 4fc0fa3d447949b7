"""Boot images of distributions: made of an installer's kernel and ramdisk when a set first needs
one, and kept among the uploads of the lab's owner for as long as a cluster names it.
"""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from nospoon.model.lab import Distro
from nospoon.model.principal import OwnerId
from nospoon.runtime.turns import Turns

CHUNK = 1 << 20
COPIES = 2
"""Of an image that was just made: in its directory, and among the uploads."""
MakeImage = Callable[[Path, Path, Path], Awaitable[None]]
"""Kernel, initial ramdisk, and where their image is to be."""


class Files(Protocol):
    """Uploads."""

    def path(self, sha256: str) -> Path: ...
    def wanted(self, sha256: str, *, owner: int | None = None) -> bool: ...
    def require_space(self, amount: int, *, copies: int, owner: int | None) -> None: ...
    async def fetch_once(self, source: str, *, owner: int | None = None) -> str: ...
    async def receive(
        self,
        sha256: str,
        chunks: AsyncIterator[bytes],
        *,
        owner: int | None = None,
        announced: int = 0,
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class Installers:
    """`work`: a directory for images that are being made."""

    files: Files
    make: MakeImage
    work: Path
    _made: dict[tuple[str, str], str] = field(default_factory=dict)
    _turns: Turns = field(default_factory=Turns)

    async def image_of(self, distro: Distro, owner: OwnerId) -> str:
        """The digest of an upload of that user: the boot image of a distribution. Raises
        `ProviderError` for what cannot be fetched or made.
        """
        kernel = await self.files.fetch_once(distro.kernel, owner=owner)
        initrd = await self.files.fetch_once(distro.initrd, owner=owner)
        async with self._turns.of(kernel, initrd):
            known = self._made.get((kernel, initrd), "")
            if known and self.files.wanted(known, owner=owner):
                return known
            made = await self._image(self.files.path(kernel), self.files.path(initrd), owner)
            self._made[kernel, initrd] = made
            return made

    async def _image(self, kernel: Path, initrd: Path, owner: OwnerId) -> str:
        content = await asyncio.to_thread(_size, kernel, initrd)
        self.files.require_space(content, copies=COPIES, owner=owner)
        self.work.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.work, prefix=".building-") as place:
            image = Path(place) / "image"
            await self.make(kernel, initrd, image)
            digest = await asyncio.to_thread(_digest, image)
            size = image.stat().st_size
            await self.files.receive(digest, _read(image), owner=owner, announced=size)
            return digest


def _size(*files: Path) -> int:
    return sum(each.stat().st_size for each in files)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


async def _read(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while piece := await asyncio.to_thread(file.read, CHUNK):
            yield piece
