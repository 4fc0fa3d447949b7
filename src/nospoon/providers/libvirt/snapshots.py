"""Snapshots of a machine's disks and UEFI variables (ADR 7).

Disks keep them inside their qcow2 files: QEMU makes them while the guest is paused, all disks of a
machine in one transaction, qemu-img while it is off. Variables are copied beside their file, as
VARIABLES.NAME.snapshot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from uuid import UUID

import libvirt

from nospoon.errors import Gone, ProviderError
from nospoon.model.cluster import Firmware
from nospoon.model.machine import KeptState
from nospoon.providers.libvirt.adopted import of_its_owner
from nospoon.providers.libvirt.bindings import Connect, Domain
from nospoon.providers.libvirt.elements import attribute_of, parsed, text_of
from nospoon.providers.libvirt.hypervisor import Hypervisor
from nospoon.providers.libvirt.monitor import execute
from nospoon.providers.libvirt.roster import Roster
from nospoon.providers.libvirt.storage_xml import (
    NVRAM,
    disk_called,
    earlier_nvram_path,
    nvram_path,
)
from nospoon.providers.printed import value_in
from nospoon.runtime.process import Finished, said_by
from nospoon.runtime.runner import Runner

PREFIX = "nospoon-"
KEEP = 'if [ -e "$1" ]; then cp --reflink=auto --preserve=all -- "$1" "$2.part.snapshot" && '
KEEP += 'mv -- "$2.part.snapshot" "$2.snapshot"; fi'
PUT_BACK = 'if [ -e "$2.snapshot" ]; then cp --reflink=auto --preserve=all -- "$2.snapshot" "$1"; '
PUT_BACK += 'else rm -f -- "$1"; fi'
DROP = 'rm -f -- "$2.snapshot" "$2.part.snapshot"'


@dataclass(frozen=True, slots=True)
class Files:
    """What a machine keeps its state in: paths on its host. `variables`: of the firmware that it
    runs with, or will when it is off; "" without UEFI.
    """

    disks: tuple[str, ...]
    variables: str


@dataclass(frozen=True, slots=True)
class DomainSnapshots:
    """Of the machines of one host. `runner` runs qemu-img and cp there; `locks`: a machine's calls
    come one after the other.
    """

    hypervisor: Hypervisor
    roster: Roster
    runner: Runner
    locks: Mapping[UUID, asyncio.Lock]

    async def refusal(self, machine: UUID) -> str:  # noqa: ARG002  (of any)
        return ""

    async def pause(self, machine: UUID) -> bool:
        """Stop its CPUs, if it is on; whether it is."""

        def suspend(connect: Connect) -> bool:
            domain = self.roster.find(connect, machine)
            if domain.state()[0] == libvirt.VIR_DOMAIN_RUNNING:
                domain.suspend()
            return bool(domain.isActive())

        async with self.locks[machine]:
            return await self.hypervisor.work(suspend, f"pause machine {machine}")

    async def resume(self, machine: UUID) -> None:
        """Let it go on; nothing for one that is not paused."""

        def resume(connect: Connect) -> None:
            domain = self.roster.find(connect, machine)
            if domain.state()[0] == libvirt.VIR_DOMAIN_PAUSED:
                domain.resume()

        async with self.locks[machine]:
            await self.hypervisor.work(resume, f"resume machine {machine}")

    async def create(self, machine: UUID, name: str) -> None:
        """Keep the state under this name, in place of an earlier one. Raises for one that runs."""
        async with self.locks[machine]:
            await self._create(machine, name)

    async def _create(self, machine: UUID, name: str) -> None:
        active, files = await self._look(machine, f"take snapshot {name}")
        if active:
            await self._refuse_lost(machine, files.variables)
        await self._delete(machine, name, files, active=active)
        if active:
            await self._by_qemu(machine, files, name, "blockdev-snapshot-internal-sync")
        else:
            for disk in files.disks:
                self._refuse(await self._image("-c", name, disk), f"take a snapshot of {disk}")
        await self._variables(KEEP, files, name)

    async def _refuse_lost(self, machine: UUID, variables: str) -> None:
        """QEMU holds them open: what it has is kept nowhere when their file is gone."""
        argv = ["test", "-e", variables]
        if variables and (await self.runner.run(argv, check=False)).status != 0:
            raise ProviderError(
                f"{self._who(machine)} runs, and its UEFI variables {variables} are gone",
                hint="Power it off and on, and try again.",
            )

    async def list(self, machine: UUID) -> Mapping[str, Mapping[str, KeptState]]:
        """Disk -> name -> the state that it keeps so called, whether the machine runs or not."""
        _, files = await self._look(machine, "look for snapshots")
        return {
            disk_called(PurePosixPath(disk).name): await self._states_of(disk)
            for disk in files.disks
        }

    async def _states_of(self, disk: str) -> dict[str, KeptState]:
        argv = ["qemu-img", "info", "--output=json", "--force-share", disk]
        done = await self.runner.run(argv, check=False)
        self._refuse(done, f"list the snapshots of {disk}")
        listed = await value_in(done, done.stdout)
        try:
            return {
                each["name"].removeprefix(PREFIX): KeptState(float(each["date-sec"]), on=_ran(each))
                for each in listed.get("snapshots", ())
                if each["name"].startswith(PREFIX)
            }
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ProviderError("`qemu-img` printed what is not expected of it") from error

    async def blocker(self, machine: UUID, name: str) -> str:
        """Whether it has variables of this name of another firmware than it has, or is to have."""
        now, others = await self.hypervisor.work(
            lambda connect: self._variables_of(connect, machine), f"look at machine {machine}"
        )
        for path, firmware in others.items():
            argv = ["test", "-e", f"{path}.{name}.snapshot"]
            if (await self.runner.run(argv, check=False)).status == 0:
                return f"its firmware was {firmware} then, and is {now}"
        return ""

    def _variables_of(
        self, connect: Connect, machine: UUID
    ) -> tuple[Firmware, dict[str, Firmware]]:
        """Its firmware, and where the variables of the others are, were it one of them."""
        domain = self.roster.find(connect, machine)
        known, files = self.roster.look(domain), _files_of(domain)
        beside = files.variables or next(iter(files.disks), "")
        if known is None or not beside:
            return Firmware.BIOS, {}
        others = (each for each in Firmware if each not in (known.firmware, Firmware.BIOS))
        place = PurePosixPath(beside).parent
        pool = place.parent if place.name == NVRAM and files.variables else place
        return known.firmware, {
            path(str(pool), known.owner.name, each): each
            for each in others
            for path in (nvram_path, earlier_nvram_path)
        }

    async def restore(self, machine: UUID, name: str) -> None:
        """Bring a machine that is off to the state of this name."""
        async with self.locks[machine]:
            await self._restore(machine, name)

    async def _restore(self, machine: UUID, name: str) -> None:
        active, files = await self._look(machine, f"restore snapshot {name}")
        if active:
            raise ProviderError(f"{self._who(machine)} runs: its snapshot cannot be restored")
        for disk in files.disks:
            done = await self._image("-a", name, disk)
            if done.status != 0:
                raise Gone(
                    f"{self._who(machine)}: {disk} has no state {name}: {said_by(done)}",
                    hint="The disk was recreated after the snapshot was taken.",
                )
        await self._variables(PUT_BACK, files, name)

    async def delete(self, machine: UUID, name: str) -> None:
        """Remove it; what is gone already is no error."""
        async with self.locks[machine]:
            active, files = await self._look(machine, f"delete snapshot {name}")
            await self._delete(machine, name, files, active=active)

    async def _delete(self, machine: UUID, name: str, files: Files, *, active: bool) -> None:
        if active:
            await self._by_qemu(machine, files, name, "blockdev-snapshot-delete-internal-sync")
        else:
            for disk in files.disks:
                done = await self._image("-l", "", disk)
                if f" {PREFIX}{name} " in done.stdout:
                    self._refuse(await self._image("-d", name, disk), f"delete {name} of {disk}")
        _, others = await self.hypervisor.work(
            lambda connect: self._variables_of(connect, machine), f"look at machine {machine}"
        )
        for variables in {files.variables, *others} - {""}:
            await self._variables(DROP, replace(files, variables=variables), name)

    async def _look(self, machine: UUID, doing: str) -> tuple[bool, Files]:
        def look(connect: Connect) -> tuple[bool, Files]:
            domain = self.roster.find(connect, machine)
            known = self.roster.look(domain)
            if known is not None and known.owner.adopted:
                if doing.startswith(("take", "restore")):
                    raise of_its_owner(known.owner.name, "its disks are its owner's")
                return bool(domain.isActive()), Files((), "")
            state = domain.state()[0]
            if state == libvirt.VIR_DOMAIN_RUNNING and doing.startswith("take"):
                raise ProviderError(f"{self._who(machine)} was resumed by other means")
            return bool(domain.isActive()), _files_of(domain)

        return await self.hypervisor.work(look, f"{doing} of machine {machine}")

    async def _by_qemu(self, machine: UUID, files: Files, name: str, command: str) -> None:
        """Through the QEMU that has the disks open: all of them, or none."""

        def act(connect: Connect) -> None:
            domain = self.roster.find(connect, machine)
            nodes = _nodes(domain, files.disks)
            if command.startswith("blockdev-snapshot-delete"):
                for node, known in nodes:
                    if PREFIX + name in known:
                        execute(domain, command, device=node, name=PREFIX + name)
                return
            actions = [
                {"type": command, "data": {"device": node, "name": PREFIX + name}}
                for node, _ in nodes
            ]
            execute(domain, "transaction", actions=actions)

        await self.hypervisor.work(act, f"{command} {name} of machine {machine}")

    async def _image(self, option: str, name: str, disk: str) -> Finished:
        words = [option, *([PREFIX + name] if name else []), disk]
        return await self.runner.run(["qemu-img", "snapshot", *words], check=False)

    async def _variables(self, script: str, files: Files, name: str) -> None:
        if files.variables:
            copy = f"{files.variables}.{name}"
            done = await self.runner.run(
                ["sh", "-c", script, "sh", files.variables, copy], check=False
            )
            self._refuse(done, f"copy {files.variables}")

    def _refuse(self, done: Finished, doing: str) -> None:
        if done.status != 0:
            why = said_by(done)
            raise ProviderError(f"host {self.hypervisor.host}: cannot {doing}: {why}")

    def _who(self, machine: UUID) -> str:
        return f"host {self.hypervisor.host}: machine {machine}"


def _ran(snapshot: Mapping[str, object]) -> bool:
    """QEMU notes for how long its guest had run (docs/interop/qcow2.txt); qemu-img notes 0."""
    return bool(snapshot["vm-clock-sec"] or snapshot["vm-clock-nsec"])


def _files_of(domain: Domain) -> Files:
    root = parsed(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    disks = [
        attribute_of(disk, "source", "file")
        for disk in root.iterfind("devices/disk")
        if disk.get("device", "disk") == "disk" and attribute_of(disk, "driver", "type") == "qcow2"
    ]
    now = parsed(domain.XMLDesc(0))
    return Files(tuple(filter(None, disks)), text_of(now, "os/nvram"))


def _nodes(domain: Domain, disks: Sequence[str]) -> list[tuple[str, set[str]]]:
    """QEMU's name of each of these disks, and the names of the snapshots in it."""
    found = {
        block["inserted"]["file"]: block["inserted"]
        for block in execute(domain, "query-block")
        if "inserted" in block
    }
    missing = [disk for disk in disks if disk not in found]
    if missing:
        raise ProviderError(
            f"the running machine {domain.name()} does not have {', '.join(missing)} yet",
            hint="Power it off and on, and do it again.",
        )
    return [
        (found[disk]["node-name"], {s["name"] for s in found[disk]["image"].get("snapshots", [])})
        for disk in disks
    ]
