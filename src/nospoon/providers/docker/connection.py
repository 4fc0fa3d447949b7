"""The docker connection: containers of an engine of one host, local or remote."""

from __future__ import annotations

from dataclasses import replace

from nospoon.model.capabilities import Capabilities
from nospoon.model.cluster import Host
from nospoon.model.connections import Docker
from nospoon.model.resources.keys import Kind
from nospoon.providers.base import OpenImage, OpenSeed, no_seeds
from nospoon.providers.containers.connection import ContainerConnection
from nospoon.providers.containers.machines import MachineDriver
from nospoon.providers.docker.host import DockerHost
from nospoon.providers.docker.runtime import DockerRuntime
from nospoon.providers.docker.storage import EnginePoolDriver, ImageDriver, VolumeDriver
from nospoon.runtime.runner import Runner


class DockerConnection(ContainerConnection):
    """A `Connection`. `root`: directory on the host in which pools are made; `records`: that of
    logs of consoles; `open_seed`: what cloud-init is given.
    """

    def __init__(
        self,
        host: Host,
        deployment: str,
        runner: Runner,
        open_image: OpenImage,
        *,
        root: str,
        records: str,
        open_seed: OpenSeed = no_seeds,
    ) -> None:
        assert isinstance(host.connection, Docker), "a host of this kind"
        self._host = DockerHost(host.name, runner, root, host.connection.socket)
        new_privileges = host.connection.new_privileges
        super().__init__(
            host,
            self._host,
            self._host.facts,
            MachineDriver(
                DockerRuntime(self._host), deployment, records=records, open_seed=open_seed
            ),
            {
                Kind.POOL: EnginePoolDriver(self._host, deployment),
                Kind.IMAGE: ImageDriver(self._host, deployment, open_image),
                Kind.VOLUME: VolumeDriver(self._host, deployment, new_privileges=new_privileges),
            },
        )

    async def capabilities(self) -> Capabilities:
        """With whether the engine can limit roots."""
        unlimited = (await self._host.facts()).unlimited_roots
        return replace(await super().capabilities(), unlimited_roots=unlimited)

    async def free_space(self, pools: str) -> int:
        """Roots with a limit are files in pools; the engine keeps others in its own directory."""
        facts = await self._host.facts()
        return await super().free_space((facts.unlimited_roots and facts.directory) or pools)

    async def check(self) -> None:
        """Raises `HostUnreachable`, `MissingTool`, or `ProviderError` where the engine cannot."""
        await self._host.check()
