"""What the daemon keeps for each host over ssh: a runner, a copy of its records, network boot."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from uuid import UUID, uuid4

from nospoon.control.fleet.hosts import Hosts
from nospoon.model.cluster import Arch, Host
from nospoon.model.machine import PowerState
from nospoon.probe.build import Probe
from nospoon.runtime.runner import Runner, runner_for
from nospoon.runtime.tasks import Tasks
from nospoon.services.consoles.mirror import Mirror
from nospoon.services.consoles.records import Records
from nospoon.services.netboot.driver import FindGrub
from nospoon.services.netboot.ports import BootAuthority
from nospoon.services.netboot.remote import Place, RemoteNetbootDriver

STATE = PurePosixPath("/var/lib/nospoon")
"""Where our files are on a host over ssh; below it, each deployment has directories of its own."""

BuildProbe = Callable[[Arch], Awaitable[Probe]]


@dataclass(frozen=True, slots=True)
class Remote:
    """One host over ssh."""

    runner: Runner
    mirror: Mirror
    netboot: RemoteNetbootDriver


class Remotes:
    """The hosts over ssh, by their `ssh` setting."""

    def __init__(
        self,
        *,
        state: Path,
        sockets: Path,
        deployment: str,
        records: Records,
        tasks: Tasks,
    ) -> None:
        self._state, self._sockets, self._deployment = state, sockets, deployment
        self._records, self._tasks = records, tasks
        self._known: dict[str, Remote] = {}

    @property
    def records(self) -> PurePosixPath:
        """The directory of console records on such a host."""
        return STATE / "consoles" / self._deployment

    def use(
        self, host: Host, hosts: Hosts, authority: BootAuthority, find_grub: FindGrub
    ) -> Remote:
        """This host's; the first use begins to copy its records and to serve network boot."""
        if host.ssh not in self._known:
            made = self._made(host.ssh, hosts, authority, find_grub)
            self._known[host.ssh] = made
            self._tasks.start(made.mirror.keep(), name=f"copy records of {host.ssh}")
            self._tasks.start(made.netboot.start(), name=f"network boot of {host.ssh}")
        return self._known[host.ssh]

    def _made(
        self, ssh: str, hosts: Hosts, authority: BootAuthority, find_grub: FindGrub
    ) -> Remote:
        runner = runner_for(ssh, self._sockets)
        mirror = Mirror(
            runner,
            self.records,
            self._records,
            host=ssh,
            home=hosts.ssh_of,
            lives=lambda: bool(hosts.logged_at(ssh)),
            busy=lambda: any(_is_on(hosts, machine) for machine in hosts.logged_at(ssh)),
        )
        name = hashlib.sha256(ssh.encode()).hexdigest()[:16]
        netboot = RemoteNetbootDriver(
            place=Place(
                self._state / "netboot-of-hosts" / name, STATE / "netboot" / self._deployment
            ),
            deployment=self._deployment,
            runner=runner,
            authority=authority,
            find_grub=find_grub,
            is_there=lambda machine: hosts.is_on(ssh, machine),
        )
        return Remote(runner, mirror, netboot)

    async def publish(self, *machines: UUID) -> None:
        """Tell loaders there what machines boot now."""
        for remote in list(self._known.values()):
            await remote.netboot.publish(*machines)

    async def fetch_record(self, machine: UUID, *, hosts: Hosts) -> None:
        """Copy what is new of a machine's record; a host that is away is logged."""
        for ssh, remote in list(self._known.items()):
            if hosts.is_logged_at(ssh, machine):
                await remote.mirror.look()

    async def fetch_records(self, ways: Collection[str]) -> None:
        """The same of all machines on hosts with these `ssh` settings."""
        for ssh, remote in list(self._known.items()):
            if ssh in ways:
                await remote.mirror.look()


def _is_on(hosts: Hosts, machine: UUID) -> bool:
    last = hosts.last(machine)
    return last is not None and last.power is PowerState.ON


@asynccontextmanager
async def copied(runner: Runner, *files: Path) -> AsyncIterator[list[str]]:
    """Copies of files on a host for a while; their paths there."""
    there = STATE / f"trial-{uuid4().hex[:8]}"
    await runner.run(["mkdir", "-p", "-m", "755", str(there)])
    try:
        for file in files:
            target = str(there / file.name)
            script = 'umask 022; cat >"$1"; [ "$(stat -c %s "$1")" = "$2" ]'
            content = await asyncio.to_thread(file.read_bytes)
            words = (target, str(len(content)))
            await runner.run(["sh", "-ec", script, "sh", *words], stdin=content)
        yield [str(there / file.name) for file in files]
    finally:
        await runner.run(["rm", "-rf", "--", str(there)])
