"""Simulated machines: power, boot order, console and events, without a guest behind them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import SystemRandom
from uuid import UUID

import msgspec

from nospoon.errors import Gone, ProviderError
from nospoon.model.boot import BootDevice, BootPlan
from nospoon.model.machine import MachineChange, MachineEvent, Outcome, PowerCommand, PowerState
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Observed, Resource, Shape
from nospoon.model.resources.tags import OwnerTag
from nospoon.model.secure_boot import KeyDatabase
from nospoon.probe.record import frame
from nospoon.providers.base import Medium
from nospoon.providers.recorder import Recorder, RecordSpace
from nospoon.providers.simulated import media, strangers
from nospoon.providers.simulated.console import SerialPort, SimulatedConsole
from nospoon.providers.simulated.drivers import SimulatedDriver
from nospoon.providers.simulated.guests import Guest, hardware, record
from nospoon.providers.simulated.snapshots import SimulatedSnapshots
from nospoon.providers.simulated.surroundings import Surroundings
from nospoon.providers.simulated.world import Made, Running
from nospoon.runtime.paced import paced
from nospoon.runtime.tasks import Tasks

RAMDISKS = frozenset({BootDevice.NETWORK, BootDevice.HTTP, BootDevice.CDROM})
"""From where machines boot what is not theirs."""


class SimulatedMachines(SimulatedDriver):
    """The machine driver. Its guests do what real ones do: say what they boot, and shut down."""

    def __init__(
        self,
        around: Surroundings,
        records: Path | None,
        record_space: RecordSpace | None = None,
        *,
        resumes: bool = False,
    ) -> None:
        super().__init__(Kind.MACHINE, around)
        self._ports: dict[UUID, SerialPort] = {}
        self._chance = SystemRandom()
        self._tasks = Tasks(f"simulated {around.host}")
        self._recorder = Recorder(records, self._tasks, record_space)
        self.snapshots = SimulatedSnapshots(around)
        self._resumes = resumes

    @property
    def boot_order(self) -> SimulatedMachines:
        return self

    @property
    def drives(self) -> SimulatedMachines:
        return self

    @property
    def firmware_keys(self) -> SimulatedMachines:
        return self

    @property
    def adoption(self) -> SimulatedMachines:
        return self

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        known = self.around.world.find(resource) is not None
        await super().create(resource, tag)
        if not known and isinstance(resource.shape, Machine):
            self._publish(resource.shape.uuid, MachineChange.DEFINED)

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        if isinstance(desired.shape, Machine) and desired.shape.adopted:
            await self.claim(desired, tag)
            return
        before = self.around.world.find(Resource(observed.key, observed.shape))
        await super().change(observed, desired, tag)
        if before is None or not isinstance(before.shape, Machine):
            return
        state = self.around.state(before.shape.uuid)
        if state.power is PowerState.ON and isinstance(desired.shape, Machine):
            state.live = _differing(state.live or before.shape, desired.shape)

    async def claim(self, resource: Resource, tag: OwnerTag) -> None:
        self.around.begin(f"claim {resource.key}")
        strangers.claim(self.around, resource, tag)
        assert isinstance(resource.shape, Machine)
        self._publish(resource.shape.uuid, MachineChange.OBSERVED)

    async def release(self, observed: Observed) -> None:
        self.around.begin(f"release {observed.key}")
        strangers.release(self.around, observed)

    async def delete(self, observed: Observed) -> None:
        if isinstance(observed.shape, Machine) and observed.shape.adopted:
            await self.release(observed)
            return
        known = self.around.world.find(Resource(observed.key, observed.shape)) is not None
        await super().delete(observed)
        if known and isinstance(observed.shape, Machine):
            self._ports.pop(observed.shape.uuid, None)
            self._end_guest(observed.shape.uuid)
            self._publish(observed.shape.uuid, MachineChange.UNDEFINED)

    async def power(self, machine: UUID, command: PowerCommand, boot: BootPlan) -> Outcome:
        """What the machine says at it is in its record when this returns, if the disk has space."""
        outcome = await self._power(machine, command, boot)
        await self._recorder.tried()
        return outcome

    async def _power(self, machine: UUID, command: PowerCommand, boot: BootPlan) -> Outcome:
        self.around.begin(f"power {command}")
        state = self.around.state(machine)
        if self._chance.random() < self.around.simulation.power_failures:
            raise ProviderError(f"machine {machine}: {command}: a simulated failure")
        on = state.power is PowerState.ON
        match command, on:
            case (PowerCommand.ON, True) | (PowerCommand.OFF | PowerCommand.SOFT, False):
                was_paused, state.paused = state.paused, False
                return Outcome.CONTINUED if was_paused else Outcome.UNCHANGED
            case (PowerCommand.ON | PowerCommand.CYCLE, False):
                await self._start(machine, boot)
            case (PowerCommand.OFF, True):
                await self._stop(machine)
            case (PowerCommand.CYCLE, True):
                await self._stop(machine)
                await self._start(machine, boot)
            case (PowerCommand.RESET, True):
                self._boot(machine, boot)
                self._publish(machine, MachineChange.RESET)
            case (PowerCommand.SOFT, True):
                self._tasks.start(self._shut_down(machine), name=f"shut down {machine}")
            case (PowerCommand.DIAG, True):
                self._port(machine).say(b"NMI received\r\n")
            case _:
                raise ProviderError(f"machine {machine} is off: it cannot do {command}")
        return Outcome.CHANGED

    async def set_boot(self, machine: UUID, boot: BootPlan) -> None:
        self.around.begin("set_boot")
        state = self.around.state(machine)
        if state.power is PowerState.ON:
            state.next, state.after = boot.now, boot.after

    async def insert(self, machine: UUID, medium: Medium) -> None:
        self.around.begin("insert")
        state = self.around.state(machine)
        if self.around.simulation.agents is not None:
            state.cmdline = await asyncio.to_thread(media.cmdline, Path(medium.path))
        state.medium = medium.sha256

    async def eject(self, machine: UUID) -> None:
        self.around.begin("eject")
        state = self.around.state(machine)
        state.medium = state.cmdline = ""

    async def key_databases(self, machine: UUID) -> Sequence[KeyDatabase]:
        """There is no firmware that trusts anybody."""
        self.around.begin("key_databases")
        self.around.state(machine)
        return ()

    async def machines(self) -> Sequence[MachineEvent]:
        self.around.begin("machines")
        return [
            self._event(uuid, MachineChange.OBSERVED)
            async for uuid in paced(list(self.around.world.running))
            if self._watched(uuid)
        ]

    async def watch(self) -> AsyncIterator[MachineEvent]:
        with self.around.feed.listen() as queue:
            if self._resumes:
                self._resumes = False
                self._resume()
            for event in [self._event(uuid, MachineChange.OBSERVED) for uuid in self._uuids()]:
                yield event
            while True:
                yield await queue.get()

    async def console(self, machine: UUID) -> SimulatedConsole:
        self.around.begin("console")
        self.around.state(machine)
        return self._port(machine).open()

    def console_record(self, machine: UUID) -> str:
        """Path of the record; "" when this connection was given no directory for records."""
        return str(self._recorder.path(machine) or "")

    async def close(self) -> None:
        await self._recorder.tried()
        await self._tasks.close()
        self._recorder.close()

    def reset_by_guest(self, machine: UUID) -> None:
        """What happens when the guest reboots by itself: it follows what it was told last."""
        state = self.around.world.running.get(machine)
        if state is not None and state.power is PowerState.ON:
            self._boot(machine, BootPlan(state.next, state.after))
            self._publish(machine, MachineChange.RESET)

    def power_off_by_guest(self, machine: UUID) -> None:
        """What happens when the guest shuts down by itself."""
        self._guest_ended(machine)

    def boot_disk(self, machine: UUID) -> None:
        """What happens when what was booted leads on to the disk."""
        state = self.around.world.running.get(machine)
        if state is not None and state.power is PowerState.ON:
            state.booted = BootDevice.DISK
            self._say_boot(machine, state)

    def say(self, machine: UUID, text: str) -> None:
        if machine in self.around.world.running:
            self._port(machine).say(f"{text}\r\n".encode())

    def write(self, machine: UUID, image: str) -> None:
        state = self.around.world.running.get(machine)
        if state is not None:
            state.image = image
            self.around.world.version += 1

    def fail(self, machine: UUID, reason: str) -> None:
        """What happens when the hypervisor stops a machine."""
        self.around.state(machine).power = PowerState.FAILED
        self._end_guest(machine)
        self._publish(machine, MachineChange.FAILED, reason)

    def lose(self, machine: UUID) -> None:
        """What happens when someone removes a machine behind our back."""
        made = self.around.made(machine)
        if made is None:
            raise Gone(f"no machine {machine}")
        self.around.world.take_away(made)
        self._end_guest(machine)
        self._publish(machine, MachineChange.UNDEFINED)

    def set_reachable(self, *, reachable: bool) -> None:
        """What happens when the host goes away and comes back."""
        self.around.reachable = reachable
        for uuid in self._uuids():
            change = MachineChange.OBSERVED if reachable else MachineChange.UNREACHABLE
            self.around.feed.publish(self._event(uuid, change))

    def booted(self, machine: UUID) -> BootDevice | None:
        """What the machine booted last."""
        return self.around.state(machine).booted

    def _is_running(self, made: Made) -> bool:
        if not isinstance(made.shape, Machine):
            return False
        state = self.around.world.running.get(made.shape.uuid)  # None: removed meanwhile
        return state is not None and state.power is PowerState.ON

    def _live(self, made: Made) -> Shape | None:
        if not isinstance(made.shape, Machine):
            return None
        state = self.around.world.running.get(made.shape.uuid)
        return _differing(state.live, made.shape) if state is not None else None

    async def _start(self, machine: UUID, boot: BootPlan) -> None:
        await asyncio.sleep(self.around.simulation.power_on)
        state = self.around.state(machine)
        state.power, state.live = PowerState.ON, None
        self._boot(machine, boot)
        self._publish(machine, MachineChange.STARTED)

    async def _stop(self, machine: UUID) -> None:
        await asyncio.sleep(self.around.simulation.power_off)
        state = self.around.state(machine)
        state.power, state.live = PowerState.OFF, None
        self._end_guest(machine)
        self._publish(machine, MachineChange.STOPPED)

    async def _shut_down(self, machine: UUID) -> None:
        await asyncio.sleep(self.around.simulation.shut_down)
        self._guest_ended(machine)

    def _guest_ended(self, machine: UUID) -> None:
        state = self.around.world.running.get(machine)
        if state is not None and state.power is PowerState.ON:
            state.power, state.live = PowerState.OFF, None
            self._end_guest(machine)
            self._publish(machine, MachineChange.SHUTDOWN)

    def _boot(self, machine: UUID, boot: BootPlan) -> None:
        self._end_guest(machine)
        state = self.around.state(machine)
        ready = [each for each in boot.now if each is not BootDevice.CDROM or state.medium]
        state.booted = ready[0] if ready else None
        state.next = state.after = boot.after
        state.boots += 1
        self._say_boot(machine, state)
        how = self.around.simulation
        loop = asyncio.get_running_loop()
        if how.console:
            loop.call_later(how.boot, self._speak, machine, state.boots, how.console)
        if state.booted is BootDevice.NETWORK and self.around.is_probed(machine):
            loop.call_later(how.boot, self._run_probe, machine, state.boots)
        elif how.agents is not None and state.booted in RAMDISKS:
            loop.call_later(how.boot, self._begin_guest, machine, state.boots)

    def _resume(self) -> None:
        """Ramdisks that an earlier daemon left boot again. One that had not asked its API yet goes
        on from there, as if its boot took longer; of others that booted from the network Ironic
        refuses a second token, so that they give up. A medium brings its own token.
        """
        how = self.around.simulation
        for machine in self._uuids() if how.agents is not None else ():
            state = self.around.state(machine)
            if state.power is PowerState.ON and state.booted in RAMDISKS:
                loop = asyncio.get_running_loop()
                loop.call_later(how.boot, self._begin_guest, machine, state.boots)

    def _say_boot(self, machine: UUID, state: Running) -> None:
        what = f": {state.image}" if state.booted is BootDevice.DISK and state.image else ""
        self.say(machine, f"simulated machine {machine}: boots {state.booted}{what}")

    def _speak(self, machine: UUID, boot: int, text: str) -> None:
        """The guest of this boot is up."""
        if self._still(machine, boot):
            self._port(machine).say(text.encode())

    def _run_probe(self, machine: UUID, boot: int) -> None:
        """The probe of this boot reports on the console what the machine has."""
        made = self.around.made(machine)
        if made is None or not isinstance(made.shape, Machine) or not self._still(machine, boot):
            return
        found = record(self.around.state(machine).live or made.shape, self.around.world)
        self._port(machine).say(frame(msgspec.json.encode(found)))

    def _begin_guest(self, machine: UUID, boot: int) -> None:
        """The ramdisk of this boot is up."""
        made, how = self.around.made(machine), self.around.simulation.agents
        if self.around.guests is None or how is None or made is None:
            return
        if not isinstance(made.shape, Machine) or not self._still(machine, boot):
            return
        state = self.around.state(machine)
        medium = state.booted is BootDevice.CDROM
        guest = Guest(
            machine,
            hardware(state.live or made.shape, self.around.world, medium=medium),
            how,
            hands=self,
            image=state.image,
            cmdline=state.cmdline if medium else None,
        )
        self.around.guests.booted(guest)

    def _still(self, machine: UUID, boot: int) -> bool:
        """Whether it runs on since this boot: nothing came between."""
        state = self.around.world.running.get(machine)
        return state is not None and state.power is PowerState.ON and state.boots == boot

    def _end_guest(self, machine: UUID) -> None:
        if self.around.guests is not None:
            self.around.guests.ended(machine)

    def _uuids(self) -> list[UUID]:
        return [uuid for uuid in self.around.world.running if self._watched(uuid)]

    def _watched(self, machine: UUID) -> bool:
        made = self.around.made(machine)
        return made is not None and self._is_ours(made)

    def _port(self, machine: UUID) -> SerialPort:
        if machine not in self._ports:
            made = self.around.made(machine)
            user = made.tag.uid if made is not None and made.tag is not None else None
            self._ports[machine] = SerialPort(machine, self._recorder, user)
        return self._ports[machine]

    def _publish(self, machine: UUID, change: MachineChange, reason: str = "") -> None:
        self.around.world.version += 1
        self.around.feed.publish(self._event(machine, change, reason))

    def _event(self, machine: UUID, change: MachineChange, reason: str = "") -> MachineEvent:
        state = self.around.world.running.get(machine)
        power = state.power if state is not None else PowerState.ABSENT
        if change is MachineChange.UNREACHABLE:
            power = PowerState.UNKNOWN
        return MachineEvent(machine, change, power, reason)


def _differing(live: Machine | None, shape: Machine) -> Machine | None:
    """What runs, where it is not as defined; of boot order a running machine is told."""
    if live is None or replace(live, boot_order=shape.boot_order) == shape:
        return None
    return replace(live, boot_order=shape.boot_order)
