"""Starts and resets that follow one boot order now and another ever after.

A start whose order is not the persistent one is done paused: the intent is written into the
domain's metadata, the machine is started without running, told `now`, reset so that firmware will
read it, told `after`, and let go. A daemon that dies in between leaves a machine that QEMU calls
`prelaunch`, with the intent beside it: `finish` does the rest of it, from the first order on.

A boot into setup is none of an order: UEFI firmware enters it when a variable says so, which is
written before the start. SeaBIOS has no setup, and boots the rest of the order.

A machine whose owner saved it boots nothing: it goes on, and an order that waits for its next boot
goes on waiting.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import Enum
from uuid import UUID

import libvirt
import structlog

from nospoon.model.boot import BootDevice, BootPlan
from nospoon.model.cluster import Firmware
from nospoon.model.machine import MachineChange, PowerState
from nospoon.providers.libvirt.added import Added
from nospoon.providers.libvirt.adopted_drives import lacks_drive
from nospoon.providers.libvirt.bindings import Connect, Domain
from nospoon.providers.libvirt.elements import element, parsed, written
from nospoon.providers.libvirt.faults import NO_DOMAIN_METADATA
from nospoon.providers.libvirt.hypervisor import Hypervisor, fault_of
from nospoon.providers.libvirt.monitor import execute, set_order
from nospoon.providers.libvirt.nvram import Nvram, edits_for, enters_setup
from nospoon.providers.libvirt.owner import BOOT
from nospoon.providers.libvirt.presence import Presence
from nospoon.providers.libvirt.roster import Known, Roster

log = structlog.get_logger()
DISTURBED, TRIES = "Failed to apply firewall rules", 4
"""What libvirt says of filters that it could not make, and how often it is asked to start."""
RESET_SECONDS = 10.0
"""A reset of a paused machine takes milliseconds; its event may come late on a busy host."""


class Started(Enum):
    """How a machine was started: it began with its firmware, or its owner had saved it
    (virDomainManagedSave) and it goes on from there, whatever it is to boot.
    """

    BOOTED = "booted"
    RESTORED = "restored"


@dataclass(frozen=True, slots=True)
class Boots:
    """Starts machines of one host. `pending`: what is to be set once a reset has settled."""

    hypervisor: Hypervisor
    roster: Roster
    presence: Presence
    nvram: Nvram
    added: Added
    pending: dict[UUID, tuple[BootDevice, ...]]

    async def start_if_off(self, machine: UUID, boot: BootPlan) -> Started | None:
        """Start a machine, in one job, if it is off and boots by its persistent order or goes on
        where it was saved; None where neither was so. Most starts are: a look of its own, and a job
        for each step, took six.
        """
        self.pending.pop(machine, None)
        return await self.hypervisor.work(
            lambda connect: self._start_if_off(connect, machine, boot),
            f"start machine {self.roster.named(machine)}",
        )

    def _start_if_off(self, connect: Connect, machine: UUID, boot: BootPlan) -> Started | None:
        domain = self.roster.find(connect, machine)
        known = self.roster.look(domain)
        assert known is not None, "find raises Gone for other machines"
        by_order = known.script or (boot.now, boot.after) == (known.order, known.order)
        prepared = boot.reset_keys or enters_setup(boot) or bool(edits_for(known, boot))
        if domain.state()[0] != libvirt.VIR_DOMAIN_SHUTOFF:
            return None
        if domain.hasManagedSaveImage():
            start_domain(domain)
            return Started.RESTORED
        if not by_order or prepared or not self.nvram.is_settled(machine):
            return None
        self.added.apply(connect, machine, boot.volumes)
        start_domain(domain)
        return Started.BOOTED

    async def start(self, machine: UUID, boot: BootPlan) -> None:
        """Start a machine that is off; returns when it runs."""
        if await self.start_if_off(machine, boot) is not None:
            return
        known = await self._look(machine)
        await self.nvram.settle(machine)
        await self._prepare(machine, known, boot)
        await self.added.bring(machine, boot.volumes)
        if known.script or (boot.now, boot.after) == (known.order, known.order):
            await self.hypervisor.work(
                lambda connect: start_domain(self.roster.find(connect, machine)),
                f"start machine {self.roster.named(machine)}",
            )
            return
        await self._start_paused(machine, boot)

    async def _prepare(self, machine: UUID, known: Known, boot: BootPlan) -> None:
        """Bring the machine's variables to what this start shall find."""
        edits = edits_for(known, boot)
        resets = boot.reset_keys and known.firmware is Firmware.UEFI_SECURE
        if not edits and not resets:
            return
        self.presence.starting.add(machine)
        try:
            if resets:
                await self.nvram.reset_keys(machine)
            if edits:
                await self.nvram.edit(machine, edits)
        finally:
            self.presence.starting.discard(machine)

    async def needs_start(self, machine: UUID, boot: BootPlan) -> bool:
        """Whether a reset would not do: a variable that leads into setup is written before a start,
        and volumes come and go with one. Secure boot waits for a start by itself.
        """
        known = await self._look(machine)
        if known.firmware is not Firmware.BIOS and enters_setup(boot):
            return True
        if known.owner.adopted:
            return await self.hypervisor.ask(
                lambda connect: lacks_drive(self.roster.find(connect, machine)),
                f"look at the CD drive of {machine}",
            )
        return await self.added.differ(machine, boot.volumes)

    async def _look(self, machine: UUID) -> Known:
        """What is known of a machine, which is looked for where it was not seen yet."""
        known = await self.hypervisor.ask(
            lambda connect: self.roster.look(self.roster.find(connect, machine)),
            f"look at machine {machine}",
        )
        assert known is not None, "find raises Gone for other machines"
        return known

    def by_script(self, machine: UUID) -> bool:
        known = self.roster.known(machine)
        return known is not None and known.script

    async def _start_paused(self, machine: UUID, boot: BootPlan) -> None:
        def begin(connect: Connect) -> None:
            domain = self.roster.find(connect, machine)
            write_intent(domain, boot)
            start_domain(domain, libvirt.VIR_DOMAIN_START_PAUSED)

        self.presence.starting.add(machine)
        try:
            await self.hypervisor.work(begin, f"start machine {self.roster.named(machine)}")
            await self._let_go(machine, boot)
        finally:
            self.presence.starting.discard(machine)
        self.presence.publish(machine, MachineChange.STARTED, PowerState.ON)

    async def finish(self, machine: UUID) -> None:
        """Finish a start that a daemon before us began."""

        def read(connect: Connect) -> BootPlan:
            known = self.roster.known(machine)
            order = known.order if known is not None else ()
            return read_intent(self.roster.find(connect, machine)) or BootPlan(order, order)

        log.info("finishing an interrupted start", machine=str(machine))
        self.presence.starting.add(machine)
        try:
            boot = await self.hypervisor.ask(read, f"read the boot order of {machine}")
            await self._let_go(machine, boot)
        finally:
            self.presence.starting.discard(machine)
        self.presence.finished(machine, boot)

    async def _let_go(self, machine: UUID, boot: BootPlan) -> None:
        def reset(connect: Connect) -> None:
            domain = self.roster.find(connect, machine)
            set_order(domain, boot.now)
            execute(domain, "system_reset")

        def resume(connect: Connect) -> None:
            domain = self.roster.find(connect, machine)
            set_order(domain, boot.after)
            domain.resume()

        seen = self.presence.expect_reset(machine)
        await self.hypervisor.work(reset, f"set the boot order of {self.roster.named(machine)}")
        try:
            async with asyncio.timeout(RESET_SECONDS):
                await seen.wait()
        except TimeoutError:
            log.warning("a reset was not reported; going on", machine=str(machine))
        await self.hypervisor.work(resume, f"start machine {self.roster.named(machine)}")

    async def tell(self, machine: UUID, boot: BootPlan) -> None:
        """Tell a running machine what its next reset boots; the rest when that has settled."""

        def say(connect: Connect) -> None:
            domain = self.roster.find(connect, machine)
            if domain.isActive():
                set_order(domain, boot.now)

        self.pending.pop(machine, None)
        if boot.now != boot.after:
            self.pending[machine] = boot.after
        await self.hypervisor.ask(say, f"set the boot order of {self.roster.named(machine)}")

    async def settled(self, machine: UUID) -> None:
        """A reset has settled: from now on the later order holds."""
        after = self.pending.pop(machine, None)
        if after is not None:
            await self.hypervisor.ask(
                lambda connect: set_order(self.roster.find(connect, machine), after),
                f"set the boot order of {self.roster.named(machine)}",
            )


