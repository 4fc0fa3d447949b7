"""Machines: libvirt domains, defined, claimed and found; their console and events."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from threading import Lock
from uuid import UUID

import libvirt

from nospoon.errors import Gone, NotOurs, ProviderError
from nospoon.model.boot import BootPlan
from nospoon.model.cluster import Arch, Firmware
from nospoon.model.machine import MachineChange, MachineEvent, Outcome, PowerCommand, PowerState
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.model.seed import Seed
from nospoon.providers.base import OpenSeed, no_seeds
from nospoon.providers.libvirt.added import Added, remove_added
from nospoon.providers.libvirt.adopted import SETTLE_SECONDS, claim, confirm, release
from nospoon.providers.libvirt.adopted_variables import AdoptedVariables
from nospoon.providers.libvirt.bindings import Connect, Domain
from nospoon.providers.libvirt.boots import Boots
from nospoon.providers.libvirt.console import LibvirtConsole, attached
from nospoon.providers.libvirt.definitions import definition, leave_out
from nospoon.providers.libvirt.domain_parse import medium_of, parse_domain
from nospoon.providers.libvirt.domain_xml import Stage, render_domain
from nospoon.providers.libvirt.drift_repair import (
    autostarted,
    deviations_of,
    late_in,
    repair,
    with_autostart,
)
from nospoon.providers.libvirt.elements import parsed, text_of
from nospoon.providers.libvirt.faults import NO_DOMAIN, NO_STORAGE_POOL, OPERATION_INVALID
from nospoon.providers.libvirt.flash import Flash
from nospoon.providers.libvirt.hypervisor import Hypervisor, ignoring
from nospoon.providers.libvirt.images import send_file
from nospoon.providers.libvirt.media import DomainDrives
from nospoon.providers.libvirt.nvram import Nvram, directory_of, kept_place, make_directory
from nospoon.providers.libvirt.owner import Owner, domain_name, owner_in
from nospoon.providers.libvirt.plugs import Plugs
from nospoon.providers.libvirt.pools import our_pool, our_pools, pool_of, refreshed
from nospoon.providers.libvirt.power import RUNNING, DomainPower, power_of
from nospoon.providers.libvirt.presence import Presence
from nospoon.providers.libvirt.roster import Roster
from nospoon.providers.libvirt.seeds import put_seed, remove_seeds
from nospoon.providers.libvirt.snapshots import DomainSnapshots
from nospoon.providers.libvirt.storage_xml import MEDIUM
from nospoon.providers.libvirt.volumes import named_as_earlier
from nospoon.runtime.runner import Runner
from nospoon.runtime.telling import tell

UNDEFINE = (
    libvirt.VIR_DOMAIN_UNDEFINE_NVRAM
    | libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
    | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
    | libvirt.VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA
    | libvirt.VIR_DOMAIN_UNDEFINE_TPM
)

BootIso = Callable[[], Awaitable[Path | None]]
"""The path here of the boot ISO, which is made when it is asked for; None: it cannot be made."""

Accelerator = Callable[[Arch], Awaitable[str]]
"""Answers "kvm" or "tcg" for machines of an architecture."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What machines of a host share. `records`: directory on the host for console records;
    `boot_iso`: makes the ISO that session machines boot, None where there are none; `open_seed`:
    what cloud-init is given; `has_commands`: whether the runner runs them on that very host.
    """

    deployment: str
    records: str
    boot_iso: BootIso | None = None
    open_seed: OpenSeed = no_seeds
    has_commands: bool = True


@dataclass(frozen=True, slots=True)
class Iso:
    """Today's boot ISO: its path here; its name in a pool, by its content; both "" for none."""

    path: str = ""
    file: str = ""


