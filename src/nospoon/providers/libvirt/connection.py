"""The libvirt connection: machines, disks and networks of one host, local or remote."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from nospoon.model.capabilities import Capabilities, identity_of
from nospoon.model.cloud_images import cloud_name
from nospoon.model.cluster import Arch, Host
from nospoon.model.destinations import LibvirtUri
from nospoon.model.host_facts import Adoptable, HostFacts
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.storage import ExistingVolume
from nospoon.providers import linux
from nospoon.providers.base import Driver, OpenImage, OpenSeed, no_seeds
from nospoon.providers.libvirt.adopted import adoptable
from nospoon.providers.libvirt.capabilities import RULES, HypervisorFacts, ask_facts, has_filter
from nospoon.providers.libvirt.existing import existing_volumes
from nospoon.providers.libvirt.flash import Flash
from nospoon.providers.libvirt.hypervisor import Hypervisor
from nospoon.providers.libvirt.image_cache import ImageCache
from nospoon.providers.libvirt.images import ImageDriver
from nospoon.providers.libvirt.kvm import KvmTrial, TrialOf, Verdict
from nospoon.providers.libvirt.machines import BootIso, MachineDriver, Setup
from nospoon.providers.libvirt.networks import NetworkDriver
from nospoon.providers.libvirt.pools import PoolDriver
from nospoon.providers.libvirt.tags import deployments
from nospoon.providers.libvirt.volumes import VolumeDriver
from nospoon.runtime.runner import Runner
from nospoon.runtime.turns import Turns


class LibvirtConnection:
    """A `Connection`. `records`: directory on the host for console records; `verdicts`: the
    daemon's directory for what was learned about KVM; `trial`: what to try it with, None never;
    `open_seed`: what cloud-init is given; `boot_iso`: makes the ISO that machines that ask
    boot; `turns`: those of all connections of this deployment. `opened`: the URI to open instead
    of the host's, for tests whose libvirtd has a socket of its own; the host's is opened only if
    it is a `LibvirtUri`.
    """

    def __init__(
        self,
        host: Host,
        deployment: str,
        runner: Runner,
        open_image: OpenImage,
        *,
        open_seed: OpenSeed = no_seeds,
        records: str,
        verdicts: Path,
        trial: TrialOf | None = None,
        boot_iso: BootIso | None = None,
        turns: Turns | None = None,
        opened: str = "",
    ) -> None:
        self.host, self._runner, self._deployment = host, runner, deployment
        self._hypervisor = Hypervisor(
            opened or host.where, host.name, refused=_refused(host, opened)
        )
        self._kvm = KvmTrial(self._hypervisor, runner, trial, verdicts)
        commands = runner if host.ssh or not urlsplit(self._hypervisor.uri).netloc else None
        self._machines = MachineDriver(
            self._hypervisor,
            runner,
            setup=Setup(
                deployment, records, boot_iso, open_seed, has_commands=commands is not None
            ),
            accelerator=self._accelerator,
        )
        common = (self._hypervisor, deployment)
        cache = ImageCache(self._hypervisor, deployment, turns or Turns())
        self._drivers: dict[Kind, Driver] = {
            Kind.POOL: PoolDriver(
                *common,
                turn=cache.turn,
                removed=cache.sweep,
                clear=Flash(host.name, commands).clear,
            ),
            Kind.IMAGE: ImageDriver(cache, open_image=open_image),
            Kind.NETWORK: NetworkDriver(*common, runner=runner),
            Kind.VOLUME: VolumeDriver(*common, shared=cache.pool),
            Kind.MACHINE: self._machines,
        }
        if not host.declares.makes_networks:
            del self._drivers[Kind.NETWORK]
        self._facts: HypervisorFacts | None = None
        self._asking = asyncio.Lock()

    @property
    def drivers(self) -> Mapping[Kind, Driver]:
        return self._drivers

    @property
    def machine_driver(self) -> MachineDriver:
        return self._machines

    async def _accelerator(self, arch: Arch) -> str:
        """Another architecture than the host's is always emulated; KVM is tried for x86 only."""
        if arch is not Arch.X86_64:
            return "tcg"
        return (await self._kvm.verdict()).accelerator

    async def capabilities(self) -> Capabilities:
        facts = await self._ask_facts()
        verdict = await self._kvm.known() or Verdict("", "KVM was not tried there yet")
        return Capabilities(
            kinds=frozenset(self._drivers),
            firmwares=facts.firmwares,
            archs=facts.archs,
            tpm=facts.tpm,
            accelerator=verdict.accelerator,
            accelerator_note=verdict.note,
            cpus=facts.cpus,
            memory=facts.memory,
            identity=identity_of(facts.name),
            anti_spoofing=await self._hypervisor.ask(has_filter, "look for filters"),
            rules=RULES,
        )

    async def _ask_facts(self) -> HypervisorFacts:
        async with self._asking:
            if self._facts is None:
                self._facts = await self._hypervisor.work(ask_facts, "ask what it can do")
            return self._facts

    async def deployments(self) -> Mapping[str, int]:
        return await self._hypervisor.work(deployments, "look whose things are there")

    async def survey(self, pools: str, named: Collection[str]) -> HostFacts:
        volumes = [each for each in named if not cloud_name(each)]
        can, existing = await self.capabilities(), await self._existing(volumes)
        disk, closed, around = await asyncio.gather(
            linux.free_space(self._runner, pools),
            self._closed(pools),
            linux.surroundings(
                self._runner,
                networks=self.host.declares.makes_networks,
                boot_ports=bool(self.host.ssh),
            ),
        )
        return replace(
            HostFacts.of_one_that(can),
            real=True,
            disk=disk,
            closed=closed,
            routes=around.routes,
            links=frozenset(around.links) if around.links is not None else None,
            masters=around.masters,
            bridges=around.bridges,
            ovs_bridges=around.ovs_bridges,
            volumes=existing,
            boot_ports=around.boot_ports,
        )

    async def _closed(self, pools: str) -> str:
        """What keeps QEMU from the disks that are made there, "" for nothing."""
        user = (await self._ask_facts()).user
        return await linux.closed_to(self._runner, user, pools) if user is not None else ""

    async def _existing(self, names: Collection[str]) -> Mapping[str, ExistingVolume]:
        if not names:
            return {}
        return await self._hypervisor.work(
            lambda connect: existing_volumes(connect, names), "look at volumes of others"
        )

    async def adoptable(self) -> tuple[Adoptable, ...]:
        return await self._hypervisor.work(
            lambda connect: adoptable(connect, self._deployment), "look at machines of others"
        )

    def configure(self, host: Host) -> None:
        self.host = host

    async def check(self) -> None:
        await self._hypervisor.ask(lambda connect: connect.getLibVersion(), "reach libvirt")

    async def close(self) -> None:
        await self._machines.close()
        await self._hypervisor.close()


def _refused(host: Host, opened: str) -> str:
    """Why the host's URI is not opened: a store of an earlier version has URIs with queries, by
    which libvirt would run programs.
    """
    try:
        LibvirtUri.parse(host.where if not opened else "qemu:///system")
    except ValueError as error:
        return f"host {host.name}: {error}"
    return ""