def start_domain(domain: Domain, flags: int = 0) -> None:
    """Rules of its NICs' filters that another program's rules got in the way of are made again:
    ebtables 1.8 on nf_tables fails ("RULE_DELETE failed") where both are changed at one time, and
    libvirt starts nothing without them.
    """
    for _ in range(TRIES - 1):
        try:
            domain.createWithFlags(flags)
        except libvirt.libvirtError as error:
            if DISTURBED not in fault_of(error).text:
                raise
            log.info("filters were disturbed; starting again", why=fault_of(error).text)
        else:
            return
    domain.createWithFlags(flags)


def write_intent(domain: Domain, boot: BootPlan) -> None:
    """Keep the plan in the domain's metadata; libvirt itself adds the namespace."""
    xml = written(element("boot", now=" ".join(boot.now), after=" ".join(boot.after)))
    kind, config = libvirt.VIR_DOMAIN_METADATA_ELEMENT, libvirt.VIR_DOMAIN_AFFECT_CONFIG
    domain.setMetadata(kind, xml, "nospoon-boot", BOOT, config)


def read_intent(domain: Domain) -> BootPlan | None:
    """What `write_intent` wrote; None when it never did."""
    kind, config = libvirt.VIR_DOMAIN_METADATA_ELEMENT, libvirt.VIR_DOMAIN_AFFECT_CONFIG
    try:
        root = parsed(domain.metadata(kind, BOOT, config))
    except libvirt.libvirtError as error:
        if error.get_error_code() == NO_DOMAIN_METADATA:
            return None
        raise
    return BootPlan(_devices(root.get("now", "")), _devices(root.get("after", "")))


def _devices(text: str) -> tuple[BootDevice, ...]:
    return tuple(BootDevice(word) for word in text.split())
