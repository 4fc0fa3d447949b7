"""A BMC service over machines in memory: for tests of what stands before them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import random
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import UUID

from nospoon.bmc.events import EventSettings
from nospoon.bmc.log import Record
from nospoon.bmc.runtime import Runtime
from nospoon.errors import NospoonError, ProviderError
from nospoon.model.boot import BootDevice, BootMethod, BootPlan
from nospoon.model.cluster import Arch, BmcProtocol, Firmware
from nospoon.model.machine import MachineChange, MachineEvent, Outcome, PowerCommand, PowerState
from nospoon.model.resources.bmcs import Bmc
from nospoon.model.resources.machines import Machine, MachineDisk, MachineNic
from nospoon.model.secure_boot import KeyDatabase
from nospoon.plan import identity
from nospoon.runtime.tasks import Tasks
from nospoon.services.bmcs.certificates import Certificates
from nospoon.services.bmcs.ports import BmcConfig
from nospoon.services.bmcs.service import BmcService
from nospoon.testing.alone import held

CLUSTER = UUID("5d0f2f0e-0000-4000-8000-00000000beef")
ORDER = (BootDevice.DISK, BootDevice.NETWORK)


@dataclass
class MemoryMachines:
    """Machines that do what they are told, after `delay` seconds; `error` makes them fail."""

    service: BmcService | None = None
    delay: float = 0.0
    error: NospoonError | None = None
    told: list[tuple[UUID, PowerCommand, BootPlan]] = field(default_factory=list)
    orders: list[tuple[UUID, BootPlan]] = field(default_factory=list)
    keys: Sequence[KeyDatabase] = ()
    seen: dict[UUID, PowerState] = field(default_factory=dict)
    """What was observed last; a machine that is not in it is off."""

    def last(self, machine: UUID) -> MachineEvent:
        power = self.seen.get(machine, PowerState.OFF)
        return MachineEvent(machine, MachineChange.OBSERVED, power)

    async def power(self, machine: UUID, command: PowerCommand, boot: BootPlan) -> Outcome:
        self.told.append((machine, command, boot))
        await asyncio.sleep(self.delay)
        if self.error is not None:
            raise self.error
        change, power = _OUTCOMES[command]
        starts = command is PowerCommand.ON or power is PowerState.OFF
        if starts and self.last(machine).power is power:
            return Outcome.UNCHANGED
        self.report(machine, change, power)
        return Outcome.CHANGED

    async def set_boot(self, machine: UUID, boot: BootPlan) -> None:
        self.orders.append((machine, boot))

    async def key_databases(self, machine: UUID) -> Sequence[KeyDatabase]:
        del machine
        if self.error is not None:
            raise self.error
        return self.keys

    def report(
        self, machine: UUID, change: MachineChange, power: PowerState, why: str = ""
    ) -> None:
        """Tell the service an event."""
        self.seen[machine] = power
        assert self.service is not None
        self.service.machine_event(MachineEvent(machine, change, power, why))


@dataclass
class MemoryLine:
    """One who is attached: what is typed comes back in capitals."""

    consoles: MemoryConsoles
    queue: asyncio.Queue[bytes] = field(default_factory=asyncio.Queue)

    async def output(self) -> AsyncIterator[bytes]:
        while data := await self.queue.get():
            yield data

    async def write(self, data: bytes) -> None:
        self.consoles.typed += data
        self.consoles.say(data.upper())

    async def send_break(self) -> None:
        self.consoles.say(b"<break>")

    async def close(self) -> None:
        self.consoles.lines = [each for each in self.consoles.lines if each is not self]
        self.queue.put_nowait(b"")


@dataclass
class MemoryConsoles:
    """One console for all machines, that many may be attached to. `users`: whose it was."""

    lines: list[MemoryLine] = field(default_factory=list)
    users: list[int] = field(default_factory=list)
    typed: bytes = b""
    error: NospoonError | None = None
    gate: asyncio.Event | None = None
    attached: int = 0

    async def attach(self, machine: UUID, *, user: int) -> MemoryLine:
        """Waits for the gate, where there is one."""
        del machine
        self.users.append(user)
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        line = MemoryLine(self)
        self.lines.append(line)
        self.attached += 1
        return line

    def say(self, data: bytes) -> None:
        for line in self.lines:
            line.queue.put_nowait(data)


@dataclass
class MemoryMedia:
    """CD drives that remember; `gate`: insertions wait for it; `error`: they fail with it."""

    service: BmcService | None = None
    asked: list[tuple[UUID, str, str, str, bool]] = field(default_factory=list)
    fetched: list[tuple[str, str, str, bool]] = field(default_factory=list)
    gate: asyncio.Event | None = None
    error: NospoonError | None = None

    async def insert(
        self,
        machine: UUID,
        url: str,
        *,
        username: str = "",
        password: str = "",
        verify: bool = True,
    ) -> None:
        self.asked.append((machine, url, username, password, verify))
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        assert self.service is not None, "the bench sets it"
        await self.service.media_changed(machine, url)

    async def fetch(
        self,
        machine: UUID,
        url: str,
        *,
        username: str = "",
        password: str = "",
        verify: bool = True,
    ) -> str:
        del machine
        self.fetched.append((url, username, password, verify))
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        return hashlib.sha256(url.encode()).hexdigest()

    async def eject(self, machine: UUID) -> None:
        assert self.service is not None, "the bench sets it"
        await self.service.media_changed(machine, "")


_OUTCOMES = {
    PowerCommand.ON: (MachineChange.STARTED, PowerState.ON),
    PowerCommand.OFF: (MachineChange.STOPPED, PowerState.OFF),
    PowerCommand.CYCLE: (MachineChange.STARTED, PowerState.ON),
    PowerCommand.RESET: (MachineChange.RESET, PowerState.ON),
    PowerCommand.SOFT: (MachineChange.SHUTDOWN, PowerState.OFF),
    PowerCommand.DIAG: (MachineChange.OBSERVED, PowerState.ON),
}


@dataclass
class MemoryStore:
    """Remembers runtime state in the order in which it was saved, and none while it is `full`. What
    is asked while it hangs is done when it goes on, whether its caller waits still or not.
    """

    saved: list[tuple[UUID, Runtime]] = field(default_factory=list)
    records: list[tuple[UUID, Record]] = field(default_factory=list)
    event_settings: dict[tuple[str, str], EventSettings] = field(default_factory=dict)
    full: bool = False
    hung: list[tuple[UUID, Runtime]] | None = None
    """What waits for it, where it hangs."""

    async def save(self, machine: UUID, runtime: Runtime) -> None:
        await asyncio.sleep(0)
        if self.full:
            raise OSError("disk full")
        if self.hung is not None:
            self.hung.append((machine, runtime))
            await asyncio.Event().wait()
        self.saved.append((machine, runtime))

    def go_on(self) -> None:
        """What was asked of it while it hung is done, in that order."""
        self.saved += self.hung or ()
        self.hung = None

    def append(self, machine: UUID, record: Record) -> None:
        self.records.append((machine, record))

    def erase(self, machine: UUID, number: int | None) -> None:
        kept = (r for m, r in self.records if m == machine and number not in {None, r.number})
        rest = [(m, r) for m, r in self.records if m != machine]
        self.records = rest + [(machine, each) for each in kept]

    async def flush(self) -> None:
        """Nothing waits."""

    async def save_events(self, settings: EventSettings) -> None:
        await asyncio.sleep(0)
        self.event_settings[settings.key] = settings

    async def events(self) -> Sequence[EventSettings]:
        return list(self.event_settings.values())


@dataclass
class Bench:
    """A running service and its BMCs."""

    service: BmcService
    machines: MemoryMachines
    store: MemoryStore
    configs: Sequence[BmcConfig]
    consoles: MemoryConsoles
    media: MemoryMedia

    @property
    def first(self) -> BmcConfig:
        return self.configs[0]


PORTS_TRIED = 3


FREE_PORTS = range(2_100, 6_200)
"""Below nospoon's own defaults, those of racks, and those that the kernel gives to connections
(net.ipv4.ip_local_port_range).
"""
_given: list[int] = []
"""Descriptors that hold the names of ports which this process got."""


MOST_HELD = 100
"""Ports that are kept from other processes, the last that were given."""


def free_port(kind: socket.SocketKind) -> int:
    """A port that is free, and that no test of another process gets while this one runs."""
    for port in random.sample(FREE_PORTS, len(FREE_PORTS)):
        name = held(f"port-{kind.name}-{port}")
        if name is None:
            continue
        with socket.socket(socket.AF_INET, kind) as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            _given.append(name)
            if len(_given) > MOST_HELD:  # of tests that are long over
                os.close(_given.pop(0))
            return port
        os.close(name)
    raise AssertionError("no port is free")


def config(number: int, *, redfish_port: int, firmware: Firmware = Firmware.BIOS) -> BmcConfig:
    """The BMC of node `number` on loopback."""
    uuid = identity.node_uuid(CLUSTER, f"n{number}")
    machine = Machine(
        uuid=uuid,
        cpus=2,
        memory=3 << 29,
        arch=Arch.X86_64,
        firmware=firmware,
        tpm=False,
        disks=(),
        nics=(MachineNic(identity.mac_address(uuid, 0), "br0", "virtio"),),
        boot_order=ORDER,
        boot=BootMethod.NATIVE,
    )
    bmc = Bmc(
        uuid=uuid,
        protocols=tuple(BmcProtocol),
        address="127.0.0.1",
        ipmi_port=free_port(socket.SOCK_DGRAM),
        redfish_port=redfish_port,
        username="admin",
        credentials_key="k",
    )
    password = f"password-{number}"
    return BmcConfig(f"n{number}", "c", bmc, machine, password)


def endpoint(config: BmcConfig) -> tuple[str, int]:
    """Where this BMC answers Redfish."""
    return config.bmc.address, config.bmc.redfish_port


def with_disk(config: BmcConfig, size: int = 10 << 30) -> BmcConfig:
    """The same, with a disk of this many bytes."""
    disks = (MachineDisk("n-1", "virtio", "serial"),)
    return replace(
        config,
        machine=replace(config.machine, disks=disks),
        bmc=replace(config.bmc, disk_sizes=(size,)),
    )


@asynccontextmanager
async def bench(
    count: int = 2,
    *,
    firmware: Firmware = Firmware.BIOS,
    tls: Path | None = None,
    restart_seconds: float = 2.0,
) -> AsyncIterator[Bench]:
    """A service with `count` BMCs, for as long as it is needed. `tls`: where certificates are."""
    machines, store = MemoryMachines(), MemoryStore()
    port = free_port(socket.SOCK_STREAM)
    async with Tasks("bench") as tasks:
        consoles = MemoryConsoles()
        media = MemoryMedia()
        certificates = Certificates(tls) if tls is not None else None
        service = BmcService(
            machines,
            store,
            tasks,
            consoles=consoles,
            media=media,
            certificates=certificates,
            restart_seconds=restart_seconds,
        )
        machines.service = media.service = service
        configs: list[BmcConfig] = []
        try:
            for number in range(count):
                made = config(number, redfish_port=port, firmware=firmware)
                if tls is not None:
                    made = replace(made, bmc=replace(made.bmc, tls=True))
                configs.append(await _put(service, made))
            yield Bench(service, machines, store, configs, consoles, media)
        finally:
            await service.close()


async def _put(service: BmcService, config: BmcConfig) -> BmcConfig:
    """Serve a BMC. Tests beside this one may take its port since it was found: then at another."""
    for _ in range(PORTS_TRIED):
        try:
            await service.put(config)
        except ProviderError:
            found = free_port(socket.SOCK_DGRAM)
            config = replace(config, bmc=replace(config.bmc, ipmi_port=found))
        else:
            return config
    await service.put(config)
    return config
