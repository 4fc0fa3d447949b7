"""`verify`: boots the probe on nodes through their BMCs and compares what it finds."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

import msgspec

from nospoon.control.fleet.authority import Authority, Publish
from nospoon.control.fleet.fleet import Member
from nospoon.control.fleet.hosts import Hosts
from nospoon.control.operations.operations import Ended, Running
from nospoon.engine.progress import Phase, Progress
from nospoon.errors import NospoonError, ProviderError, UsageError
from nospoon.model.boot import NO_OVERRIDE, BootDevice, BootOverride, OverrideEnabled
from nospoon.model.cluster import Arch
from nospoon.model.machine import PowerCommand, PowerState
from nospoon.model.resources.bmcs import Bmc
from nospoon.model.resources.keys import Key
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.netboot import NetbootService
from nospoon.model.resources.resource import Resource
from nospoon.plan.words import counted
from nospoon.probe.build import Probe, command_line, marked
from nospoon.probe.compare import Finding, compare
from nospoon.probe.record import Finder, Record, decode
from nospoon.runtime.clock import Clock
from nospoon.runtime.paced import paced
from nospoon.runtime.tasks import Tasks
from nospoon.services.bmcs.service import BmcService
from nospoon.services.consoles.service import ConsoleService
from nospoon.services.netboot.ports import ServedFile, ServedProfile
from nospoon.store.operations import OperationState

MOST_AT_ONCE, MOST_LISTED = 512, 20
"""Nodes that are verified at a time, and that a message lists."""
OFF_WITHIN = 30.0
"""Seconds until a machine that was told to power off must be observed off."""
NETWORK_ONCE = BootOverride(BootDevice.NETWORK, OverrideEnabled.ONCE)
BuildProbe = Callable[[Arch], Awaitable[Probe]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came out for one node; `problem` when it could not be verified at all."""

    member: Member
    findings: tuple[Finding, ...] = ()
    seconds: float = 0.0
    problem: str = ""

    @property
    def good(self) -> bool:
        return not self.problem and all(finding.ok for finding in self.findings)


@dataclass(frozen=True, slots=True)
class _Found:
    """What is not the probe's: whether the node ran, and what its BMC was told to boot."""

    on: bool
    override: BootOverride


