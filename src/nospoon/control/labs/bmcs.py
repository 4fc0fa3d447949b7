"""BMCs of registered machines, of any vendor: IPMI by ipmitool, Redfish by HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import re
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import structlog

from nospoon.errors import ProviderError
from nospoon.model.lab import Registered
from nospoon.runtime import process
from nospoon.runtime.clock import monotonic
from nospoon.runtime.http import request
from nospoon.runtime.reach import Reach

log = structlog.get_logger()
WhileOff = Callable[[], Awaitable[None]]
_PATH = re.compile(r"/[!-~]{0,1000}")
"""Of a System: what stands in a request line without escapes (RFC 9112 §3.2)."""
SECONDS = 30.0
"""For which one command may take: a real BMC answers in tenths of one."""
GET_SYSTEM_GUID = ("0x06", "0x37")
"""NetFn and command (IPMI 2.0 §22.14)."""
TRIES = 3
PAUSE = 2.0
SILENCE = 5.0
"""Seconds of a try without a session, after which there is no other one: it asked again itself."""
SESSION = ("-R", "3")
"""ipmitool asks for a session so often, for 12 s in all."""
NO_SESSION = "unable to establish"
LOOKS = 30
"""At a machine that is switched off, `PAUSE` apart, until it is off."""
MOST, MOST_LISTED = 1 << 20, 64 << 10
"""Bytes of an answer; of the list of systems, which alone is decoded, on the event loop."""
BAD_REQUEST = 400
HOW_TO_REACH = "NOSPOON_MEDIA_NETWORKS names networks that it may reach besides."
UNUSED = "65533"
"""A user and group of no program (Debian Policy 9.2.2): dnsmasq shares its own with others."""
CONFINED = ("setpriv", "--no-new-privs", "--pdeathsig=KILL")
"""It ends with the daemon, however that ends (prctl(2), PR_SET_PDEATHSIG)."""
WITHOUT_RIGHTS = ("--clear-groups", "--inh-caps=-all", "--bounding-set=-all")
"""Answers of a BMC cause memory errors in ipmitool 1.8.19, and members name BMCs."""
OWNERS, MOST_OWNERS = 2_010_000_000, 100_000_000
"""The first of the users for what runs for one lab owner, and their number: above those that
SSSD makes (sssd-ldap(5), ldap_idmap_range_max), below those of systemd (UIDS-GIDS.md).
"""


class NotReached(ProviderError):
    """A BMC with which no session began: nothing of its machine was changed."""


async def _nothing() -> None:
    pass


@contextmanager
def _begun() -> Iterator[None]:
    """A machine is changed here: a BMC that is not reached any more may have carried it out."""
    try:
        yield
    except ProviderError as error:
        if isinstance(error, NotReached):
            raise ProviderError(str(error)) from error
        raise


@dataclass(frozen=True, slots=True)
class RegisteredBmcs:
    """`reach`: where a file's addresses may lead."""

    reach: Reach

    async def start(
        self, machine: Registered, *, owner: int, installs: bool, while_off: WhileOff = _nothing
    ) -> None:
        """On, from the network once where something installs it. `owner`: of its lab; `while_off`:
        called before, when it is off. Raises `ProviderError`, and `NotReached`.
        """
        require_reach(machine, self.reach)
        if machine.protocol == "redfish":
            await _Redfish(machine, self.reach).start(installs=installs, while_off=while_off)
            return
        user = user_of(owner)
        await _ipmi_off(machine, user=user)
        with _begun():
            await while_off()
            if installs:
                await _ipmi(machine, "chassis", "bootdev", "pxe", user=user)
            await _ipmi(machine, "chassis", "power", "on", user=user)

    async def stop(self, machine: Registered, *, owner: int) -> None:
        """Off. Raises `ProviderError`."""
        require_reach(machine, self.reach)
        if machine.protocol == "redfish":
            await _Redfish(machine, self.reach).off()
        else:
            await _ipmi_off(machine, user=user_of(owner))

    async def uuids(self, machine: Registered, *, owner: int) -> frozenset[UUID]:
        """What the machine's UUID may be, as SMBIOS has it. Raises `ProviderError` for a BMC that
        shows none.
        """
        require_reach(machine, self.reach)
        if machine.protocol == "redfish":
            found = await _Redfish(machine, self.reach).uuid()
        else:
            said = await _ipmi(machine, "raw", *GET_SYSTEM_GUID, user=user_of(owner))
            try:
                found = _uuids_of(bytes.fromhex(said))
            except ValueError:
                found = frozenset()
        if not found:
            raise ProviderError(
                f"BMC of {machine.name}: it shows no UUID of its machine",
                hint="Write `macs` of the machine, by which it is known instead.",
            )
        return found


