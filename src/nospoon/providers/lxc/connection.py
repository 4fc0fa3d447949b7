"""The lxc connection: containers of one host, local or remote."""

from __future__ import annotations

from nospoon.model.cluster import Host
from nospoon.model.connections import Lxc
from nospoon.model.resources.keys import Kind
from nospoon.providers.base import OpenImage, OpenSeed, no_seeds
from nospoon.providers.containers.connection import ContainerConnection
from nospoon.providers.containers.machines import MachineDriver
from nospoon.providers.containers.storage import ImageFiles, PoolDriver
from nospoon.providers.lxc.host import LxcHost
from nospoon.providers.lxc.runtime import LxcRuntime
from nospoon.providers.lxc.storage import VolumeDriver
from nospoon.runtime.runner import Runner


class LxcConnection(ContainerConnection):
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
        assert isinstance(host.connection, Lxc), "a host of this kind"
        own = host.connection
        self._host = LxcHost(host.name, runner, root, own.idmap, new_privileges=own.new_privileges)
        runtime = LxcRuntime(self._host, records)
        super().__init__(
            host,
            self._host,
            self._host.facts,
            MachineDriver(runtime, deployment, records=records, open_seed=open_seed),
            {
                Kind.POOL: PoolDriver(self._host, deployment),
                Kind.IMAGE: ImageFiles(self._host, deployment, open_image),
                Kind.VOLUME: VolumeDriver(self._host, deployment),
            },
        )

    async def check(self) -> None:
        """Raises `HostUnreachable`, `MissingTool`, or `ProviderError` where no ids are reserved."""
        await self._host.facts(again=True)
        await self._host.ids()