class Verifier:
    """Verifies nodes, as many at once as the hosts' CPUs emulate well."""

    def __init__(
        self,
        *,
        hosts: Hosts,
        bmcs: BmcService,
        authority: Authority,
        consoles: ConsoleService,
        build_probe: BuildProbe,
        publish: Publish,
        clock: Clock,
    ) -> None:
        self._hosts, self._bmcs, self._authority = hosts, bmcs, authority
        self._consoles, self._build_probe, self._clock = consoles, build_probe, clock
        self._publish = publish

    async def verify(
        self,
        running: Running,
        members: Sequence[Member],
        desired: Mapping[Key, Resource],
        *,
        reboot_running: bool,
        timeout: float,  # noqa: ASYNC109  (a limit per node, told to the user)
    ) -> Ended:
        """Boot and compare; the result lists every node with its findings."""
        if not reboot_running:
            await self._refuse_running(members)
        probes = await self._probes(running, members)
        served = {
            each.shape.bridge
            async for each in paced(list(desired.values()))
            if isinstance(each.shape, NetbootService)
        }
        sizes = await _sizes(desired)
        at_once = min(await self._at_once(members), MOST_AT_ONCE, len(members))
        done = _Count(running, len(members))

        async def one(member: Member) -> Verdict:
            probe = probes[member.uuid]
            if probe is not None and (hopeless := _hopeless(member, served)):
                return Verdict(member, problem=hopeless)
            done.began(member)
            verdict = await self._one(member, probe, sizes.get(member.uuid, {}), timeout)
            done.ended(verdict)
            return verdict

        waiting, verdicts = iter(members), dict[UUID, Verdict]()

        async def work() -> None:
            async for member in paced(waiting):
                verdicts[member.uuid] = await one(member)

        # not a task for each of the thousands that wait: all of them begin, and are cancelled, at
        # once, and nothing else runs meanwhile
        async with asyncio.TaskGroup() as group:
            for number in range(at_once):
                group.create_task(work(), name=f"verify {number}")
        return await _ended([verdicts[member.uuid] for member in members])

    async def _probes(
        self, running: Running, members: Sequence[Member]
    ) -> Mapping[UUID, Probe | None]:
        """Machine -> its probe; None where machines run no guests and report by themselves."""
        hosts = {member.host.name: member.host for member in members}
        real = {
            name: (await self._hosts.capabilities(host)).runs_guests for name, host in hosts.items()
        }
        archs = {member.machine.arch for member in members if real[member.host.name]}
        if archs:
            running.note("Building the probe, unless it is in the cache")
        built = {arch: await self._build_probe(arch) for arch in sorted(archs)}
        return {
            each.uuid: built[each.machine.arch] if real[each.host.name] else None
            for each in members
        }

    async def _refuse_running(self, members: Sequence[Member]) -> None:
        """Those that are being powered off are waited for."""
        until, on = self._clock() + OFF_WITHIN, list[str]()
        async for member in paced(members):
            if self._is_on(member.uuid) and await self._stays_on(member.uuid, until):
                on.append(member.node)
        if on:
            raise UsageError(
                f"verify would reset nodes that are on: {_listed(on)}",
                hint="Power them off first, or add --reboot-running.",
            )

    async def _stays_on(self, uuid: UUID, until: float) -> bool:
        """Whether a machine that is on is not seen off by then."""
        left = max(0.0, until - self._clock())
        if await self._bmcs.settle(uuid, left):
            return True
        try:
            async with asyncio.timeout(left):
                await self._hosts.until(uuid, PowerState.OFF)
        except TimeoutError:
            return True
        return False

    def _is_on(self, uuid: UUID) -> bool:
        last = self._hosts.last(uuid)
        return last is not None and last.power is PowerState.ON

    async def _at_once(self, members: Sequence[Member]) -> int:
        """With KVM a node costs little; emulated ones share the host's CPUs."""
        hosts = {member.host.name: member.host for member in members}
        found = [await self._hosts.capabilities(host) for host in hosts.values()]
        return sum(max(1, can.cpus) if can.accelerator in ("tcg", "") else 16 for can in found) or 1

    async def _one(
        self, member: Member, probe: Probe | None, sizes: Mapping[str, int], limit: float
    ) -> Verdict:
        began = self._clock()
        found = _Found(self._is_on(member.uuid), self._override(member.uuid))
        try:
            verdict = await self._attempt(member, probe, sizes, limit)
        finally:  # also when it is cancelled
            self._authority.end_probe(member.uuid)
            problem = await self._leave(member, found)
        if problem:
            verdict = replace(verdict, problem=problem)
        return replace(verdict, seconds=self._clock() - began)

    def _override(self, uuid: UUID) -> BootOverride:
        served = self._bmcs.status(uuid)
        return served.override if served is not None else NO_OVERRIDE

    async def _attempt(
        self, member: Member, probe: Probe | None, sizes: Mapping[str, int], limit: float
    ) -> Verdict:
        try:
            async with asyncio.timeout(limit):
                record = await self._boot(member, probe)
        except TimeoutError:
            problem = f"the probe reported nothing within {limit:.0f} s. {await self._said(member)}"
            return Verdict(member, problem=problem)
        except NospoonError as error:
            return Verdict(member, problem=str(error))
        machine = member.machine
        seen = self._hosts.last(machine.uuid)
        if seen is not None and seen.smbios is not None:
            machine = replace(machine, uuid=seen.smbios)
        if probe is None:  # its networks give no addresses
            machine = replace(machine, ipv6=False)
        return Verdict(member, compare(machine, sizes, record))

    async def _boot(self, member: Member, probe: Probe | None) -> Record:
        if self._is_on(member.uuid):  # what is published now is for the probe alone
            await self._power_off(member)
        run = secrets.token_hex(16) if probe is not None else ""
        profile = _profile(member, probe, run)
        offset = await self._consoles.size(member.uuid, user=member.owner)
        reported = self._authority.probe(member.uuid, profile, secrets.token_urlsafe())
        await self._publish(member.uuid)
        await self._bmcs.set_override(member.uuid, NETWORK_ONCE)
        await self._bmcs.power(member.uuid, PowerCommand.ON)
        return await self._record(member, reported, offset, run)

    async def _record(
        self, member: Member, reported: asyncio.Future[Mapping[str, object]], offset: int, run: str
    ) -> Record:
        """The record from the console or over HTTP, whichever comes first. `run`: of the probe."""
        stream = self._consoles.read(member.uuid, follow=True, offset=offset, user=member.owner)
        async with Tasks(f"verify {member.path}") as tasks:
            told = tasks.start(_first_record(stream, run), name="read the console")
            await asyncio.wait((told, reported), return_when=asyncio.FIRST_COMPLETED)
            if told.done():
                return told.result()
        record = decode(msgspec.json.encode(reported.result()))
        if record is None:
            raise ProviderError(f"{member.path}: the probe's report over HTTP is not valid")
        return record

    async def _said(self, member: Member) -> str:
        """The end of the console, for a node that told nothing."""
        tail = b""
        async for chunk in self._consoles.read(member.uuid, follow=False, user=member.owner):
            tail = (tail + chunk)[-400:]
        lines = tail.decode(errors="replace").split("\n")
        text = " / ".join(line.strip() for line in lines[-4:] if line.strip())
        return f"Its console ends: {text}" if text else "Its console is silent."

    async def _leave(self, member: Member, found: _Found) -> str:
        """Leave the node as it was found; why that failed, else ""."""
        try:
            await self._publish(member.uuid)
            await self._bmcs.set_override(member.uuid, found.override)
            await self._power_as_found(member, found)
        except NospoonError as error:
            return str(error)
        return ""

    async def _power_as_found(self, member: Member, found: _Found) -> None:
        """Power off what was off; what ran boots again as its BMC says."""
        if found.on:
            is_on = self._is_on(member.uuid)
            await self._bmcs.power(member.uuid, PowerCommand.CYCLE if is_on else PowerCommand.ON)
        elif self._is_on(member.uuid):
            await self._power_off(member)

    async def _power_off(self, member: Member) -> None:
        """Raises `ProviderError` where it does not power off soon."""
        await self._bmcs.power(member.uuid, PowerCommand.OFF)
        try:
            async with asyncio.timeout(OFF_WITHIN):
                await self._hosts.until(member.uuid, PowerState.OFF)
        except TimeoutError:
            raise ProviderError(f"it did not power off within {OFF_WITHIN:.0f} s") from None


