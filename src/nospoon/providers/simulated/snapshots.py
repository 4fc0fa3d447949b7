"""Snapshots of simulated machines: which disk of theirs kept what, and what was booted from it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from nospoon.errors import Gone, ProviderError
from nospoon.model.machine import KeptState, PowerState
from nospoon.model.resources.machines import Machine
from nospoon.providers.simulated.surroundings import Surroundings
from nospoon.providers.simulated.world import Kept


@dataclass(frozen=True, slots=True)
class SimulatedSnapshots:
    """As `DiskSnapshots`. Firmware has no variables here."""

    around: Surroundings

    async def refusal(self, machine: UUID) -> str:
        self.around.begin("look for what is in the way")
        self.around.state(machine)
        return ""

    async def pause(self, machine: UUID) -> bool:
        self.around.begin("pause")
        state = self.around.state(machine)
        state.paused = state.power is PowerState.ON
        return state.paused

    async def resume(self, machine: UUID) -> None:
        self.around.begin("resume")
        self.around.state(machine).paused = False

    async def create(self, machine: UUID, name: str) -> None:
        self.around.begin("take snapshot")
        state = self.around.state(machine)
        if state.power is PowerState.ON and not state.paused:
            raise ProviderError(f"machine {machine} was resumed by other means")
        await asyncio.sleep(self.around.simulation.make)
        on = state.power is PowerState.ON
        now, disks = self.around.clock(), self._disks(machine)
        state.kept[name] = Kept(state.booted, state.boots, state.image, now, on, disks)
        self.around.world.version += 1

    async def list(self, machine: UUID) -> Mapping[str, Mapping[str, KeptState]]:
        self.around.begin("list snapshots")
        kept = self.around.state(machine).kept
        return {
            disk: {
                name: KeptState(each.at, each.on)
                for name, each in kept.items()
                if disk in each.disks
            }
            for disk in self._disks(machine)
        }

    async def blocker(self, machine: UUID, name: str) -> str:  # noqa: ARG002  (any state can be restored)
        self.around.begin("look for blockers")
        self.around.state(machine)
        return ""

    async def restore(self, machine: UUID, name: str) -> None:
        self.around.begin("restore snapshot")
        state = self.around.state(machine)
        if state.power is PowerState.ON:
            raise ProviderError(f"machine {machine} runs: its snapshot cannot be restored")
        if name not in state.kept:
            raise Gone(f"machine {machine} has no state {name}")
        kept = state.kept[name]
        state.booted, state.boots, state.image = kept.booted, kept.boots, kept.image
        self.around.world.version += 1

    async def delete(self, machine: UUID, name: str) -> None:
        self.around.begin("delete snapshot")
        self.around.state(machine).kept.pop(name, None)
        self.around.world.version += 1

    def _disks(self, machine: UUID) -> tuple[str, ...]:
        made = self.around.made(machine)
        assert made is not None, "a machine that has a state was made"
        assert isinstance(made.shape, Machine), "machine keys have machine shapes"
        return tuple(disk.volume for disk in made.shape.disks if not disk.existing)
