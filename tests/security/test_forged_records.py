"""A guest that writes records to its console does not speak for the probe that `verify` boots."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import msgspec

from nospoon.control.operations.verify import Verifier, _first_record
from nospoon.model.cluster import Arch
from nospoon.model.machine import PowerCommand, PowerState
from nospoon.probe.build import Probe, command_line
from nospoon.probe.record import Record, frame
from nospoon.services.netboot.ports import ServedProfile

MACHINE = UUID(int=7)


def said(cmdline: str, cpus: int) -> bytes:
    """A record as it stands on the console."""
    secure_boot = tpm = False
    record = Record(
        1, str(MACHINE), "", "", "", "x86_64", "bios", secure_boot, tpm, cpus, 1, 1, 1, (), (), "",
        1.0, cmdline,
    )  # fmt: skip
    return frame(msgspec.json.encode(record))


async def test_only_the_record_of_this_run_counts() -> None:
    async def console() -> AsyncIterator[bytes]:
        yield said(command_line(Arch.X86_64), 64)
        yield said(command_line(Arch.X86_64, run="of-before"), 64)
        yield said(command_line(Arch.X86_64, run="this"), 2)

    assert (await _first_record(console(), "this")).cpus == 2


@dataclass
class Rack:
    """One machine that is on, all that a verifier asks of others, and in which order."""

    power: PowerState = PowerState.ON
    done: list[str] = field(default_factory=list)
    profile: ServedProfile | None = None

    def last(self, machine: UUID) -> Any:
        del machine
        return SimpleNamespace(power=self.power)

    async def until(self, machine: UUID, power: PowerState) -> None:
        del machine
        assert self.power is power

    async def size(self, machine: UUID, *, user: int) -> int:
        del machine, user
        self.done.append("console")
        return 0

    def probe(
        self, machine: UUID, profile: ServedProfile, token: str
    ) -> asyncio.Future[Mapping[str, Any]]:
        del machine, token
        self.profile = profile
        return asyncio.get_running_loop().create_future()

    async def publish(self, *machines: UUID) -> None:
        del machines
        self.done.append("publish")

    async def set_override(self, machine: UUID, override: object) -> None:
        del machine, override

    async def power_(self, machine: UUID, command: PowerCommand) -> str:
        del machine
        self.done.append(str(command))
        self.power = PowerState.OFF if command is PowerCommand.OFF else PowerState.ON
        return "done"

    async def read(
        self, machine: UUID, *, follow: bool, offset: int, user: int
    ) -> AsyncIterator[bytes]:
        del machine, follow, offset, user
        assert self.profile is not None
        yield said("", 64)
        yield said(self.profile.cmdline, 2)


async def test_a_guest_is_off_before_its_probe_is_published() -> None:
    """It may fetch its own boot script, and would know what makes a record the probe's."""
    rack = Rack()
    bmcs = SimpleNamespace(power=rack.power_, set_override=rack.set_override)
    authority: Any = rack
    verifier = Verifier(
        hosts=cast("Any", rack), bmcs=cast("Any", bmcs), authority=authority,
        consoles=cast("Any", rack), build_probe=cast("Any", None), publish=rack.publish,
        clock=lambda: 0.0,
    )  # fmt: skip
    machine = SimpleNamespace(arch=Arch.X86_64, ipv6=False)
    member = SimpleNamespace(uuid=MACHINE, path="c/n", machine=machine, owner=0)
    probe = cast("Probe", SimpleNamespace(kernel="/k", initrd="/i"))
    record = await verifier._boot(cast("Any", member), probe)
    assert record.cpus == 2
    assert rack.done == ["off", "console", "publish", "on"]
