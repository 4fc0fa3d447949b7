"""Images and roots, which are the engine's: the record of each is in its pool."""

from __future__ import annotations

from nospoon.errors import ProviderError
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.storage import Volume
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.order.kinds import whose
from nospoon.providers.base import OpenImage
from nospoon.providers.containers import volumes
from nospoon.providers.containers.records import record
from nospoon.providers.containers.storage import ImageFiles, PoolDriver, VolumeFiles
from nospoon.providers.docker.host import DockerHost, text_of
from nospoon.providers.docker.program.roots import image_name, root_name
from nospoon.runtime.process import said_by

THERE = 17
"""Status of the program where a name is another's."""
GONE = "the engine has lost it"
READ = 'path=$1; shift; exec "$@" <"$path"'
"""Shell: a command that reads a file there."""


class EnginePoolDriver(PoolDriver):
    """Pools, with what the engine has of them."""

    def __init__(self, host: DockerHost, deployment: str) -> None:
        super().__init__(host, deployment)
        self._ask = host.ask

    async def clear(self, path: str) -> None:
        """What it made for a daemon that was killed before it wrote the record."""
        await self._ask("clear", self.host.root, self.host.relative(path))


class ImageDriver(ImageFiles):
    """Packed roots that the engine has read."""

    gone = GONE

    def __init__(self, host: DockerHost, deployment: str, open_image: OpenImage) -> None:
        super().__init__(host, deployment, open_image)
        self._ask, self._words, self._facts = host.ask, host.words, host.facts

    async def take_in(self, name: str, path: str) -> None:
        """The copy goes when the engine has it."""
        place = (await self._facts()).directory or "/"
        words = (image_name(path), self.host.root, self.host.relative(path), place)
        command = self._words("import", *words, text_of("reading"))
        try:
            await self.host.sh(READ, path, *command)
        except ProviderError as error:
            raise ProviderError(
                f"{error.message.rstrip('.')} (image {name})",
                hint="The image must be the root file system of a container, packed by tar.",
            ) from error
        finally:
            await self.host.runner.run(["rm", "-f", "--", path])

    async def give_up(self, path: str) -> None:
        await self._ask("remove-image", image_name(path), self.host.root)


class VolumeDriver(VolumeFiles):
    """Roots: what a container of the engine has written, in a file system of the volume's size
    where the engine's driver has a directory for that (`roots.bound_root`). `new_privileges`: of
    programs in roots that are made from now on.
    """

    gone = GONE

    def __init__(self, host: DockerHost, deployment: str, *, new_privileges: bool = False) -> None:
        super().__init__(host, deployment)
        self._ask, self._new_privileges = host.ask, new_privileges

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        volume, name = resource.shape, resource.key.name
        assert isinstance(volume, Volume)
        seen = await self.host.look()
        pool = self.pool_of(seen, volume.pool, tag)
        path = f"{pool}/{name}.volume"
        async with self.turns[path]:
            found = self.record_of(seen, path)
            before = found.volume if found is not None else None
            if before is not None:
                self.refuse_shrinking(resource, before.size)
            if before is None or self.host.relative(path) not in seen.sizes:
                await self._make(resource, f"{pool}/{volume.image}.image", path)
            elif volume.size != before.size:
                place = (self.host.root, self.host.relative(path))
                await self._ask("grow-root", *place, str(volume.size))
            await self.host.write(f"{path}.json", record(name, tag, volume))

    async def _make(self, resource: Resource, image: str, path: str) -> None:
        assert isinstance(resource.shape, Volume)
        if not resource.shape.image:
            await volumes.make(self.host, path, resource.shape.size)
            return
        words = (image_name(image), whose(resource.key), self.host.root, self.host.relative(path))
        how = (str(resource.shape.size), *(("new-privileges",) if self._new_privileges else ()))
        done = await self._ask("make-root", root_name(path), *words, *how, check=False)
        if done.status == THERE:
            raise self.refuse(f"a container {root_name(path)}", "its engine")
        if done.status != 0:
            raise ProviderError(f"host {self.host.name}: {resource.key}: {said_by(done)}")

    async def give_up(self, observed: Observed, path: str) -> None:
        assert isinstance(observed.shape, Volume)
        if not observed.shape.image:
            return
        words = (root_name(path), self.host.root, self.host.relative(path))
        done = await self._ask("remove-root", *words, check=False)
        if done.status not in (0, THERE):  # another's of that name stays
            raise ProviderError(f"host {self.host.name}: {observed.key}: {said_by(done)}")
