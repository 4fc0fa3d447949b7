"""Images that users loaded: content by name, for cluster files to refer to.

Content is uploaded first, as that of other files is; here it gets a name, and what it is, is read
from its first bytes. Another user's images are as if they were not there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from nospoon.control.content.files import Files
from nospoon.control.content.images import (
    image_facts,
    is_root,
    refuse_other_disk,
    root_facts,
)
from nospoon.errors import Conflict, NotFound, OutOfSpace, UsageError
from nospoon.model.images import (
    CONTAINERS,
    LOADED,
    MOUNTED_ROOT,
    NAME,
    HypervisorType,
    LoadedImage,
)
from nospoon.model.principal import Principal
from nospoon.plan.resolution.around import ImageFacts
from nospoon.plan.words import listed
from nospoon.runtime.clock import Clock
from nospoon.runtime.turns import Turns
from nospoon.runtime.workers import Workers
from nospoon.store import clusters, images
from nospoon.store.database import Database

MOST_IMAGES = 1000
"""Of one user."""


@dataclass(frozen=True, slots=True)
class Library:
    """`workers`: where an image's first bytes are looked at. `turns`: names of one user come and go
    one at a time, each with what was counted before it.
    """

    database: Database
    files: Files
    workers: Workers
    clock: Clock
    turns: Turns = field(default_factory=Turns)

    async def begin(self) -> None:
        """At start-up: what has a name stays."""
        for uid, sha256 in await self.database.read(images.holders):
            self.files.pin(uid, sha256)

    async def images(self, caller: Principal) -> list[LoadedImage]:
        """Those of a user, by name."""
        return await self.database.read(images.of_owner, caller.uid)

    async def image(self, caller: Principal, name: str) -> LoadedImage:
        """Raises `NotFound`."""
        found = [each for each in await self.images(caller) if each.name == name]
        if not found:
            raise NotFound(
                f"no image {name!r} was loaded",
                hint="`nospoon image list` shows yours; `nospoon image load FILE` loads one.",
            )
        return found[0]

    async def load(
        self, caller: Principal, name: str, sha256: str, kind: HypervisorType | None
    ) -> LoadedImage:
        """Give content that was uploaded a name, which another of the user's images may have had.

        Raises `UsageError` for what is no image, or none for this machine type.
        """
        if not NAME.match(name):
            raise UsageError(
                f"expected a name of at most 63 lower-case letters, digits, dots, hyphens and "
                f"underscores, got {name!r}"
            )
        async with self.turns.of(str(caller.uid)):
            return await self._load(caller, name, sha256, kind)

    async def _load(
        self, caller: Principal, name: str, sha256: str, kind: HypervisorType | None
    ) -> LoadedImage:
        known = {each.name: each for each in await self.images(caller)}
        if name not in known and len(known) >= MOST_IMAGES:
            raise OutOfSpace(
                f"one user may have {MOST_IMAGES} images", hint="Remove some: nospoon image remove."
            )
        if not self.files.wanted(sha256, owner=caller.uid):
            raise NotFound(f"no file with SHA-256 {sha256!r} was uploaded")
        facts = await self._facts(caller, name, sha256, kind)
        found = LoadedImage(name, sha256, facts.format, facts.virtual_size, kind, self.clock())
        await self.database.call(images.put, caller.uid, found)
        self.files.pin(caller.uid, sha256)
        await self._unpin(caller, known.get(name))
        return found

    async def remove(self, caller: Principal, name: str) -> None:
        """Raises `NotFound`, and `Conflict` while a cluster's file names it."""
        async with self.turns.of(str(caller.uid)):
            gone = await self.image(caller, name)
            rows = await self.database.read(clusters.uploads_of, caller.uid)
            users = [cluster for cluster, uploads in rows if LOADED + name in uploads]
            if users:
                raise Conflict(
                    f"clusters use image {name!r}: {listed(users)}", hint="Take them down first."
                )
            await self.database.call(images.remove, caller.uid, name)
            await self._unpin(caller, gone)

    async def _unpin(self, caller: Principal, gone: LoadedImage | None) -> None:
        """What has no other name is a file like others: it goes when no cluster has it."""
        left = {each.sha256 for each in await self.images(caller)}
        if gone is not None and gone.sha256 not in left:
            self.files.unpin(caller.uid, gone.sha256)
            rows = await self.database.read(clusters.uploads_of, caller.uid)
            if not any(gone.sha256 in uploads.values() for _, uploads in rows):
                self.files.release(gone.sha256, caller.uid)

    async def _facts(
        self, caller: Principal, name: str, sha256: str, kind: HypervisorType | None
    ) -> ImageFacts:
        path = self.files.path(sha256)
        if kind in CONTAINERS:
            facts = await self.workers.run(caller.uid, root_facts, path, name, sha256)
            if kind is HypervisorType.DOCKER and facts.format == MOUNTED_ROOT:
                raise UsageError(
                    f"image {name} is an ext4 file system, which no container engine begins with",
                    hint="Load it with --hypervisor-type lxc, for containers of a cloud.",
                )
            return facts
        if kind is None and await self.workers.run(caller.uid, is_root, path):
            return await self.workers.run(caller.uid, root_facts, path, name, sha256)
        await self.workers.run(caller.uid, refuse_other_disk, path, name)
        return await image_facts(path, name, sha256)
