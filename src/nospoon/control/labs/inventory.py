"""Inventories of registered machines: each boots the probe over its BMC, and what that reports
becomes the machine's attributes where its file says nothing.

A machine is known by its MAC addresses, as for installers. One whose file names none is known by
the UUID that its BMC shows (IPMI 2.0 §22.14, Redfish's `UUID`), which is its firmware's, too
(SMBIOS, type 1): its iPXE asks with that.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import msgspec

from nospoon.control.labs import views
from nospoon.control.labs.access import KnownLab
from nospoon.control.labs.board import Board
from nospoon.control.labs.racks import Racks
from nospoon.control.operations.operations import Ended, Running
from nospoon.errors import Conflict, NotFound, ProviderError
from nospoon.lab.effects import Effect
from nospoon.model.cluster import Arch
from nospoon.model.lab import Inventory, Registered
from nospoon.probe.build import Probe, command_line
from nospoon.probe.record import Record
from nospoon.protocols.ipxe.offer import Kernel
from nospoon.runtime.clock import Clock
from nospoon.store.operations import OperationState

MOST_CPUS, MOST_MEMORY, MOST_DISK, MOST_PARTS, MOST_VALUE = 65536, 1 << 30, 1 << 60, 64, 255
"""CPUs, MiB, bytes of a disk, disks and NICs, and characters of an attribute: as in a file."""
MIB = 1 << 20
KERNEL, INITRD = "probe-kernel", "probe-initrd"
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
BuildProbe = Callable[[Arch], Awaitable[Probe]]


@dataclass(frozen=True, slots=True)
class Awaited:
    """An inventory that is taken. `uuids`: what its BMC may mean, of a machine without MACs."""

    known: KnownLab
    machine: Registered
    uuids: frozenset[UUID]
    arch: Arch
    probe: Probe
    reported: asyncio.Future[Record]

    def is_of(self, record: Record) -> bool:
        """Whether a record is of that machine."""
        if self.machine.macs:
            return any(nic.mac.lower() in self.machine.macs for nic in record.nics)
        return _uuid(record.uuid) in self.uuids


@dataclass(frozen=True, slots=True)
class Inventories:
    """All parts are handed in by the composition root. `clock`: Unix seconds."""

    board: Board
    racks: Racks
    build_probe: BuildProbe
    clock: Clock
    _awaited: dict[str, Awaited] = field(default_factory=dict)

    async def take(self, running: Running, key: str, machine: str, *, limit: float) -> Ended:
        """Take that of a machine within so many seconds: no recipe gets it meanwhile, and it is off
        afterwards. Raises `Conflict` for one that others have, and `ProviderError`.
        """
        known = await self._begin(key, machine)
        found: Inventory | None = None
        try:
            registered = known.machines[machine]
            record = await self._reported(running, known, registered, limit)
            found = inventory_of(record, bmc=registered.bmc, at=self.clock())
            self._require_known(key, machine)
            of_lab = self.board.labs.with_machine(key, registered.with_inventory(found))
            self.board.labs.require_own_macs(self.board.labs.clusters[key], [of_lab])
        except BaseException:
            found = None
            raise
        finally:
            try:
                await self.racks.off(known, known.machines[machine])
            finally:
                await self._end(key, machine, found)
        known = self._require_known(key, machine)
        row = views.machine_row(self.board, known, known.machines[machine])
        message = f"machine {machine}: {row.cpus} CPUs, {row.memory_mib} MiB"
        return Ended(OperationState.DONE, message, {"machine": msgspec.to_builtins(row)})

    def require_free(self, key: str, machine: str) -> None:
        """Raises `Conflict` for a machine that others have, and `NotFound` for none."""
        scheduler = self.board.scheduler
        self._require_known(key, machine)
        state, holder = scheduler.state_of(key, machine), scheduler.holder(key, machine)
        if holder:
            raise Conflict(f"recipe set {holder} has machine {machine}")
        if state.reserved:
            raise Conflict(f"machine {machine} is reserved for {state.reserved}")
        if (key, machine) in scheduler.probed:
            raise Conflict(f"the inventory of machine {machine} is being taken")

    def _require_known(self, key: str, machine: str) -> KnownLab:
        """Its lab. Raises `NotFound` where that, or the machine, is not in a file any more."""
        known = self.board.known.get(key)
        if known is None or machine not in known.machines:
            raise NotFound(f"there is no machine {machine} any more")
        return known

    async def _begin(self, key: str, machine: str) -> KnownLab:
        found = []

        def begin() -> Sequence[Effect]:
            self.require_free(key, machine)
            found.append(self.board.known[key])
            self.board.scheduler.probe(key, machine)
            return []

        await self.board.do(begin)
        return found[0]

    async def _end(self, key: str, machine: str, found: Inventory | None) -> None:
        def end() -> Sequence[Effect]:
            self.board.scheduler.leave(key, machine, found)
            if found is not None:
                self.board.labs.inventoried(key, machine)
            self.board.scheduler.undecided = True
            return []

        await self.board.do(end)

    async def _reported(
        self, running: Running, known: KnownLab, machine: Registered, limit: float
    ) -> Record:
        uuids = frozenset[UUID]()
        if not machine.macs:
            uuids = await self.racks.uuids(known, machine)
        arch = Arch.AARCH64 if machine.arch == Arch.AARCH64 else Arch.X86_64
        running.note("Building the probe, unless it is in the cache")
        probe = await self.build_probe(arch)
        if any(uuids & each.uuids for each in self._awaited.values()):
            raise Conflict(
                f"machine {machine.name}: another inventory is taken of a machine whose BMC shows "
                "the same UUID",
                hint="Write `macs` of the machine, by which it is known instead.",
            )
        reported = asyncio.get_running_loop().create_future()
        secret = secrets.token_urlsafe(24)
        self._awaited[secret] = Awaited(known, machine, uuids, arch, probe, reported)
        try:
            running.note(f"Starting machine {machine.name} from the network")
            await self.racks.probe(known, machine)
            running.note("Waiting for the probe's report")
            async with asyncio.timeout(limit):
                record: Record = await reported
        except TimeoutError:
            raise ProviderError(
                f"machine {machine.name}: the probe reported nothing within {limit:.0f} s",
                hint="Its DHCP server has to lead it to /lab/mac/MAC/ipxe of the boot server, as "
                "for installers.",
            ) from None
        finally:
            del self._awaited[secret]
        return record

    # what machines ask

    def of_machine(self, key: str, machine: str) -> str:
        """The secret of an inventory of a machine that is known by its MACs, "" for none."""
        found = (
            secret
            for secret, each in self._awaited.items()
            if (each.known.key, each.machine.name) == (key, machine)
        )
        return next(found, "")

    def of_uuid(self, uuid: str) -> tuple[str, KnownLab] | None:
        """The secret of an inventory of the machine with this UUID, and its lab."""
        given = _uuid(uuid)
        for secret, each in self._awaited.items():
            if given in each.uuids:
                return secret, each.known
        return None

    @property
    def seeks(self) -> bool:
        """Whether a machine is waited for that is known by its UUID."""
        return any(each.uuids for each in self._awaited.values())

    def kernel(self, secret: str, base: str) -> Kernel:
        """The probe, for a machine whose inventory is taken."""
        place, arch = f"{base}/lab/{secret}", self._awaited[secret].arch
        words = command_line(arch, report=f"{place}/inventory", after="poweroff")
        return Kernel("probe", f"{place}/{KERNEL}", (f"{place}/{INITRD}",), words)

    def file(self, secret: str, name: str) -> Path | None:
        """A file of the probe."""
        awaited = self._awaited.get(secret)
        if awaited is None:
            return None
        return {KERNEL: awaited.probe.kernel, INITRD: awaited.probe.initrd}.get(name)

    def report(self, secret: str, record: Record) -> bool:
        """Whether a record is taken: it is that of the machine, and the first."""
        awaited = self._awaited.get(secret)
        if awaited is None or awaited.reported.done() or not awaited.is_of(record):
            return False
        awaited.reported.set_result(record)
        return True


def inventory_of(record: Record, *, bmc: str, at: float) -> Inventory:
    """What a record says of a machine, as filters compare it. Raises `ProviderError` for one that
    no machine can have: who has the machine chose it.
    """
    memory = (record.memory or record.memory_mapped) // MIB
    disks = tuple(each.size for each in record.disks if each.size)
    macs = tuple(dict.fromkeys(each.mac.lower() for each in record.nics))
    if not (
        0 < record.cpus <= MOST_CPUS
        and 0 < memory <= MOST_MEMORY
        and all(0 < each <= MOST_DISK for each in disks)
        and max(len(disks), len(macs)) <= MOST_PARTS
        and all(map(_MAC.fullmatch, macs))
    ):
        raise ProviderError("the probe's report is not one of a machine")
    drivers = tuple(dict.fromkeys(_text(each.driver) for each in record.nics))
    values = {
        "system/vendor": (_text(record.manufacturer),),
        "system/model": (_text(record.product),),
        "system/serial": (_text(record.serial),),
    }
    key_values = {
        "MACADDRESS": macs,
        "MODULE": drivers,
        "FIRMWARE": (_text(record.firmware),),
        "NR_ETH": (str(len(macs)),),
        "NR_DISKS": (str(len(disks)),),
    }
    return Inventory(
        at=at,
        bmc=bmc,
        arch=_text(record.arch),
        memory=memory,
        cpus=record.cpus,
        disks=disks,
        macs=macs,
        values={name: texts for name, texts in values.items() if any(texts)},
        key_values={name: texts for name, texts in key_values.items() if any(texts)},
    )


def _text(given: str) -> str:
    return "".join(each for each in given[:MOST_VALUE] if each.isprintable())


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
