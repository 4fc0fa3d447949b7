"""Serial over LAN with ipmitool, FreeIPMI and pyghmi, on a console that answers in capitals."""

from __future__ import annotations

import asyncio
import os
import pty
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from nospoon.errors import Conflict
from nospoon.runtime import process
from nospoon.runtime.tasks import Tasks
from nospoon.services.bmcs.ports import BmcConfig
from nospoon.testing.bench import Bench, bench
from nospoon.testing.own_network import own_network

pytestmark = pytest.mark.tools


def tool(config: BmcConfig, *argv: str) -> list[str]:
    where = ["-H", config.bmc.address, "-p", str(config.bmc.ipmi_port)]
    login = ["-U", "admin", "-P", config.password]
    return ["ipmitool", "-I", "lanplus", *where, *login, *argv]


def ipmiconsole(config: BmcConfig, *argv: str) -> list[str]:
    """It knows no other port than 623."""
    return ["ipmiconsole", "-h", config.bmc.address, "-u", "admin", "-p", config.password, *argv]


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, argv: list[str]) -> None:
        self.master, slave = pty.openpty()
        self.said = b""
        self.child = subprocess.Popen(argv, stdin=slave, stdout=slave, stderr=slave)
        os.close(slave)
        os.set_blocking(self.master, False)

    def type(self, data: bytes) -> None:
        os.write(self.master, data)

    async def until(self, what: bytes) -> None:
        """Wait until the program said this."""
        try:
            async with asyncio.timeout(60):
                while what not in self.said:
                    await self._readable()
                    self._read()
        except TimeoutError:
            pytest.fail(f"{what!r} was not said, but {self.said!r}")

    async def _readable(self) -> None:
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self.master, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self.master)

    def _read(self) -> None:
        try:
            data = os.read(self.master, 65536)
        except OSError:
            data = b""
        assert data, f"the program ended: {self.said!r}"
        self.said += data

    def close(self) -> None:
        self.child.kill()
        self.child.wait()
        os.close(self.master)


@asynccontextmanager
async def terminal(argv: list[str]) -> AsyncIterator[Terminal]:
    made = Terminal(argv)
    try:
        yield made
    finally:
        made.close()


async def until(so: Callable[[], bool]) -> None:
    """Wait for what the loop will do; no event tells it."""
    async with asyncio.timeout(60):
        while not so():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@pytest.fixture
def network() -> Iterator[None]:
    """Port 623 is free there, which another program may have on all addresses of this machine."""
    with own_network():
        yield


@asynccontextmanager
async def at_port_623(b: Bench) -> AsyncIterator[BmcConfig]:
    config = replace(b.first, bmc=replace(b.first.bmc, ipmi_port=623))
    await b.service.put(config)
    yield config


def is_free(b: Bench) -> bool:
    served = b.service.status(b.first.bmc.uuid)
    return served is not None and served.endpoint.sol is None and not b.consoles.lines


async def test_ipmitool_types_and_reads_and_lets_go() -> None:
    async with bench(1) as b:
        async with terminal(tool(b.first, "sol", "activate")) as at:
            await at.until(b"SOL Session operational")
            at.type(b"hello there\r")
            await at.until(b"HELLO THERE")
            b.consoles.say(b"line %d\r\n" * 500 + b"the end")
            await at.until(b"the end")
            assert at.said.count(b"line %d") == 500
            at.type(b"\r~B")
            await at.until(b"<break>")
            at.type(b"\r~.")
            await until(lambda: is_free(b))
        assert b.consoles.typed.startswith(
            b"hello there"
        )  # the end of line is the terminal's matter


async def test_a_second_session_is_refused_and_takes_over_after_a_deactivation() -> None:
    async with bench(1) as b, terminal(tool(b.first, "sol", "activate")) as first:
        await first.until(b"SOL Session operational")
        refused = await process.run(tool(b.first, "sol", "activate"), check=False, timeout=60)
        assert "SOL payload already active on another session" in refused.stdout + refused.stderr
        await process.run(tool(b.first, "sol", "deactivate"), timeout=60)
        await until(lambda: is_free(b))
        async with terminal(tool(b.first, "sol", "activate")) as second:
            await second.until(b"SOL Session operational")
            second.type(b"mine now\r")
            await second.until(b"MINE NOW")
        assert b"MINE" not in first.said


SLOW = 3.5
"""Seconds until a console of a slow host comes: clients ask again after one or two."""


async def test_ipmitool_gets_a_console_for_which_it_asked_several_times() -> None:
    async with bench(1) as b:
        b.consoles.gate = asyncio.Event()
        asyncio.get_running_loop().call_later(SLOW, b.consoles.gate.set)
        async with terminal(tool(b.first, "sol", "activate")) as at:
            await at.until(b"SOL Session operational")
            at.type(b"hello there\r")
            await at.until(b"HELLO THERE")
            assert len(b.consoles.lines) == 1
            at.type(b"\r~.")
            await until(lambda: is_free(b))


