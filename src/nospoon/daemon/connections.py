"""The registry: a connection for each kind of host."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import BoundedSemaphore
from uuid import UUID

from nospoon.control.content.files import Files
from nospoon.control.content.seeds import Seeds
from nospoon.daemon.builds import Builds
from nospoon.daemon.remote import Remotes, copied
from nospoon.daemon.simulation import Simulations
from nospoon.errors import MissingTool
from nospoon.model.boot import BootMethod
from nospoon.model.cluster import Arch, Host
from nospoon.model.connections import Docker, Libvirt, Lxc, OpenStack, Simulated
from nospoon.probe.record import HELLO
from nospoon.providers.base import Connection
from nospoon.providers.docker import DockerConnection
from nospoon.providers.lxc import LxcConnection
from nospoon.providers.openstack.connection import OpenStackConnection
from nospoon.providers.openstack.drives import KeptMedia
from nospoon.providers.recorder import RecordSpace
from nospoon.providers.tunnels import Tunnels
from nospoon.runtime.reach import Reach
from nospoon.runtime.runner import Runner, runner_for
from nospoon.runtime.turns import Turns


@dataclass(frozen=True, slots=True)
class Connections:
    """`sockets`: where ssh keeps its masters; `verdicts`: what was found about KVM; `records`: the
    directory of consoles here; `begin`: serves guests of a host over ssh. `login`: what a name of
    a login at a cloud stands for; `reach`: where clouds may be; `serve`: begins to answer boot
    images at an address of this machine; `media`: what is in CD drives of servers; `is_at`: whether
    a machine is on a host; `record_space`: what writers of consoles here share; `pools`: directory
    on a host in which pools are made. `tunnels`: to relays of clouds; `has_nodes`: whether a
    cluster has some on a host; `large`: places for large answers to a login.
    """

    deployment: str
    sockets: Path
    verdicts: Path
    records: Path
    files: Files
    seeds: Seeds
    builds: Builds
    simulations: Simulations
    remotes: Remotes
    begin: Callable[[Host], object]
    login: Callable[[str], Mapping[str, object]]
    reach: Reach
    serve: Callable[[str], object]
    media: KeptMedia
    is_at: Callable[[Host, UUID], bool]
    record_space: RecordSpace
    pools: Callable[[Host], str]
    tunnels: Tunnels
    has_nodes: Callable[[Host, UUID], bool]
    large: Callable[[str], BoundedSemaphore]
    turns: Turns = field(default_factory=Turns)

    def connect(self, host: Host) -> Connection:
        """A new one. No one is asked anything yet."""
        match host.connection:
            case Simulated() as simulated:
                return self.simulations.connect(host, simulated, self.records)
            case Libvirt():
                return self._libvirt(host)
            case Lxc():
                return self._lxc(host)
            case Docker():
                return self._docker(host)
            case OpenStack() as cloud:
                return self._openstack(host, cloud)

    def _lxc(self, host: Host) -> Connection:
        if host.ssh:
            self.begin(host)
        return LxcConnection(
            host,
            self.deployment,
            runner_for(host.ssh, self.sockets),
            self._open_image,
            open_seed=self.seeds.open,
            root=self.pools(host),
            records=str(self.remotes.records if host.ssh else self.records),
        )

    def _docker(self, host: Host) -> Connection:
        if host.ssh:
            self.begin(host)
        return DockerConnection(
            host,
            self.deployment,
            runner_for(host.ssh, self.sockets),
            self._open_image,
            open_seed=self.seeds.open,
            root=self.pools(host),
            records=str(self.remotes.records if host.ssh else self.records),
        )

    def _openstack(self, host: Host, cloud: OpenStack) -> Connection:
        return OpenStackConnection(
            host,
            self.deployment,
            partial(self.login, cloud.login),
            reach=self.reach,
            build_image=self.builds.boot_image,
            open_image=self._open_image,
            open_seed=self.seeds.open,
            records=self.records,
            media=self.media,
            at_home=partial(self.is_at, host),
            record_space=self.record_space,
            serve=partial(self.serve, cloud.boot_address) if cloud.boot_address else lambda: None,
            tunnels=self.tunnels,
            is_home=partial(self.has_nodes, host),
            large=self.large(cloud.login),
        )

    @staticmethod
    def prepare() -> None:
        """In a thread: import what a first host of libvirt needs, which takes a tenth of a second.
        Nothing where libvirt is not installed.
        """
        with contextlib.suppress(ModuleNotFoundError):
            for name in ("connection", "kvm"):
                importlib.import_module(f"nospoon.providers.libvirt.{name}")

    def _libvirt(self, host: Host) -> Connection:
        try:
            from nospoon.providers.libvirt.connection import (  # noqa: PLC0415  (an extra)
                LibvirtConnection,
            )
            from nospoon.providers.libvirt.kvm import Trial  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise MissingTool(
                f"host {host.name!r} needs libvirt's Python module, which is not installed for "
                "the daemon",
                hint="Install it with `pip install 'nospoon[libvirt]'` and restart the daemon "
                f"(`nospoon daemon stop`), or write `hosts: {{{host.name}: simulated}}`.",
            ) from error

        runner = runner_for(host.ssh, self.sockets)
        if host.ssh:
            self.begin(host)

        @contextlib.asynccontextmanager
        async def trial() -> AsyncIterator[Trial]:
            async with self._probe_on(host, runner) as (kernel, initrd):
                yield Trial(kernel, initrd, HELLO)

        return LibvirtConnection(
            host,
            self.deployment,
            runner,
            self._open_image,
            open_seed=self.seeds.open,
            records=str(self.remotes.records if host.ssh else self.records),
            verdicts=self.verdicts,
            trial=trial,
            boot_iso=self.builds.boot_iso if host.declares.boot is BootMethod.SCRIPT else None,
            turns=self.turns,
        )

    @contextlib.asynccontextmanager
    async def _probe_on(self, host: Host, runner: Runner) -> AsyncIterator[tuple[str, str]]:
        """Paths of kernel and initrd there."""
        probe = await self.builds.probe(Arch.X86_64)
        if not host.ssh:
            yield str(probe.kernel), str(probe.initrd)
            return
        async with copied(runner, probe.kernel, probe.initrd) as (kernel, initrd):
            yield kernel, initrd

    async def _open_image(self, sha256: str) -> str:
        return str(self.files.path(sha256))