def _uuids_of(raw: bytes) -> frozenset[UUID]:
    """What 16 bytes may mean: IPMI has them in the order of RFC 9562 backwards (IPMI 2.0 §20.8),
    vendors in any. Nothing for zeros, or ones, which stand for none.
    """
    orders = (raw, raw[::-1])
    found = {make for each in orders for make in (UUID(bytes=each), UUID(bytes_le=each))}
    return frozenset(found) if raw.strip(b"\0") and raw.strip(b"\xff") else frozenset()


def require_reach(machine: Registered, reach: Reach) -> None:
    """Raises `ProviderError` for a BMC where the daemon does not go."""
    if why := why_beyond(machine, reach):
        raise ProviderError(f"the BMC of {machine.name} is {why}", hint=HOW_TO_REACH)


def why_beyond(machine: Registered, reach: Reach) -> str:
    """Where a BMC is that the daemon may not reach, "" for one that it may."""
    if reach.admits(machine.address, machine.port):
        return ""
    return f"at {machine.address}, where the daemon does not go"


def user_of(owner: int) -> str:
    """A user and group for what runs for a lab owner: processes of one user may read one another's
    environments (proc(5)), and one that a BMC has taken over, which may leave others behind, would
    read the passwords of other owners' BMCs. `UNUSED` in a user namespace that has too few users.
    """
    user = OWNERS + owner % MOST_OWNERS
    maps = (Path(f"/proc/self/{each}_map").read_text() for each in ("uid", "gid"))
    return str(user) if all(_maps(each, user) for each in maps) else UNUSED


def _maps(text: str, user: int) -> bool:
    """Lines of the first inside, the first outside, and how many (user_namespaces(7))."""
    ranges = (tuple(map(int, line.split())) for line in text.splitlines())
    return any(first <= user < first + count for first, _, count in ranges)


def ipmitool(machine: Registered, *command: str, user: str) -> tuple[list[str], dict[str, str]]:
    """A command line and its environment, by which the password goes: other users do not see it
    there (environ(7)). What it writes comes line by line: into a pipe, C programs write whole
    buffers.
    """
    rights = (f"--reuid={user}", f"--regid={user}", *WITHOUT_RIGHTS) if os.geteuid() == 0 else ()
    argv = [
        *CONFINED, *rights, "stdbuf", "-oL",
        "ipmitool", "-I", "lanplus", "-H", machine.address, "-p", str(machine.port),
        "-U", machine.username, "-E", *command,
    ]  # fmt: skip
    env = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": "/nonexistent",
        "IPMI_PASSWORD": machine.password,
    }
    return argv, env


async def _off(
    machine: Registered,
    switch: Callable[[], Awaitable[object]],
    is_off: Callable[[], Awaitable[bool]],
) -> None:
    """A BMC answers before the machine is off (IPMI 2.0 §28.3), and what comes until then may be
    ignored. Some refuse to switch off what is off. Raises `ProviderError`.
    """
    try:
        await switch()
    except NotReached:
        raise
    except ProviderError as refused:
        try:
            if await is_off():
                return
        except ProviderError:
            log.info("the power of a machine is not known", machine=machine.name)
        raise refused from None
    with _begun():
        for _ in range(LOOKS):
            if await is_off():
                return
            await asyncio.sleep(PAUSE)
    raise ProviderError(
        f"BMC of {machine.name}: it is still on {LOOKS * PAUSE:.0f} s after it was switched off"
    )


async def _ipmi_off(machine: Registered, *, user: str) -> None:
    async def is_off() -> bool:
        said = await _ipmi(machine, "chassis", "power", "status", user=user, tries=1)
        return said.strip().lower().endswith("off")

    await _off(machine, lambda: _ipmi(machine, "chassis", "power", "off", user=user), is_off)


