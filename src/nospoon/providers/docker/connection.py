"""The docker connection: containers of an engine of one host, local or remote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace

from nospoon.model.capabilities import Capabilities, ChangeRule
from nospoon.model.cluster import Arch, Firmware, Host
from nospoon.model.connections import Docker
from nospoon.model.host_facts import Adoptable, HostFacts
from nospoon.model.resources import Kind
from nospoon.providers import linux
from nospoon.providers.base import Driver, OpenImage, OpenSeed, no_seeds
from nospoon.providers.containers.machines import MachineDriver
from nospoon.providers.docker.host import DockerHost
from nospoon.providers.docker.runtime import DockerRuntime
from nospoon.providers.docker.storage import EnginePoolDriver, ImageDriver, VolumeDriver
from nospoon.runtime.runner import Runner

RULES: Mapping[Kind, Mapping[str, ChangeRule]] = {
    Kind.VOLUME: {"size": ChangeRule.LIVE},
    Kind.MACHINE: {
        "boot_order": ChangeRule.LIVE,
        "unlinked": ChangeRule.LIVE,
        "cpus": ChangeRule.AT_POWER_OFF,
        "memory": ChangeRule.AT_POWER_OFF,
        "firmware": ChangeRule.AT_POWER_OFF,
        "disks": ChangeRule.AT_POWER_OFF,
        "nics": ChangeRule.AT_POWER_OFF,
        "ipv6": ChangeRule.AT_POWER_OFF,
        "seed": ChangeRule.AT_POWER_OFF,
    },
}


class DockerConnection:
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
        self.host, self._runner = host, runner
        self._host = DockerHost(host.name, runner, root, host.connection.socket)
        self._machines = MachineDriver(
            DockerRuntime(self._host), deployment, records=records, open_seed=open_seed
        )
        self._drivers: dict[Kind, Driver] = {
            Kind.POOL: EnginePoolDriver(self._host, deployment),
            Kind.IMAGE: ImageDriver(self._host, deployment, open_image),
            Kind.VOLUME: VolumeDriver(self._host, deployment),
            Kind.MACHINE: self._machines,
        }

    @property
    def drivers(self) -> Mapping[Kind, Driver]:
        return self._drivers

    @property
    def machine_driver(self) -> MachineDriver:
        return self._machines

    async def capabilities(self) -> Capabilities:
        """Firmware and architecture are not a container's: it takes any."""
        facts = await self._host.facts()
        return Capabilities(
            kinds=frozenset(self._drivers),
            firmwares=frozenset(Firmware),
            archs=frozenset(Arch),
            tpm=False,
            managed_networks=False,
            accelerator="container",
            anti_spoofing=await self._host.has_filters(),
            cpus=facts.cpus,
            memory=facts.memory,
            identity=facts.name,
            rules=RULES,
        )

    async def deployments(self) -> Mapping[str, int]:
        seen = await self._host.look()
        return Counter(
            each.tag.deployment
            for path, each in seen.records.items()
            if not path.endswith("/live.json")
        )

    async def survey(self, pools: str, volumes: Collection[str]) -> HostFacts:
        del volumes
        can = await self.capabilities()
        facts = await self._host.facts()
        disk = await linux.free_space(self._runner, facts.directory or pools)
        return replace(HostFacts.of_one_that(can), real=True, disk=disk)

    async def adoptable(self) -> tuple[Adoptable, ...] | None:
        """Containers of others stay theirs."""
        return None

    def configure(self, host: Host) -> None:
        self.host = host

    async def check(self) -> None:
        """Raises `HostUnreachable`, `MissingTool`, or `ProviderError` where the engine cannot."""
        await self._host.check()

    async def close(self) -> None:
        await self._machines.close()