class MachineDriver:
    """Defines and removes domains, claims and releases those of others."""

    kind = Kind.MACHINE

    def __init__(
        self,
        hypervisor: Hypervisor,
        runner: Runner,
        *,
        setup: Setup,
        accelerator: Accelerator,
    ) -> None:
        self._hypervisor, self._runner = hypervisor, runner
        self._setup, self._accelerator = setup, accelerator
        self._sending = Lock()  # machines made at once share the ISO in their pool
        self._roster = Roster(setup.deployment, hypervisor.host)
        self._presence = Presence(
            hypervisor, self._roster, settled=self._settled, finish=self._finish
        )
        flash = Flash(hypervisor.host, runner if setup.has_commands else None)
        adopted = AdoptedVariables(hypervisor, self._roster, flash)
        self._nvram = Nvram(hypervisor, self._roster, flash, adopted)
        self._boots = Boots(
            hypervisor,
            self._roster,
            self._presence,
            self._nvram,
            Added(hypervisor, self._roster),
            {},
        )
        self._plugs = Plugs(hypervisor, runner, setup.deployment)
        self._locks: defaultdict[UUID, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.drives = DomainDrives(hypervisor, self._roster, self._locks)
        self.snapshots = (
            DomainSnapshots(hypervisor, self._roster, runner, self._locks)
            if setup.has_commands
            else None
        )
        self.firmware_keys = self._nvram
        self.boot_order = DomainPower(
            hypervisor, self._roster, self._presence, self._boots, self._locks
        )
        """On sessions, too: adopted machines boot natively there. Scripts ask for their order."""
        self._records_made = False

    @property
    def adoption(self) -> MachineDriver:
        return self

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        iso = await self._iso()
        found = await self._hypervisor.work(
            lambda connect: self._list(connect, cluster, iso.file), "list machines"
        )
        return await self._plugs.seen(found)

    async def _iso(self) -> Iso:
        path = await self._setup.boot_iso() if self._setup.boot_iso is not None else None
        if path is None:
            return Iso()
        digest = hashlib.sha256(await asyncio.to_thread(path.read_bytes)).hexdigest()
        return Iso(str(path), f"boot-{digest[:12]}.iso")

    def _list(self, connect: Connect, cluster: UUID | None, iso: str) -> list[Observed]:
        pools = our_pools(connect, self._setup.deployment, cluster)
        paths = {facts.name: facts.path for _, facts in pools}
        themselves = autostarted(connect)
        return [
            seen if known.owner.adopted else with_autostart(seen, themselves)
            for domain in connect.listAllDomains(0)
            if (known := self._roster.look(domain)) is not None
            and cluster in (None, known.owner.tag.cluster)
            and (seen := self._observed(domain, paths, iso)) is not None
        ]

    def _observed(self, domain: Domain, paths: dict[str, str], iso: str) -> Observed | None:
        try:
            root = definition(domain)
            power, fault = power_of(domain)
            running = power in RUNNING
            now = definition(domain, 0) if running else None
        except libvirt.libvirtError as error:
            if error.get_error_code() == NO_DOMAIN:
                return None
            raise
        owner = owner_in(root) if root is not None else None
        if root is None or owner is None or (owner.adopted and not domain.isPersistent()):
            return None  # what is left of it goes with its power
        path = paths.get(owner.pool, "")
        boot_iso = f"{path}/{iso}" if iso else ""
        try:
            shape, has = (
                parse_domain(each, owner, pool_path=path, boot_iso=boot_iso)
                for each in (root, root if now is None else now)
            )
        except ValueError as error:
            leave_out(text_of(root, "name"), str(error))
            return None
        key = Key(Kind.MACHINE, self._hypervisor.host, owner.name)
        live = None
        if now is not None:
            # QEMU is told the boot order; libvirt knows nothing
            has = replace(has, boot_order=shape.boot_order)
            live = has if has != shape else None
        seen = Observed(key, shape, owner.tag, running, fault, live)
        if owner.adopted:  # what it does besides is its owner's
            return seen
        found = tuple(deviations_of(root, root if now is None else now))
        late = () if now is None else tuple(late_in(root, now))
        return replace(seen, deviations=found, late=late)

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        assert isinstance(resource.shape, Machine)
        machine, name = resource.shape, resource.key.name
        await self._make_records()
        accelerator = await self._accelerator(machine.arch)
        iso = await self._iso() if machine.asks else Iso()
        if machine.asks and not iso.file:
            raise ProviderError(
                f"{resource.key} boots our ISO, but this connection was given none",
                hint="Run `nospoon doctor`: what the boot ISO is made from may be missing.",
            )
        seed = await self._setup.open_seed(machine.seed) if machine.seed else None
        async with self._locks[machine.uuid]:  # a start keeps its intent in what is made again here
            is_new = await self._hypervisor.work(
                lambda connect: self._make(connect, resource, tag, accelerator, iso, seed),
                f"define machine {name}",
            )
            if is_new and machine.firmware is Firmware.BIOS:
                self._nvram.settled.add(machine.uuid)
            else:
                self._nvram.settled.discard(machine.uuid)
                await self._nvram.settle(machine.uuid)

    def _make(
        self,
        connect: Connect,
        resource: Resource,
        tag: OwnerTag,
        accelerator: str,
        iso: Iso,
        seed: Seed | None,
    ) -> bool:
        """Whether there was none."""
        machine = resource.shape
        assert isinstance(machine, Machine)
        before = self._own(partial(connect.lookupByUUID, machine.uuid.bytes), machine, tag)
        known = self._roster.look(before) if before is not None else None
        said = known.owner.pool if known is not None else ""
        owner = Owner(
            tag,
            resource.key.name,
            pool_of(connect, tag, said),
            machine.boot_order,
            kind=machine.kind,
        )
        name = domain_name(owner.pool, owner.name)
        there = self._own(partial(connect.lookupByName, name), machine, tag) or before
        pool = our_pool(connect, self._hypervisor.host, tag, owner.pool)
        path = directory_of(pool)
        inserted = ""
        if there is not None:
            with ignoring(NO_DOMAIN):
                inserted = medium_of(parsed(there.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)))
        if machine.firmware is not Firmware.BIOS:
            make_directory(pool)
        if iso.file:
            with self._sending:
                send_file(connect, pool, iso.path, iso.file)
        if seed is not None:
            put_seed(connect, pool, owner.name, seed)
        stage = Stage(
            pool_path=path,
            record=self.console_record(machine.uuid),
            accelerator=accelerator,
            boot_iso=f"{path}/{iso.file}" if iso.file else "",
            medium=inserted if MEDIUM.match(PurePosixPath(inserted).name) else "",
            earlier=named_as_earlier(pool, machine),
            nvram=kept_place(connect, machine, path, owner.name),
        )
        domain = connect.defineXMLFlags(render_domain(machine, owner, stage), 0)
        repair(domain)
        remove_seeds(pool, owner.name, besides=machine.seed)
        self._roster.forget(machine.uuid)
        return before is None

    def _own(self, find: Callable[[], Domain], machine: Machine, tag: OwnerTag) -> Domain | None:
        """The domain of a machine as it is now, None where there is none. Raises `NotOurs`."""
        domain = None
        with ignoring(NO_DOMAIN):
            domain = find()
            known = self._roster.look(domain)
            same = known is not None and known.owner.tag.cluster == tag.cluster
            if not same or domain.UUID() != machine.uuid.bytes:
                raise NotOurs(
                    f"host {self._hypervisor.host}: the domain {domain.name()} "
                    f"({domain.UUIDString()}) exists and nospoon did not make it",
                    hint=f"See `virsh dominfo {domain.name()}`; rename it or the cluster.",
                )
        return domain

    async def _make_records(self) -> None:
        if not self._records_made:
            await self._runner.run(["mkdir", "-p", "-m", "0711", self._setup.records])
            self._records_made = True

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        """Define it again. A running guest keeps what it has until it is powered off."""
        assert isinstance(desired.shape, Machine)
        if desired.shape.adopted:
            await self.claim(desired, tag)
            return
        await self.create(desired, tag)
        if observed.running:
            await self._plugs.repair(desired.shape)

    async def delete(self, observed: Observed) -> None:
        assert isinstance(observed.shape, Machine)
        machine = observed.shape
        if machine.adopted:
            await self.release(observed)
            return
        async with self._locks[machine.uuid]:
            owner = await self._hypervisor.work(
                lambda connect: self._remove(connect, machine),
                f"remove machine {observed.key.name}",
            )
            if owner is not None:
                await self._nvram.remove(owner)
        self._nvram.settled.discard(machine.uuid)
        self._locks.pop(machine.uuid, None)
        self._boots.pending.pop(machine.uuid, None)

    def _remove(self, connect: Connect, machine: Machine) -> Owner | None:
        """Whose machine went, None if it was gone."""
        owner = None
        with ignoring(NO_DOMAIN):
            domain = connect.lookupByUUID(machine.uuid.bytes)
            owner = owner_in(parsed(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)))
            if owner is None or owner.tag.deployment != self._setup.deployment or owner.adopted:
                raise NotOurs(
                    f"host {self._hypervisor.host}: the domain {domain.name()} has no "
                    "nospoon tag any more: it is left unchanged"
                )
            with ignoring(OPERATION_INVALID):  # it is off already
                domain.destroy()
            domain.undefineFlags(UNDEFINE)
            with ignoring(NO_STORAGE_POOL):
                pool = our_pool(connect, self._hypervisor.host, owner.tag, owner.pool)
                remove_added(refreshed(pool), owner.name)
                remove_seeds(pool, owner.name)
        return owner

    async def claim(self, resource: Resource, tag: OwnerTag) -> None:
        assert isinstance(resource.shape, Machine)
        machine, name = resource.shape, resource.key.name
        async with self._locks[machine.uuid]:
            verb = f"claim machine {machine.adopted}"
            new = await self._hypervisor.work(
                lambda connect: claim(connect, machine, name, tag), verb
            )
            if new:
                await asyncio.sleep(SETTLE_SECONDS)
                await self._hypervisor.work(lambda connect: confirm(connect, machine, tag), verb)
            self._roster.forget(machine.uuid)
        await self._presence.tell_looked(machine.uuid, MachineChange.OBSERVED)

    async def release(self, observed: Observed) -> None:
        assert isinstance(observed.shape, Machine)
        machine = observed.shape
        async with self._locks[machine.uuid]:
            whole = await self._release(machine)
        if not whole:
            tell(
                f"machine {machine.adopted} runs with the secure boot settings that its BMC set, "
                "and keeps them; one that is off gets back what it had"
            )
        self._locks.pop(machine.uuid, None)
        self._boots.pending.pop(machine.uuid, None)

    async def _release(self, machine: Machine) -> bool:
        """Whether all that was changed is as it was."""
        whole = True
        with contextlib.suppress(Gone):  # undefined, or released already
            verb = f"release machine {machine.adopted}"
            if await self._hypervisor.work(lambda connect: self._take_out(connect, machine), verb):
                whole = await self._nvram.give_back(machine.uuid)
            await self._hypervisor.work(
                lambda connect: release(connect, machine, self._setup.deployment), verb
            )
        self._roster.forget(machine.uuid)
        return whole

    def _take_out(self, connect: Connect, machine: Machine) -> bool:
        """Its medium; whether it has a definition, of which more may have been changed."""
        if not connect.lookupByUUID(machine.uuid.bytes).isPersistent():
            return False
        self.drives.take_out(connect, machine.uuid)
        return True

    async def power(self, machine: UUID, command: PowerCommand, boot: BootPlan) -> Outcome:
        return await self.boot_order.obey(machine, command, boot)

    async def _settled(self, machine: UUID) -> None:
        await self._boots.settled(machine)

    async def _finish(self, machine: UUID) -> None:
        async with self._locks[machine]:
            await self._boots.finish(machine)

    async def machines(self) -> Sequence[MachineEvent]:
        return await self._presence.look()

    async def watch(self) -> AsyncIterator[MachineEvent]:
        with self._presence.feed.listen() as queue:
            await self._presence.ready()
            for event in await self._opening():
                yield event
            while True:
                yield await queue.get()

    async def _opening(self) -> Sequence[MachineEvent]:
        try:
            return await self._presence.look()
        except ProviderError as error:
            return [
                MachineEvent(uuid, MachineChange.UNREACHABLE, PowerState.UNKNOWN, str(error))
                for uuid in self._roster.ours()
            ]

    async def console(self, machine: UUID) -> LibvirtConsole:
        find = partial(self._roster.find, machine=machine)
        return await attached(self._hypervisor, find, machine, self._presence.tasks)

    def console_record(self, machine: UUID) -> str:
        return str(PurePosixPath(self._setup.records) / f"{machine}.log")

    async def close(self) -> None:
        await self._presence.close()
