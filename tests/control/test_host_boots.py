"""Which boot a host is in reaches the BMCs of its machines, unless it shuts down."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence, Sized
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from nospoon.control.fleet.host_boots import HostBoots
from nospoon.control.fleet.hosts import Hosts
from nospoon.errors import ProviderError
from nospoon.model.cluster import Host
from nospoon.model.connections import Libvirt
from nospoon.model.machine import MachineChange, MachineEvent, PowerState
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.networks import Link
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.simulated.connection import SimulatedConnection
from nospoon.runtime import boots
from nospoon.runtime.tasks import Tasks

HERE = Host("here", Libvirt("qemu:///system"))
LINK = Link(name="ns0-lan")
TAG = OwnerTag("deployment", uuid4(), 1, "token")
ELSEWHERE = Host("elsewhere", Libvirt("qemu+tls://rack2/system"))


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What systemd says here is the content of this file."""
    state, program = tmp_path / "state", tmp_path / "systemctl"
    state.write_text("running\n")
    program.write_text(f'#!/bin/sh\n[ "$*" = is-system-running ] && cat {state}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return state


class Networks:
    """Two networks of this host that ended with its former boot, one that runs, and one of another
    host that is at fault. The first cannot be started.
    """

    kind = Kind.NETWORK

    def __init__(self, told: Sized) -> None:
        self._told, self.made = told, list[tuple[str, OwnerTag, int]]()
        self.away = False

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        assert cluster is None
        if self.away:
            raise ProviderError("networks cannot be listed")
        return [
            Observed(Key(self.kind, host, name), LINK, TAG, fault=fault)
            for host, name, fault in (
                ("here", "fails", "the network is not started"),
                ("here", "lan", "the network is not started"),
                ("here", "runs", ""),
                ("elsewhere", "other", "the network is not started"),
            )
        ]

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        self.made.append((resource.key.name, tag, len(self._told)))
        if resource.key.name == "fails":
            raise ProviderError("cannot be started")

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        raise AssertionError(observed, desired, tag)

    async def delete(self, observed: Observed) -> None:
        raise AssertionError(observed)


class Told:
    """What BMCs were told, machine by machine."""

    def __init__(self, tasks: Tasks, sockets: Path) -> None:
        self.changed, self.told = asyncio.Event(), list[tuple[UUID, str]]()
        self.hosts = Hosts(
            lambda host: SimulatedConnection(host.name, "deployment", lambda: 0.0),
            tasks,
            lambda _: None,
            sockets=sockets,
        )
        self.networks = Networks(self.told)
        self.known = boots.here()
        self.boots = HostBoots(
            self.hosts,
            tasks,
            self.tell,
            is_new=lambda _, boot: boot != self.known,
            drivers_of=lambda _: {Kind.NETWORK: self.networks},
        )

    def tell(self, machine: UUID, boot: str) -> None:
        self.told.append((machine, boot))
        self.changed.set()

    def machine(self, host: Host) -> UUID:
        made = uuid4()
        self.hosts.settle(made, host)
        return made

    def saw(self, machine: UUID, power: PowerState, *, change: MachineChange) -> None:
        self.boots.note(MachineEvent(machine, change, power))

    async def until(self, *machines: UUID) -> None:
        async with asyncio.timeout(30):
            while {machine for machine, _ in self.told} != set(machines):
                self.changed.clear()
                await self.changed.wait()


@pytest.fixture
async def bmcs(tmp_path: Path) -> AsyncIterator[Told]:
    async with Tasks("test") as tasks:
        yield Told(tasks, tmp_path)


@pytest.mark.usefixtures("systemctl")
async def test_those_that_were_looked_at_or_went_off_are_told_once_all_are_served(
    bmcs: Told,
) -> None:
    seen, off, runs, elsewhere = (
        bmcs.machine(host) for host in (HERE, HERE, HERE, ELSEWHERE)
    )  # fmt: skip
    bmcs.saw(uuid4(), PowerState.OFF, change=MachineChange.OBSERVED)  # nobody knows it
    bmcs.saw(elsewhere, PowerState.OFF, change=MachineChange.OBSERVED)
    bmcs.saw(seen, PowerState.ON, change=MachineChange.OBSERVED)
    bmcs.saw(runs, PowerState.ON, change=MachineChange.RESET)
    assert not bmcs.told
    bmcs.boots.begin()
    await bmcs.until(seen)
    bmcs.saw(off, PowerState.OFF, change=MachineChange.SHUTDOWN)
    await bmcs.until(seen, off)
    assert bmcs.told == [(seen, boots.here()), (off, boots.here())]


async def test_a_host_that_shuts_down_confirms_nothing(bmcs: Told, systemctl: Path) -> None:
    stopped, later = bmcs.machine(HERE), bmcs.machine(HERE)
    bmcs.boots.begin()
    systemctl.write_text("stopping\n")
    assert not await boots.steady(bmcs.hosts.host_of(stopped).runner)
    bmcs.saw(stopped, PowerState.OFF, change=MachineChange.SHUTDOWN)
    asked = [task for task in asyncio.all_tasks() if "confirm the boot" in task.get_name()]
    assert asked
    await asyncio.wait(asked)
    systemctl.write_text("running\n")
    bmcs.saw(later, PowerState.OFF, change=MachineChange.STOPPED)
    await bmcs.until(later)


@pytest.mark.usefixtures("systemctl")
async def test_networks_start_again_after_a_reboot_before_bmcs_know_of_it(bmcs: Told) -> None:
    bmcs.known = "the boot before"
    machine = bmcs.machine(HERE)
    bmcs.saw(machine, PowerState.OFF, change=MachineChange.OBSERVED)
    bmcs.boots.begin()
    await bmcs.until(machine)
    assert bmcs.networks.made == [("fails", TAG, 0), ("lan", TAG, 0)]


@pytest.mark.usefixtures("systemctl")
async def test_networks_that_a_person_stopped_are_not_started_in_the_same_boot(bmcs: Told) -> None:
    machine = bmcs.machine(HERE)
    bmcs.saw(machine, PowerState.OFF, change=MachineChange.OBSERVED)
    bmcs.boots.begin()
    await bmcs.until(machine)
    assert not bmcs.networks.made


@pytest.mark.usefixtures("systemctl")
async def test_networks_that_cannot_be_looked_at_keep_no_bmc_from_hearing_of_the_boot(
    bmcs: Told,
) -> None:
    bmcs.known, bmcs.networks.away = "the former boot", True
    machine = bmcs.machine(HERE)
    bmcs.saw(machine, PowerState.OFF, change=MachineChange.OBSERVED)
    bmcs.boots.begin()
    await bmcs.until(machine)
    assert not bmcs.networks.made
