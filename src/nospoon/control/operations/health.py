"""Whether services answer: looked at from the hosts of their nodes."""

from __future__ import annotations

import asyncio
from uuid import UUID
from weakref import WeakValueDictionary

from nospoon.control.fleet.hosts import Hosts
from nospoon.errors import NospoonError
from nospoon.model.service import Health
from nospoon.model.visible import visible
from nospoon.runtime.clock import monotonic
from nospoon.runtime.runner import Runner

AT_ONCE = 8
"""Services of one user that are looked at at a time: each look is a process for up to 5 s."""
BETWEEN = 1.0
"""Seconds between two looks at a service that does not answer yet."""
LOOK = """
exec 3<>"/dev/tcp/$1/$2" || exit 1
[ -n "$3" ] || exit 0
trap '' PIPE
printf 'GET %s HTTP/1.0\\r\\nHost: %s\\r\\nConnection: close\\r\\n\\r\\n' "$3" "$4" >&3
IFS= read -r -n 64 line <&3
case $line in
"HTTP/1."?" "[23][0-9][0-9]*) exit 0 ;;
"HTTP/1."*) echo "${line%$'\\r'}" ;;
*) echo "something that is not HTTP" ;;
esac
exit 2
"""
"""bash(1): whether a port answers. What the guest says gets into no command, and little is read."""


class HealthChecks:
    """Looks at services, those of each user a few at a time."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._few: WeakValueDictionary[int, asyncio.Semaphore] = WeakValueDictionary()

    async def why_not(self, user: int, machine: UUID, address: str, health: Health) -> str:
        """Why a service on a machine does not answer now, "" where it does."""
        home = self._hosts.host_of(machine)
        if not home.host.declares.is_real:
            return ""
        if not address:
            return "no address of its node is known"
        few = self._few.setdefault(user, asyncio.Semaphore(AT_ONCE))
        async with few:
            try:
                return await look(home.runner, address, health)
            except NospoonError as error:
                return str(error)

    async def wait(self, user: int, machine: UUID, address: str, health: Health) -> str:
        """The same, once it answers or its time is over."""
        end = monotonic() + health.timeout
        while why := await self.why_not(user, machine, address, health):
            if monotonic() >= end:
                return f"{why}, after {health.timeout:g} s"
            await asyncio.sleep(BETWEEN)
        return ""


async def look(runner: Runner, address: str, health: Health) -> str:
    """Why a service does not answer at an address of the host's networks, "" where it does."""
    place = f"[{address}]" if ":" in address else address
    where = f"{place}:{health.port}"
    argv = ["timeout", "5", "bash", "-c", LOOK, "look"]
    done = await runner.run([*argv, address, str(health.port), health.path, where], check=False)
    match done.status:
        case 0:
            return ""
        case 2:
            return f"http://{where}{health.path} answers {visible(done.stdout.strip()[:64])}"
        case _:
            return f"{where} does not answer"