async def _ipmi(machine: Registered, *command: str, user: str, tries: int | None = None) -> str:
    """What ipmitool prints. `tries`: other than `TRIES`."""
    argv, env = ipmitool(machine, *SESSION, *command, user=user)
    was_reached = False
    for left in reversed(range(TRIES if tries is None else tries)):
        begun = monotonic()
        done = await process.run(argv, env=env, timeout=SECONDS, check=False, most=1 << 16)
        if done.status == 0:
            return done.stdout
        reached = NO_SESSION not in done.stderr.lower()
        was_reached |= reached
        if not left or (not reached and monotonic() - begun >= SILENCE):
            said = (done.stderr or done.stdout).strip().splitlines() or ["no answer"]
            failure = ProviderError if was_reached else NotReached
            raise failure(f"BMC of {machine.name}: {' '.join(command)}: {said[0][:200]}")
        await asyncio.sleep(PAUSE)
    raise AssertionError("the last try returns or raises")


@dataclass(frozen=True, slots=True)
class _Redfish:
    """A machine's service. Its only System is the machine, or the one that its file names: a
    service may have those of several machines (DSP0266 §6.5), in any order.
    """

    machine: Registered
    reach: Reach

    async def start(self, *, installs: bool, while_off: WhileOff) -> None:
        try:
            system = await self._system()
        except ProviderError as error:
            raise NotReached(str(error)) from error
        if installs:
            once = {"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"}
            await self._call("PATCH", system, {"Boot": once})
        await self.off()
        await while_off()
        await self._reset(system, "On")

    async def off(self) -> None:
        system = await self._system()

        async def is_off() -> bool:
            shown = await self._read(system, "its System")
            return shown.get("PowerState", "Off") == "Off"  # not every service has it

        await _off(self.machine, lambda: self._reset(system, "ForceOff"), is_off)

    async def _reset(self, system: str, kind: str) -> None:
        await self._call("POST", f"{system}/Actions/ComputerSystem.Reset", {"ResetType": kind})

    async def uuid(self) -> frozenset[UUID]:
        """That of its System, if it has one."""
        shown = await self._read(await self._system(), "its System")
        try:
            return frozenset({UUID(str(shown.get("UUID")))})
        except ValueError:
            return frozenset()

    async def _system(self) -> str:
        name, wanted = self.machine.name, self.machine.system
        listed = (await self._read("/redfish/v1/Systems", "its list of systems")).get("Members")
        members = listed if isinstance(listed, list) else []
        paths = [
            path
            for each in members
            if isinstance(each, dict)
            and isinstance(path := each.get("@odata.id"), str)
            and _PATH.fullmatch(path)
        ]
        if wanted:
            paths = [each for each in paths if each.rstrip("/").rpartition("/")[2] == wanted]
        if not paths:
            raise ProviderError(f"BMC of {name}: no System {wanted}".rstrip())
        if len(paths) > 1:
            raise ProviderError(
                f"BMC of {name}: its service has {len(paths)} Systems, any of which may be it",
                hint="Write the id of its own as `system` of its `bmc`.",
            )
        return paths[0]

    async def _read(self, path: str, what: str) -> dict[str, object]:
        """A resource, {} for what is no object."""
        body = await self._call("GET", path, None, most=MOST_LISTED)
        try:
            read = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise ProviderError(f"BMC of {self.machine.name}: {what} is not JSON") from error
        return read if isinstance(read, dict) else {}

    async def _call(
        self, method: str, path: str, body: Mapping[str, object] | None, *, most: int = MOST
    ) -> bytes:
        """Certificates of BMCs are their own: none is verified."""
        machine = self.machine
        host = f"[{machine.address}]" if ":" in machine.address else machine.address
        scheme = "https" if machine.tls else "http"
        login = f"{machine.username}:{machine.password}".encode()
        headers = [("Authorization", f"Basic {b64encode(login).decode()}")]
        content = b""
        if body is not None:
            content = json.dumps(body).encode()
            headers.append(("Content-Type", "application/json"))
        answer = await request(
            method, f"{scheme}://{host}:{machine.port}{path}", content,
            headers=headers, verify=False, patience=SECONDS, reach=self.reach, most=most,
        )  # fmt: skip
        if answer.status >= BAD_REQUEST:
            raise ProviderError(f"BMC of {machine.name}: {method} {path}: HTTP {answer.status}")
        return answer.body
