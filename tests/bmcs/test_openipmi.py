"""OpenIPMI's shell, whose library keeps a whole domain of controllers, entities and sensors."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from nospoon.model.machine import PowerCommand
from nospoon.testing.bench import Bench, bench

pytestmark = pytest.mark.tools


class Shell:
    """An `ipmish` that knows the BMC as the domain `d`."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def tell(self, command: str, *, until: str) -> str:
        """What it prints after a command, up to a line that contains `until`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\n".encode())
        told = ""
        async with asyncio.timeout(60):
            while until not in told:
                line = await self._process.stdout.readline()
                assert line, told
                told += line.decode(errors="replace")
        return told


@asynccontextmanager
async def shell(b: Bench) -> AsyncIterator[Shell]:
    bmc = b.first.bmc
    process = await asyncio.create_subprocess_exec("ipmish", stdin=PIPE, stdout=PIPE, stderr=STDOUT)
    opened = Shell(process)
    where = f"-p {bmc.ipmi_port} -U {bmc.username} -P {b.first.password} {bmc.address}"
    try:
        await opened.tell(f"domain open d -all lan -A rmcp+ {where}", until="Domain fully up")
        yield opened
    finally:
        process.kill()
        await process.communicate()


async def test_openipmi_finds_everything_and_switches_the_machine() -> None:
    async with bench(1) as b, shell(b) as opened:
        found = await opened.tell("entity list d", until="Name: d(23.1)")
        assert "Name: d(3.1)" in found
        assert "CPU Temp" in await opened.tell("sensor list d(3.1)", until="CPU Temp")
        told = await opened.tell('sensor get "d(3.1).CPU Temp"', until="non-recoverable")
        assert "Raw Value: 0x" in told
        await opened.tell("control set d(23.1).power 1", until="Set done")
        assert [command for _, command, _ in b.machines.told] == [PowerCommand.ON]
        await opened.tell("sel list d", until="Record ID: 1")
        await opened.tell("control set d(23.1).reset 1", until="Set done")
        assert b.machines.told[-1][1] is PowerCommand.RESET
