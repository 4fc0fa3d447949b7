"""Serial over LAN (IPMI 2.0 §15) of registered machines by ipmitool: one session.

ipmitool writes the console to its output and why it ends to its errors. It ends with its input,
and then gives the console back to the BMC. A BMC of a member's choice may say anything at any
rate: what is not read stays in a pipe, behind which ipmitool waits and the BMC's packets are lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from nospoon.control.labs.bmcs import ipmitool
from nospoon.model.lab import Registered
from nospoon.runtime import process
from nospoon.runtime.tasks import Tasks

GREETING = b"[SOL Session operational"
MOST_GREETING, MOST_ERRORS, MOST_SHOWN = 4096, 64 << 10, 200
"""Bytes before the greeting's end, and of errors, at which ipmitool is ended; characters shown."""
OPENING = 60.0
"""Seconds until a session is there. ipmitool asks a BMC that is silent for 20."""
PIECE, PAUSE = 8 << 10, 0.05
"""Bytes of console that are taken at a time, and seconds until the next: 160 KiB a second. A serial
line of 921,600 bits a second has 90.
"""
ENDING = 5.0
"""Seconds for ipmitool to give the console back."""
LINGERING = 5.0
"""Seconds for it to end once it writes nothing more."""
TERMINAL = "tcgetattr:"
"""What it says of an output that is no terminal (perror(3))."""
SILENT = "No response to keepalive"
"""What it says of a BMC that is gone, or whose console another session has now."""

Took = Callable[[bytes], Awaitable[None]]


async def deactivate(machine: Registered, *, user: str) -> None:
    """End the session that has the console, if one does. Raises `ProviderError` for a BMC that does
    not answer in time.
    """
    argv, env = ipmitool(machine, "sol", "deactivate", user=user)
    await process.run(argv, env=env, timeout=OPENING, check=False, most=MOST_ERRORS)


async def attend(
    machine: Registered,
    *,
    user: str,
    took: Took,
    opened: Callable[[], Awaitable[None]],
    keepalive: str,
) -> str:
    """Give `took` what a machine says until the session ends. Returns why it ended; `opened` is
    called when it begins. `user`: who runs ipmitool. `keepalive`: `usesolkeepalive` notices a
    session that another one ended, "" is for BMCs that do not acknowledge packets without
    characters. Raises `ProviderError`.
    """
    argv, env = ipmitool(machine, "sol", "activate", *filter(None, [keepalive]), user=user)
    async with _running(argv, env) as piped, Tasks("serial over LAN") as tasks:
        errors = tasks.start(piped.errors(MOST_ERRORS), name="errors")
        try:
            async with asyncio.timeout(OPENING):
                said = await _until_line_end(piped)
        except TimeoutError:
            return "no session within a minute"
        greeting, _, data = said.partition(b"\n")
        if greeting.startswith(GREETING):
            await opened()
            while data or (data := await piped.read(PIECE)):
                await took(data)
                data = b""
                await asyncio.sleep(PAUSE)
        elif said:
            return "ipmitool does not write what it should"
        try:
            async with asyncio.timeout(LINGERING):
                return _why(await errors)
        except TimeoutError:
            return "ipmitool goes on without its output"


@asynccontextmanager
async def _running(argv: list[str], env: dict[str, str]) -> AsyncIterator[process.Piped]:
    piped = await process.pipe(argv, env=env, errors=True)
    try:
        yield piped
    finally:
        await piped.close(patience=ENDING)


async def _until_line_end(piped: process.Piped) -> bytes:
    """What it writes with its first line, b"" where it ends before."""
    said = b""
    while b"\n" not in said and len(said) < MOST_GREETING:
        part = await piped.read(MOST_GREETING)
        if not part:
            return b""
        said += part
    return said


def _why(errors: bytes) -> str:
    if len(errors) > MOST_ERRORS:
        return "ipmitool writes errors without end"
    lines = errors.decode(errors="replace").splitlines()
    said = [each.strip() for each in lines if each.strip() and not each.startswith(TERMINAL)]
    shown = (said[0] if said else "ipmitool ended")[:MOST_SHOWN]
    return "".join(each if each.isprintable() else " " for each in shown)