@pytest.mark.usefixtures("network")
async def test_ipmiconsole_gets_a_console_for_which_it_asked_several_times() -> None:
    async with bench(1) as b, at_port_623(b) as config:
        b.consoles.gate = asyncio.Event()
        asyncio.get_running_loop().call_later(SLOW, b.consoles.gate.set)
        async with terminal(ipmiconsole(config)) as at:
            await at.until(b"[SOL established]")
            at.type(b"hello there\r")
            await at.until(b"HELLO THERE")
            assert len(b.consoles.lines) == 1


@pytest.mark.usefixtures("network")
async def test_ipmiconsole_types_and_steals() -> None:
    async with bench(1) as b, at_port_623(b) as config, terminal(ipmiconsole(config)) as first:
        await first.until(b"[SOL established]")
        first.type(b"hello there\r")
        await first.until(b"HELLO THERE")
        async with terminal(ipmiconsole(config)) as second:
            await second.until(b"[SOL established]")
            second.type(b"stolen\r")
            await second.until(b"STOLEN")
            await first.until(b"[SOL session stolen]")
            second.type(b"&B")
            await second.until(b"<break>")
            second.type(b"&.")
            await until(lambda: is_free(b))


PYGHMI = """
import sys
from pyghmi.ipmi import console
host, port, password = sys.argv[1:]
said = b""
def hear(data):
    global said
    if isinstance(data, dict):
        print(data, flush=True)
        return
    said += data if isinstance(data, bytes) else data.encode()
    if b"HELLO" in said:
        print("heard", flush=True)
        done.append(True)
done = []
sol = console.Console(bmc=host, userid="admin", password=password, port=int(port), iohandler=hear)
while not sol.connected:
    sol.wait_for_rsp(timeout=5)
sol.send_data(b"hello")
while not done:
    sol.wait_for_rsp(timeout=5)
sol.close()
"""


async def test_pyghmi_types_and_reads(tmp_path: Path) -> None:
    script = tmp_path / "client.py"
    script.write_text(PYGHMI)
    async with bench(1) as b:
        bmc = b.first.bmc
        argv = [sys.executable, str(script), bmc.address, str(bmc.ipmi_port), b.first.password]
        done = await process.run(argv, check=False, timeout=60)
        assert "heard" in done.stdout, done.stdout + done.stderr
        await until(lambda: is_free(b))


async def test_a_console_that_somebody_else_has_is_refused() -> None:
    async with bench(1) as b:
        b.consoles.error = Conflict("virsh console has it")
        done = await process.run(tool(b.first, "sol", "activate"), check=False, timeout=60)
        assert done.status != 0
        assert is_free(b)


async def test_a_user_of_low_privilege_does_not_type() -> None:
    async with bench(1) as b:
        argv = tool(b.first, "-L", "USER", "sol", "activate")
        done = await process.run(argv, check=False, timeout=60)
        assert done.status != 0
        assert b.consoles.lines == []


async def test_a_bmc_that_is_removed_lets_go_of_the_console() -> None:
    async with bench(1) as b, terminal(tool(b.first, "sol", "activate")) as at:
        await at.until(b"SOL Session operational")
        await b.service.remove(b.first.bmc.uuid)
        await until(lambda: not b.consoles.lines)


async def test_a_session_that_ends_before_its_console_comes_keeps_nothing() -> None:
    async with bench(1) as b:
        b.consoles.gate = asyncio.Event()
        async with terminal(tool(b.first, "sol", "activate")):
            served = b.service.status(b.first.bmc.uuid)
            assert served is not None
            await until(lambda: served.endpoint.sol is not None)
            served.endpoint.close(None)
            b.consoles.gate.set()
            await until(lambda: b.consoles.attached == 1 and is_free(b))


async def test_an_activation_that_somebody_ends_before_its_console_comes_is_refused() -> None:
    activate = ["raw", "0x06", "0x48", "0x01", "0x01", "0xc0", "0", "0", "0"]
    async with bench(1) as b, Tasks("test") as tasks:
        b.consoles.gate = asyncio.Event()
        wanted = tool(b.first, "-N", "15", "-R", "1", *activate)
        waiting = tasks.start(process.run(wanted, check=False, timeout=60), name="activate")
        served = b.service.status(b.first.bmc.uuid)
        assert served is not None
        await until(lambda: served.endpoint.sol is not None)
        await process.run(tool(b.first, "sol", "deactivate"), timeout=60)
        b.consoles.gate.set()
        assert "rsp=0xd3" in (await waiting).stderr
        assert is_free(b)


async def test_sol_parameters_are_told() -> None:
    async with bench(1) as b:
        told = await process.run(tool(b.first, "sol", "info", "1"), timeout=60)
        assert "Enabled                         : true" in told.stdout
        assert "Volatile Bit Rate (kbps)        : 115.2" in told.stdout


async def test_serial_over_lan_that_is_off_activates_for_nobody() -> None:
    async with bench(1) as b:
        await process.run(tool(b.first, "sol", "set", "enabled", "false", "1"), timeout=60)
        refused = await process.run(tool(b.first, "sol", "activate"), check=False, timeout=60)
        assert refused.status != 0
        assert is_free(b)
        await process.run(tool(b.first, "sol", "set", "enabled", "true", "1"), timeout=60)
        async with terminal(tool(b.first, "sol", "activate")):
            served = b.service.status(b.first.bmc.uuid)
            assert served is not None
            await until(lambda: served.endpoint.sol is not None)
