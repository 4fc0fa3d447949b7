"""The one boot authority: answers machines that ask the network or our ISO what to boot."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol
from uuid import UUID

from nospoon.model.boot import BootDevice, BootPlan
from nospoon.model.resources.machines import Machine
from nospoon.services.netboot.ports import BootAnswer, ServedFile, ServedProfile


class Publish(Protocol):
    """Writes down again what machines boot, for loaders that cannot ask by HTTP: of a network it
    writes all of that at once, for however many.
    """

    def __call__(self, *machines: UUID) -> Awaitable[None]: ...


@dataclass(frozen=True, slots=True)
class Bootable:
    """A machine that may ask: its shape, and what it boots from the network."""

    machine: Machine
    profile: ServedProfile | None = None


class Authority:
    """Keeps what each machine boots from the network; `probing` goes before the file's profile.
    `start_disk`: has a machine start its disk that cannot do so from the boot image.
    """

    def __init__(
        self,
        boot_of: Callable[[Machine], BootPlan],
        http_boot_of: Callable[[UUID], str],
        boot_observed: Callable[[UUID], Awaitable[None]],
        *,
        medium_of: Callable[[UUID], Path | None] = lambda _: None,
        start_disk: Callable[[UUID], object] = lambda _: None,
    ) -> None:
        self._boot_of, self._boot_observed = boot_of, boot_observed
        self._http_boot_of, self._medium_of = http_boot_of, medium_of
        self._start_disk = start_disk
        self._bootables: dict[UUID, Bootable] = {}
        self._by_mac: dict[str, list[UUID]] = {}
        self._called: dict[UUID, UUID] = {}
        self._names: dict[UUID, UUID] = {}
        self._probing: dict[UUID, ServedProfile] = {}
        self._reports: dict[UUID, asyncio.Future[Mapping[str, object]]] = {}
        self._tokens: dict[UUID, str] = {}

    def put(self, bootable: Bootable) -> None:
        self._leave(bootable.machine.uuid)
        self._bootables[bootable.machine.uuid] = bootable
        for nic in bootable.machine.nics:
            self._by_mac.setdefault(nic.mac.lower(), []).append(bootable.machine.uuid)

    def remove(self, uuid: UUID) -> None:
        """It may not ask any more."""
        self._leave(uuid)
        name = self._names.pop(uuid, None)
        if name is not None:
            del self._called[name]

    def _leave(self, uuid: UUID) -> None:
        """A MAC that another machine has as well stays that one's."""
        known = self._bootables.pop(uuid, None)
        for nic in known.machine.nics if known is not None else ():
            mac = nic.mac.lower()
            left = [each for each in self._by_mac.pop(mac, ()) if each != uuid]
            if left:
                self._by_mac[mac] = left

    def call(self, uuid: UUID, smbios: UUID) -> None:
        """From now on a machine is known by the UUID that its guest sees, too. One that another
        machine has stays that one's: a cloud may say anything.
        """
        if self._called.setdefault(smbios, uuid) != uuid:
            return
        before = self._names.get(uuid, smbios)
        if before != smbios:
            del self._called[before]
        self._names[uuid] = smbios

    def holders(self, mac: str) -> Sequence[UUID]:
        """The machines with this MAC; the first is the one that is answered."""
        return self._by_mac.get(mac.lower(), ())

    def probe(
        self, uuid: UUID, profile: ServedProfile, token: str
    ) -> asyncio.Future[Mapping[str, object]]:
        """From now on this machine gets the probe; the future is its report over HTTP, which has to
        come with this token.
        """
        self._probing[uuid], self._tokens[uuid] = profile, token
        self._reports[uuid] = asyncio.get_running_loop().create_future()
        return self._reports[uuid]

    def is_probed(self, uuid: UUID) -> bool:
        """Whether this machine gets the probe from the network."""
        return uuid in self._probing

    def end_probe(self, uuid: UUID) -> None:
        self._probing.pop(uuid, None)
        self._tokens.pop(uuid, None)
        report = self._reports.pop(uuid, None)
        if report is not None:
            report.cancel()

    def answer(self, *, uuid: UUID | None = None, mac: str = "") -> BootAnswer | None:
        """What the machine boots now; None: not one of ours."""
        own = uuid if uuid in self._bootables else None
        secret = self._called.get(uuid) if uuid is not None and own is None else None
        known = own or secret or next(iter(self.holders(mac)), None)
        bootable = self._bootables.get(known) if known is not None else None
        if bootable is None or known is None:
            return None
        by_image = bootable.machine.asks and _has_network(bootable.machine)
        answer = BootAnswer(
            known,
            BootDevice.DISK,
            user_mode=bootable.machine.asks and not by_image,
            secret=uuid if secret is not None else None,
            boot_image=by_image,
            starts_disk=by_image and bool(bootable.machine.adopted),
        )
        uri = self._http_boot_of(known)
        if uri and known not in self._probing:
            return replace(answer, device=BootDevice.HTTP, uri=uri)
        profile = self._probing.get(known, bootable.profile)
        if by_image and known not in self._probing:
            devices = self._boot_of(bootable.machine).now
            medium = self._medium_of(known)
            if medium is None:
                devices = tuple(each for each in devices if each is not BootDevice.CDROM)
            else:
                answer = replace(answer, medium=ServedFile(str(medium), "medium.iso"))
            devices = devices or (BootDevice.DISK,)
        else:
            devices = (self._device(bootable.machine, profile),)
        first, *after = (_on(answer, device, profile) for device in devices)
        return replace(first, after=tuple(after))

    def _device(self, machine: Machine, profile: ServedProfile | None) -> BootDevice:
        """A machine with native boot order asks only when it boots from the network."""
        if not machine.asks:
            return BootDevice.NETWORK
        for device in self._boot_of(machine).now:
            if device is not BootDevice.NETWORK or profile is not None:
                return device
        return BootDevice.DISK

    async def booted(self, uuid: UUID) -> None:
        bootable = self._bootables.get(uuid)
        if bootable is not None and bootable.machine.asks:
            await self._boot_observed(uuid)

    def leaves(self, uuid: UUID) -> None:
        self._start_disk(uuid)

    def awaits(self, uuid: UUID, token: str) -> bool:
        """Whether a probe with this token runs on the machine, and has not reported yet."""
        report = self._reports.get(uuid)
        known = self._tokens.get(uuid, "")
        is_known = hmac.compare_digest(known.encode(), token.encode())
        return report is not None and not report.done() and bool(known) and is_known

    async def reported(self, uuid: UUID, record: Mapping[str, object]) -> None:
        report = self._reports.get(uuid)
        if report is not None and not report.done():
            report.set_result(record)


def _on(answer: BootAnswer, device: BootDevice, profile: ServedProfile | None) -> BootAnswer:
    """The answer for one device of those that a machine is to try."""
    if device is BootDevice.NETWORK and profile is not None and profile.script:
        return replace(answer, device=BootDevice.HTTP, uri=profile.script)
    return replace(answer, device=device, profile=profile)


def _has_network(machine: Machine) -> bool:
    """Whether others may answer on a network of its NICs: they have one each."""
    return any(nic.network for nic in machine.nics)
