"""A guest that reboots has no init for a while: with Docker Engine for longer than a look takes to
come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

from nospoon.model.boot import BootMethod
from nospoon.model.cluster import Arch, Firmware, Host
from nospoon.model.connections import Docker
from nospoon.model.machine import MachineChange
from nospoon.model.node_kind import NodeKind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.containers.records import record
from nospoon.providers.docker import DockerConnection
from nospoon.runtime.process import Finished

MACHINE = UUID(int=1)
TAG = OwnerTag("kit", UUID(int=2))


class Scripted:
    """A host on which one container is, with these processes: its keeper and its init."""

    def __init__(self) -> None:
        self.runs = "7 8"

    async def run(
        self, argv: Sequence[str], *, stdin: bytes | None = None, check: bool = True
    ) -> Finished:
        del stdin, check
        shape = Machine(
            MACHINE, 1, 1 << 24, Arch.X86_64, Firmware.BIOS, tpm=False,
            disks=(), nics=(), boot_order=(), boot=BootMethod.NONE, kind=NodeKind.CONTAINER,
        )  # fmt: skip
        text = f"record pool/m/machine.json {record('m', TAG, shape).decode()}\n"
        runs = f"runs pool/m {self.runs}\n" if self.runs else ""
        return Finished(tuple(argv), 0, text + runs, "")


async def test_a_reboot_is_a_reset_though_a_look_finds_no_init_in_between() -> None:
    runner, host = Scripted(), Host("here:docker", Docker("/engine.sock"))

    async def open_image(sha256: str) -> str:
        raise AssertionError(sha256)

    connection = DockerConnection(host, "kit", runner, open_image, root="/pools", records="/r")
    driver, events = connection.machine_driver, connection.machine_driver.watch()
    seen = [(await anext(events)).change]
    for runner.runs in ("7 0", "7 9", ""):
        await driver._look()
    async with asyncio.timeout(60):
        while seen[-1] is not MachineChange.SHUTDOWN:
            seen.append((await anext(events)).change)
    assert [each for each in seen if each is not MachineChange.OBSERVED] == [
        MachineChange.RESET, MachineChange.SHUTDOWN,
    ]  # fmt: skip
    await connection.close()
