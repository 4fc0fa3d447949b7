"""Whether services answer: looked at from the hosts of their nodes.

A file gives nodes their addresses, so a host looks on the node's own network alone: where it would
send to a router, to itself, or by another interface, it does not connect. No host is on the network
of a node in a cloud: there this machine looks at the node's floating IP, which the cloud names, and
connects to none that it connects to for no one (`nospoon.runtime.reach`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from ipaddress import ip_address
from uuid import UUID
from weakref import WeakValueDictionary

import structlog

from nospoon.control.fleet.hosts import Hosts
from nospoon.control.operations.roles import RoleSeen
from nospoon.errors import NospoonError, ProviderError, Unfetchable
from nospoon.model.cluster import Cluster
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.networks import FloatingIp
from nospoon.model.service import Health
from nospoon.model.visible import visible
from nospoon.plan.addresses.addresses import GuestAddress
from nospoon.plan.order.kinds import whose
from nospoon.runtime.clock import monotonic
from nospoon.runtime.http import connected
from nospoon.runtime.paced import paced
from nospoon.runtime.reach import Reach
from nospoon.runtime.runner import Runner

log = structlog.get_logger()
RoleOf = Callable[[], Awaitable[RoleSeen]]
"""What is seen of the role of a service."""
AT_ONCE = 8
"""Services of one user that are looked at at a time: each look is a process for up to 5 s."""
PATIENCE = 5.0
"""Seconds for one look."""
LINE = 64
"""Bytes of an answer that are read."""
BETWEEN = 1.0
"""Seconds between two looks at a service that does not answer yet."""
WELL = re.compile(rb"HTTP/1\.\d [23]\d\d")
WAY = """
way=$(ip -o route get "$1" 2>/dev/null) || exit 3
case $way in
*" via "*|local\\ *|broadcast\\ *|multicast\\ *|anycast\\ *) exit 3 ;;
*" dev "*) ;;
*) exit 3 ;;
esac
dev=${way#* dev } net=/sys/class/net
dev=${dev%% *}
[ "$dev" = "$5" ] || [ -e "$net/$dev/lower_$5" ] || [ "$net/$dev" -ef "$net/$5/master" ] || exit 3
"""
"""bash(1): whether an address is on this link of the machine, its bridge, or a VLAN of it; see
ip-route(8).
"""
LOOK = """
exec 3<>"/dev/tcp/$1/$2" || exit 1
[ -n "$3" ] || exit 0
trap '' PIPE
printf 'GET %s HTTP/1.0\\r\\nHost: %s\\r\\nConnection: close\\r\\n\\r\\n' "$3" "$4" >&3
IFS= read -r line < <(exec dd bs=1 count=64 <&3 2>/dev/null)
kill $! 2>/dev/null
case $line in
"HTTP/1."?" "[23][0-9][0-9]*) exit 0 ;;
"HTTP/1."*) echo "${line%$'\\r'}" ;;
*) echo "something that is not HTTP" ;;
esac
exit 2
"""
"""bash(1): whether a port answers. What the guest says gets into no command, and little is read:
bash's own `read -n` counts no NULs, and would read them all, one at a time.
"""


class HealthChecks:
    """Looks at services, those of each user a few at a time."""

    def __init__(self, hosts: Hosts, reach: Reach) -> None:
        self._hosts, self._reach = hosts, reach
        self._few: WeakValueDictionary[int, asyncio.Semaphore] = WeakValueDictionary()

    async def outside(
        self, cluster: Cluster, id_: UUID, used: Iterable[str]
    ) -> dict[str, GuestAddress]:
        """Node of a cluster -> the first address of an external network that leads to it, on those
        of its hosts that are clouds. `used`: names of hosts that have its nodes. Those of one that
        is away are not known.
        """
        found, names = dict[str, GuestAddress](), set(used)
        is_looked_at = any(each.health is not None for each in cluster.services)
        for host in cluster.hosts if is_looked_at else ():
            if host.name not in names or not host.declares.has_ports:
                continue
            driver = self._hosts.use(host).connection.drivers[Kind.FLOATING_IP]
            try:
                observed = await driver.observe(id_)
            except ProviderError as error:
                log.warning("floating IPs are not known", host=host.name, why=str(error))
                continue
            async for each in paced(observed):
                if isinstance(each.shape, FloatingIp) and each.shape.mac:
                    there = GuestAddress(each.shape.address, "", is_outside=True)
                    found.setdefault(whose(each.key), there)
        return found

    async def why_not(
        self, user: int, machine: UUID, there: GuestAddress | None, health: Health
    ) -> str:
        """Why a service on a machine does not answer now, "" where it does."""
        home = self._hosts.host_of(machine)
        if not home.host.declares.is_real:
            return ""
        if there is None:
            return "no address of its node is known"
        few = self._few.setdefault(user, asyncio.Semaphore(AT_ONCE))
        async with few:
            try:
                if there.is_outside:
                    return await look_from_here(there.address, health, self._reach)
                return await look(home.runner, there, health)
            except NospoonError as error:
                return str(error)

    async def wait(
        self,
        user: int,
        machine: UUID,
        there: GuestAddress | None,
        health: Health,
        role: RoleOf,
    ) -> str:
        """The same, once it answers or its time is over. One with a `role` has to answer after that
        ended, as far as that is seen, and is waited for no longer when it failed.
        """
        end = monotonic() + health.timeout
        while True:
            seen = await role()
            if seen.status:
                return f"its role ended with exit status {seen.status}"
            why = seen.why or await self.why_not(user, machine, there, health)
            if not why:
                return ""
            if monotonic() >= end:
                return f"{why}, after {health.timeout:g} s"
            await asyncio.sleep(BETWEEN)


async def look(runner: Runner, there: GuestAddress, health: Health, *, way: str = WAY) -> str:
    """Why a service does not answer at the first address that is on a network of the host, "" where
    it does.
    """
    argv = ["timeout", "5", "bash", "-c", way + LOOK, "look"]
    for each in (there, *there.others):
        address = each.address
        place = f"[{address}]" if ":" in address else address
        where = f"{place}:{health.port}"
        words = [address, str(health.port), health.path, where, each.link]
        done = await runner.run([*argv, *words], check=False)
        if done.status != 3:  # else it is on no network of the host
            break
    match done.status:
        case 0:
            return ""
        case 2:
            return f"http://{where}{health.path} answers {visible(done.stdout.strip()[:64])}"
        case 3:
            return (
                f"{there.address} is not on the network of {there.link} for its host, which does "
                "not look"
            )
        case _:
            return f"{where} does not answer"


async def look_from_here(
    address: str, health: Health, reach: Reach, *, patience: float = PATIENCE
) -> str:
    """The same of an address of an external network, by this machine."""
    try:
        place = f"[{address}]" if ip_address(address).version == 6 else address
    except ValueError:
        return f"its cloud names {visible(address[:LINE])}, which is not an address"
    where = f"{place}:{health.port}"
    try:
        async with asyncio.timeout(patience):
            reader, writer = await connected(address, health.port, None, reach)
            try:
                if not health.path:
                    return ""
                asked = f"GET {health.path} HTTP/1.0\r\nHost: {where}\r\nConnection: close\r\n\r\n"
                writer.write(asked.encode())
                line = await _line(reader)
            finally:
                writer.transport.abort()
    except Unfetchable:
        return f"the daemon does not connect to {where}"
    except (OSError, TimeoutError):
        return f"{where} does not answer"
    if WELL.match(line):
        return ""
    is_http = line.startswith(b"HTTP/1.")
    said = visible(line.decode(errors="replace")) if is_http else "something that is not HTTP"
    return f"http://{where}{health.path} answers {said}"


async def _line(reader: asyncio.StreamReader) -> bytes:
    """The first, as far as it is read."""
    found = b""
    while len(found) < LINE and b"\n" not in found:
        piece = await reader.read(LINE - len(found))
        if not piece:
            break
        found += piece
    return found.partition(b"\n")[0].rstrip(b"\r")
