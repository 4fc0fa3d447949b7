"""The files that a cluster file names: where the copies are, and what the images among them hold.

The daemon opens no path that a client names: files were uploaded before, URLs are fetched here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from nospoon.clusterfile.document import MAX_PROBLEMS, Document
from nospoon.control.content.certificates import certificate_files, refuse_unusable
from nospoon.control.content.fetch import told, url_of
from nospoon.control.content.files import Files, is_url
from nospoon.control.content.images import image_facts, refuse_archive, root_facts
from nospoon.control.request import Request
from nospoon.errors import ProviderError, UsageError
from nospoon.model.cloud_images import IN_CLOUD
from nospoon.model.cluster import Cluster
from nospoon.model.images import KEPT, LoadedImage, loaded_name
from nospoon.model.node_kind import NodeKind
from nospoon.model.principal import OwnerId
from nospoon.plan.image_types import wrong_kinds
from nospoon.plan.resolution.around import ImageFacts
from nospoon.runtime.paced import paced
from nospoon.runtime.workers import Workers
from nospoon.store.database import Database
from nospoon.store.images import of_owner


class NamedFiles:
    """Finds the copies of the files that a cluster file names."""

    def __init__(self, files: Files, workers: Workers, database: Database) -> None:
        self._files, self._workers, self._database = files, workers, database

    async def of(
        self, cluster: Cluster, request: Request, fetched: Mapping[str, str]
    ) -> tuple[dict[str, str], dict[str, ImageFacts]]:
        """Name -> digest of its content, and what the images among them are.

        `fetched`: what URLs had when they were last fetched. Raises `UsageError`, `ProviderError`.
        """
        uploads = dict(request.uploads)
        images = await self._workers.run(request.caller.uid, _images_of, cluster)
        loaded = await self._loaded(images, uploads, request)
        named = images.disks | images.roots | _boot_files(cluster) | certificate_files(cluster)
        async for name in paced(named - loaded.keys()):
            known = (fetched if is_url(name) else uploads).get(name, "")
            if not self._files.has(known):
                known = await self._missing(name, request)
            uploads[name] = known
        if request.fetches:  # who only looks is told nothing of what expired meanwhile
            await refuse_unusable(cluster, uploads, self._files, request, self._workers)
        facts = await self._facts_of_images(cluster, images, uploads, request)
        for name, image in loaded.items():
            if image is not None:
                facts[name] = replace(facts[name], hypervisor_type=image.hypervisor_type)
        refused = await self._workers.run(request.caller.uid, wrong_kinds, cluster, facts)
        await self._refuse(refused[:MAX_PROBLEMS], request)
        return uploads, facts

    async def _loaded(
        self, images: _Images, uploads: dict[str, str], request: Request
    ) -> dict[str, LoadedImage | None]:
        """Those among them that are names of loaded images, whose content goes into `uploads`: what
        has the name now, or, for who only looks, what had it. None: the name is another's by now.
        """
        named = {name: loaded_name(name) for name in images.disks | images.roots}
        named = {name: short for name, short in named.items() if short}
        if not named:
            return {}
        known = {
            each.name: each for each in await self._database.read(of_owner, request.caller.uid)
        }
        found: dict[str, LoadedImage | None] = {}
        refused = []
        for name, short in named.items():
            image, before = known.get(short), uploads.get(name, "")
            looks = not request.fetches and self._files.has(before)
            if image is not None and not looks:
                uploads[name] = image.sha256
            elif image is None and not looks:
                refused.append((name, f"no image {short!r} was loaded. See `nospoon image list`"))
            found[name] = image if image and image.sha256 == uploads.get(name) else None
        await self._refuse(refused[:MAX_PROBLEMS], request)
        return found

    async def _refuse(self, refused: Sequence[tuple[str, str]], request: Request) -> None:
        """Raises `UsageError` for names and why they are refused, if there are any."""
        if refused:
            names = [name for name, _ in refused]
            places = await self._workers.run(request.caller.uid, places_of, request, names)
            raise UsageError("\n".join(f"{places[name]}: {why}" for name, why in refused))

    async def _facts_of_images(
        self, cluster: Cluster, images: _Images, uploads: Mapping[str, str], request: Request
    ) -> dict[str, ImageFacts]:
        """Each content is looked at once, however many names a file has for it."""
        facts: dict[str, ImageFacts] = {}
        refused: list[tuple[str, str]] = []
        refused += [(name, _BOTH) for name in sorted(images.roots & images.disks)]
        alike: dict[tuple[str, bool, bool], list[str]] = {}
        for name in sorted(images.roots | images.disks):
            of_what = (uploads[name], name in images.roots, name in images.booted)
            alike.setdefault(of_what, []).append(name)
        for (digest, is_root, is_booted), names in alike.items():
            try:
                found = await self._looked_at(
                    digest,
                    told(names[0]),
                    request.caller.uid,
                    is_root=is_root,
                    is_booted=is_booted,
                )
                facts |= dict.fromkeys(names, found)
            except UsageError as error:
                refused.append((names[0], str(error)))
                if len(refused) >= MAX_PROBLEMS:
                    break
        refused += await self._workers.run(request.caller.uid, _too_small, cluster, facts)
        await self._refuse(refused, request)
        return facts

    async def _looked_at(
        self, digest: str, name: str, owner: OwnerId, *, is_root: bool, is_booted: bool
    ) -> ImageFacts:
        path = self._files.path(digest)
        if is_root:
            return await self._workers.run(owner, root_facts, path, name, digest)
        if is_booted:
            await self._workers.run(owner, refuse_archive, path, name)
        return await image_facts(path, name, digest)

    async def to_fetch(
        self, cluster: Cluster, fetched: Mapping[str, str], owner: OwnerId
    ) -> list[str]:
        """The URLs that a file names and of whose content there is no copy."""
        images = await self._workers.run(owner, _images_of, cluster)
        named = images.disks | images.roots | _boot_files(cluster)
        return [
            url
            async for url in paced(sorted(named))
            if is_url(url)
            and not self._files.has(fetched.get(url, ""))
            and not self._files.fetched(url)
        ]

    async def _missing(self, name: str, request: Request) -> str:
        """The digest of what there is no copy of yet: a URL is fetched."""
        if not request.fetches:
            raise ProviderError(
                f"the daemon's copy of {told(name)} is gone", hint="`nospoon up` brings it again."
            )
        if is_url(name):
            return await self._files.fetch_once(name, owner=request.caller.uid)
        raise UsageError(
            f"file {name} of the cluster file was not uploaded",
            hint="Use the nospoon command, or PUT it to /v1/files first.",
        )


def places_of(request: Request, names: Sequence[str]) -> dict[str, str]:
    """Where the file has each name. Run it in a thread: the file may be a long one."""
    document = Document(request.text, request.file)
    return {name: document.place_of(url_of(name)) for name in names}


_BOTH = "expected an image of a disk, or one of a container's root; nodes of both kinds name it"


@dataclass(frozen=True, slots=True)
class _Images:
    """Names of images: of disks of machines, and of those that a lab makes later, among them
    those that VMs boot; and of roots of containers.
    """

    disks: AbstractSet[str]
    roots: AbstractSet[str]
    booted: AbstractSet[str]


def _images_of(cluster: Cluster) -> _Images:
    """Nodes may have 100,000 disks: run it in a thread."""
    of_labs = {source for lab in cluster.labs for source in lab.images}
    disks = of_labs | {
        disk.source
        for node in cluster.nodes
        if node.kind is not NodeKind.CONTAINER
        for disk in node.disks
        if disk.image and not disk.image.startswith((KEPT, IN_CLOUD))
    }
    containers = (node for node in cluster.nodes if node.kind is NodeKind.CONTAINER)
    roots = {
        disk.source
        for node in containers
        for disk in node.disks
        if disk.image and not disk.image.startswith(IN_CLOUD)
    }
    booted = {
        node.disks[0].source for node in cluster.nodes if node.kind is NodeKind.VM and node.disks
    }
    return _Images(disks, roots, booted & disks)


def _boot_files(cluster: Cluster) -> set[str]:
    named = (name for each in cluster.profiles for name in (each.kernel, *each.initrd))
    return set(filter(None, named))


def _too_small(cluster: Cluster, facts: Mapping[str, ImageFacts]) -> list[tuple[str, str]]:
    """Each image, and why a disk cannot hold it."""
    return [
        (
            disk.source,
            (
                f"node {node.name}: disk {index} of {disk.size} bytes is smaller than its image"
                f" {PurePosixPath(disk.image).name} of {facts[disk.source].virtual_size} bytes"
            ),
        )
        for node in cluster.nodes
        for index, disk in enumerate(node.disks)
        if disk.source in facts and disk.size and disk.size < facts[disk.source].virtual_size
    ]