class _Count:
    """Tells progress."""

    def __init__(self, running: Running, total: int) -> None:
        self._running, self._total, self._done = running, total, 0

    def began(self, member: Member) -> None:
        self._tell(Phase.STARTED, "boots the probe", member)

    def ended(self, verdict: Verdict) -> None:
        self._done += 1
        phase = Phase.DONE if verdict.good else Phase.FAILED
        message = "as declared" if verdict.good else _problems(verdict)
        self._tell(phase, f"{message} ({verdict.seconds:.1f} s)", verdict.member)

    def _tell(self, phase: Phase, message: str, member: Member) -> None:
        self._running.emit(
            Progress(phase, message, member.node, member.node, self._done, self._total)
        )


async def _first_record(stream: AsyncIterator[bytes], run: str) -> Record:
    """That of this run: until it is powered off, the guest that ran before may write another."""
    finder = Finder()
    async for chunk in stream:
        for found in finder.feed(chunk):
            if not run or marked(run) in found.record.cmdline.split():
                return found.record
    raise ProviderError("the console ended before the probe's report")


def _profile(member: Member, probe: Probe | None, run: str) -> ServedProfile:
    if probe is None:
        return ServedProfile(name="probe", kernel="", initrd=(), cmdline="")
    return ServedProfile(
        name="probe",
        kernel=ServedFile(str(probe.kernel), "probe-kernel"),
        initrd=(ServedFile(str(probe.initrd), "probe-initrd"),),
        cmdline=command_line(member.machine.arch, ipv6=member.machine.ipv6, run=run),
    )


def _listed(nodes: Sequence[str]) -> str:
    more = f" and {len(nodes) - MOST_LISTED} more" if len(nodes) > MOST_LISTED else ""
    return f"{', '.join(nodes[:MOST_LISTED])}{more}"


def _hopeless(member: Member, served: Collection[str]) -> str:
    """Why the probe cannot reach a node, whatever happens; "" when it can. `served`: bridges over
    which it comes.
    """
    if member.machine.adopted:
        return "it is an adopted machine: its hardware is not declared in the file"
    bridges = {nic.network for nic in member.machine.nics}
    if member.machine.asks or not bridges.isdisjoint(served):
        return ""
    return "it is on no network with `netboot: builtin`, over which the probe comes"


def _problems(verdict: Verdict) -> str:
    wrong = [f for f in verdict.findings if not f.ok]
    texts = [f"{f.field}: declared {f.declared}, found {f.found}" for f in wrong]
    return "; ".join(filter(None, [verdict.problem, *texts]))


async def _sizes(desired: Mapping[Key, Resource]) -> Mapping[UUID, Mapping[str, int]]:
    """Machine -> its disks' volumes -> their bytes, as its BMC's inventory has them."""
    shapes = [each.shape for each in desired.values()]
    listed = {each.uuid: each.disk_sizes async for each in paced(shapes) if isinstance(each, Bmc)}
    return {
        each.uuid: dict(
            zip((disk.volume for disk in each.disks), listed.get(each.uuid, ()), strict=False)
        )
        async for each in paced(shapes)
        if isinstance(each, Machine)
    }


async def _ended(verdicts: list[Verdict]) -> Ended:
    good = sum(1 for verdict in verdicts if verdict.good)
    message = f"{good} of {counted(len(verdicts), 'node')} as declared"
    state = OperationState.DONE if good == len(verdicts) else OperationState.FAILED
    return Ended(state, message, {"nodes": [_row(each) async for each in paced(verdicts)]})


def _row(verdict: Verdict) -> dict[str, object]:
    found = {finding.field: finding.found for finding in verdict.findings}
    return {
        "node": verdict.member.node,
        "verdict": "as declared" if verdict.good else "different" if found else "failed",
        "firmware": _firmware(found),
        "cpus": found.get("cpus", ""),
        "memory": found.get("memory", ""),
        "disks": sum(1 for name in found if name.startswith("disk ") and found[name] != "missing"),
        "nics": sum(1 for name in found if name.startswith("nic ") and found[name] != "missing"),
        "ipv6": found.get("ipv6", ""),
        "seconds": round(verdict.seconds, 1),
        "problems": _problems(verdict),
        "findings": [
            {"field": f.field, "declared": f.declared, "found": f.found, "ok": f.ok}
            for f in verdict.findings
        ],
    }


def _firmware(found: Mapping[str, str]) -> str:
    secure = " (secure boot)" if found.get("secure boot") == "yes" else ""
    return found.get("firmware", "") + secure
