"""All BMCs of a daemon: datagrams and requests in, effects carried out, nothing that is per BMC
running: no task, thread, process, and no descriptor where BMCs have addresses of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from uuid import UUID

import structlog

from nospoon import __version__
from nospoon.bmc.aggregate import RESTART_SECONDS
from nospoon.bmc.aggregate import Bmc as Aggregate
from nospoon.bmc.faults import Fault, Faults
from nospoon.bmc.fru import Inventory
from nospoon.bmc.log import Log
from nospoon.bmc.messages import (
    Answer,
    Append,
    BootObserved,
    Erase,
    Event,
    FaultsChanged,
    HostSeen,
    MachineReported,
    MediaChanged,
    OverrideRequested,
    PowerRequested,
    Reshaped,
    Verdict,
)
from nospoon.bmc.runtime import Runtime
from nospoon.bmc.software import FIRMWARES
from nospoon.bmc.users import User
from nospoon.errors import (
    Conflict,
    Gone,
    HostUnreachable,
    NospoonError,
    NotFound,
    ProviderError,
    UsageError,
)
from nospoon.model.addresses import ANY, ANY_IPV4
from nospoon.model.boot import BootOverride
from nospoon.model.machine import MachineChange, MachineEvent, Outcome, PowerCommand, PowerState
from nospoon.model.resources.bmcs import Bmc
from nospoon.model.resources.machines import Machine
from nospoon.model.secure_boot import KeyDatabase
from nospoon.protocols.ipmi.endpoint import Endpoint
from nospoon.protocols.limit import OF_THE_DAEMON, Budgets
from nospoon.runtime.neighbors import is_here
from nospoon.runtime.reach import ANYWHERE, Reach
from nospoon.runtime.slices import Slices
from nospoon.runtime.tasks import Tasks
from nospoon.services.bmcs.certificates import Certificates
from nospoon.services.bmcs.effects import SAVE_AGAIN, SAVE_WITHIN, Effects
from nospoon.services.bmcs.listeners import Listeners
from nospoon.services.bmcs.log_space import LogSpace
from nospoon.services.bmcs.pdus import Pdus
from nospoon.services.bmcs.ports import BmcConfig, Consoles, Machines, Media, RuntimeStore
from nospoon.services.bmcs.redfish.app import App
from nospoon.services.bmcs.redfish.events import happenings
from nospoon.services.bmcs.redfish.events.events import Events
from nospoon.services.bmcs.redfish.http.service import Service
from nospoon.services.bmcs.redfish.messages.jobs import Job, Jobs
from nospoon.services.bmcs.redfish.messages.listings import Listings
from nospoon.services.bmcs.registry import Registry, is_at, places_at
from nospoon.services.bmcs.rmcp import Rmcp, identity
from nospoon.services.bmcs.served import Served
from nospoon.services.bmcs.sol import SolLines

log = structlog.get_logger()
FLUSHING = 10.0
"""Seconds in which what BMCs note at the end is stored: a database's server may hang for good."""

START_PATIENCE = 120.0
"""Seconds that an operation waits for a machine that starts; a BMC answers its client before."""
ERRORS: dict[Verdict, type[NospoonError]] = {
    Verdict.BUSY: Conflict,
    Verdict.WRONG_STATE: UsageError,
    Verdict.GONE: Gone,
    Verdict.UNREACHABLE: HostUnreachable,
    Verdict.FAILED: ProviderError,
}


class BmcService:
    """Serves BMCs. Everything happens on the loop's thread."""

    def __init__(
        self,
        machines: Machines,
        store: RuntimeStore,
        tasks: Tasks,
        *,
        consoles: Consoles | None = None,
        media: Media | None = None,
        certificates: Certificates | None = None,
        restart_seconds: float = RESTART_SECONDS,
        save_within: float = SAVE_WITHIN,
        save_again: float = SAVE_AGAIN,
        account_key: bytes = b"",
        reach: Reach = ANYWHERE,
    ) -> None:
        self._machines, self._store, self._tasks = machines, store, tasks
        self._restart_seconds = restart_seconds
        self.registry = Registry()
        self._strangers = Budgets(OF_THE_DAEMON)
        self._log_space = LogSpace()
        self._early: dict[UUID, MachineEvent] = {}
        self._effects = Effects(
            machines,
            store,
            tasks,
            saved=self._saved,
            noted=self._noted,
            end=self._end_sessions,
            save_within=save_within,
            save_again=save_again,
        )
        self._sol = SolLines(consoles, tasks) if consoles is not None else None
        self._pdus = Pdus(self.registry, self._effects, tasks)
        rmcp = Rmcp(self.registry, self._effects, self._sol).datagram
        self.listeners = Listeners(
            rmcp,
            self._pdus.datagram,
            lambda: App(self.redfish, self.listeners.accounts),
            certificates,
            account_key,
        )
        self.events = Events(
            store,
            tasks,
            self.listeners.accounts,
            served_at=self.registry.redfish_at,
            is_at=self.registry.redfish_is_at,
            may_use=self._may_use_at,
            reach=reach,
        )
        self.jobs, self.slices = Jobs(tasks, self._job_changed), Slices()
        self.redfish = Service(
            registry=self.registry, effects=self._effects, machines=machines, media=media,
            jobs=self.jobs, events=self.events, listeners=self.listeners, slices=self.slices,
            listings=Listings(),
        )  # fmt: skip

    async def restore_events(self) -> None:
        """At start-up, before BMCs are put: subscriptions go on."""
        self.events.restore(await self._store.events())

    def ask(self, served: Served, event: Callable[[int], Event]) -> asyncio.Future[Answer]:
        """Feed an event that carries a ticket, at once; its answer comes.

        What was looked at just before is still so: checks need no lock.
        """
        return self._effects.ask(served, event)

    def feed(self, served: Served, event: Event) -> None:
        """Tell the aggregate, and carry out what it wants."""
        self._effects.feed(served, event)

    @property
    def now(self) -> float:
        """Of the aggregates' clock."""
        return self._effects.now

    async def put(self, config: BmcConfig) -> None:
        """Serve a BMC, or serve it as it is now described; runtime state goes on.

        Raises `ProviderError`; what was served before goes on then, or `is_served` denies it.
        """
        known = self.registry.status(config.bmc.uuid)
        await self.listeners.open(
            config.bmc,
            instead_of=known.bmc if known is not None else None,
            owner=config.owner,
        )
        if known is not None and _where(known.bmc) != _where(config.bmc):
            self._hide(known)
        served = known if known is not None else self._new(config)
        was, follows = served.bmc, self.events.asked
        accounts = dict[int, bytes]()
        if follows:
            accounts = self._accounts_of(known) if known else self._accounts_before(config)
        self._describe(served, config)
        served.endpoint.renew(identity(config, served.aggregate.runtime, served.smbios))
        self.registry.put(served)
        self.listeners.accounts.put(config, served.aggregate.runtime.settings.users)
        self._pdus.plug(served)
        place = config.bmc.address, config.bmc.redfish_port
        to = place if place != (was.address, was.redfish_port) else None
        if follows:
            after = self._accounts_of(served) if config.bmc.redfish_port else {}
            await self.events.follow(partial(is_at, was), accounts, after, to=to)
        if config.bmc.address in {ANY_IPV4, ANY}:
            await self.events.gather(place, partial(is_at, config.bmc))
        last = self._machines.last(config.bmc.uuid)
        if known is None and last is not None and last.power is not PowerState.UNKNOWN:
            self.feed(served, MachineReported(_seen(last)))
        if early := self._early.pop(config.bmc.uuid, None):
            self.feed(served, MachineReported(early))

    def reshape(self, machine: Machine) -> None:
        """A machine is described again, which is nothing to its BMC but what that tells of it and
        has it boot. Harmless when none is served.
        """
        served = self.registry.status(machine.uuid)
        if served is not None and served.config.machine != machine:
            self._describe(served, replace(served.config, machine=machine))

    def _describe(self, served: Served, config: BmcConfig) -> None:
        self.registry.name(config.bmc.uuid, served.config, config)
        served.config, machine = config, config.machine
        told = Reshaped(
            machine.boot_order,
            machine.asks,
            inventory=_inventory(config),
            policy=config.bmc.policy,
            starts_disk=bool(machine.adopted),
        )
        self.feed(served, told)

    def _new(self, config: BmcConfig) -> Served:
        machine = config.machine
        aggregate = Aggregate(
            order=machine.boot_order,
            script=machine.asks,
            starts_disk=bool(machine.adopted),
            runtime=config.runtime,
            log=Log(config.log),
            restart_seconds=self._restart_seconds,
        )
        self._log_space.hold(config.bmc.uuid, config.owner, aggregate.log)
        return Served(
            replace(config, log=()),  # the aggregate has it from now on
            aggregate,
            Endpoint(identity(config, config.runtime), self._strangers),
            saved=config.runtime,
        )

    async def remove(self, uuid: UUID) -> None:
        """Serve it no more; harmless when it was not."""
        served = self.registry.pop(uuid)
        if served is None:
            return
        self._log_space.release(uuid)
        served.stop_timers()
        served.clear_faults()
        self._end_sessions(served)
        self.jobs.forget(uuid)
        accounts = self._accounts_of(served)
        self._hide(served)
        await self.listeners.close(served.bmc)
        while served.turn is not None:  # what was begun is kept before another goes on from it
            await asyncio.wait([served.turn])
        served.gone = True
        await self.events.follow(partial(is_at, served.bmc), accounts, {})

    def _accounts_of(self, served: Served | None) -> dict[int, bytes]:
        """Those of its users by number; {} of none."""
        if served is None:
            return {}
        users = served.aggregate.runtime.settings.users
        return self.listeners.accounts.numbered(served.config, users)

    def _accounts_before(self, config: BmcConfig) -> dict[int, bytes]:
        """What an earlier version called them, under which it may have kept event services."""
        users = config.runtime.settings.users
        return self.listeners.accounts.numbered_before(config, users)

    def _end_sessions(self, served: Served) -> None:
        """A BMC that is gone, without power, or that restarts, knows no one."""
        self.listeners.accounts.end_sessions(served.bmc.uuid)
        if self._sol is not None:
            self._sol.deactivate(served)
        served.endpoint.close(None)

    def _hide(self, served: Served) -> None:
        """No one finds it where it was."""
        bmc = served.bmc
        self.registry.hide(bmc)
        self.listeners.accounts.remove(bmc.uuid)
        self._pdus.unplug(bmc.outlet)

    def _saved(self, served: Served, before: Runtime) -> None:
        """What follows from runtime state that is durable now."""
        after = served.saved
        if self.registry.status(served.bmc.uuid) is not served:
            return
        if after.settings is not before.settings:
            served.endpoint.renew(identity(served.config, after, served.smbios))
            self.listeners.accounts.put(served.config, after.settings.users)
            self.registry.list_users(served)
        if before.has_power and not after.has_power:
            self._end_sessions(served)
            self.registry.hide_redfish(served.bmc)
        elif after.has_power and not before.has_power:
            self.registry.show_redfish(served)
        if self.events.asked:
            self.events.happened(served.bmc.uuid, happenings.of_runtime(served, before, after))
            if after.settings.users is not before.settings.users:
                self._users_changed(served, before.settings.users, after.settings.users)

    def _users_changed(self, served: Served, before: Sequence[User], after: Sequence[User]) -> None:
        numbered, here = self.listeners.accounts.numbered, partial(is_at, served.bmc)
        had, have = (numbered(served.config, users) for users in (before, after))
        self._tasks.start(self.events.follow(here, had, have), name="follow users")

    def _noted(self, served: Served, effect: Append | Erase) -> None:
        if self.events.asked:
            self.events.happened(served.bmc.uuid, happenings.of_log(served, effect))
        machine = served.bmc.uuid
        given = self._log_space.hold(machine, served.config.owner, served.aggregate.log)
        if given is not None:
            self._store.erase(machine, given.number)

    def _job_changed(self, job: Job) -> None:
        if self.events.asked:
            self.events.happened(job.system, [happenings.of_job(job)])

    def set_fault(self, uuid: UUID, fault: Fault) -> None:
        """From now on this goes wrong. Raises `NotFound`."""
        served = self._known(uuid)
        state = served.aggregate.state
        state.faults = state.faults or Faults()
        state.faults.put(fault)
        self.feed(served, FaultsChanged())

    def clear_faults(self, uuid: UUID) -> None:
        """All is well again. Raises `NotFound`."""
        served = self._known(uuid)
        served.clear_faults()
        self.feed(served, FaultsChanged())

    def faults(self, uuid: UUID) -> list[Fault]:
        """Those on demand that are not over."""
        served = self.registry.status(uuid)
        return served.faults.at(self.now) if served is not None and served.faults else []

    def status(self, uuid: UUID) -> Served | None:
        return self.registry.status(uuid)

    def _may_use_at(self, account: bytes, place: tuple[str, int]) -> bool:
        """Whether an account may use a BMC that answers there, or would if it had AC power."""
        return any(self.listeners.accounts.is_at(account, each) for each in places_at(place))

    def is_served(self, bmc: Bmc) -> bool:
        """Whether this very shape is served now."""
        served = self.registry.status(bmc.uuid)
        return served is not None and served.bmc == bmc and self.listeners.serves(bmc)

    async def close(self) -> None:
        for served in self.registry.all():
            served.stop_timers()
        self._pdus.close()
        self.events.close()
        await self.listeners.close_all()
        try:
            async with asyncio.timeout(FLUSHING):
                await self._store.flush()
        except TimeoutError:
            log.error("changes of BMCs are not stored: the database does not answer")

    def machine_event(self, event: MachineEvent) -> None:
        """Something happened to a machine."""
        served = self.registry.status(event.uuid)
        if served is not None:
            if event.smbios is not None and event.smbios != served.smbios:
                self.registry.guest_sees(served, event.smbios)
                renewed = identity(served.config, served.aggregate.runtime, served.smbios)
                served.endpoint.renew(renewed)
            self.feed(served, MachineReported(event))
        elif event.told is not None:
            self._early[event.uuid] = event

    def host_seen(self, uuid: UUID, boot: str) -> None:
        """The host of a machine runs, and this is the id of its boot."""
        served = self.registry.status(uuid)
        if served is not None:
            self.feed(served, HostSeen(boot))

    def is_new_boot(self, uuid: UUID, boot: str) -> bool:
        """Whether the BMC of a machine knows another boot of its host."""
        served = self.registry.status(uuid)
        return served is not None and served.aggregate.runtime.host_boot not in {"", boot}

    async def boot_observed(self, uuid: UUID) -> None:
        """A machine that boots by script fetched what it shall boot."""
        served = self.registry.status(uuid)
        if served is not None:
            self.feed(served, BootObserved())

    async def power(self, uuid: UUID, command: PowerCommand) -> str:
        """A chassis command; 'done', 'accepted', or the outcome if it is another than CHANGED.
        Raises what `ERRORS` says.
        """
        served = self._known(uuid)
        answer = await self.ask(served, lambda t: PowerRequested(command, t))
        result = _result(answer)
        done = answer.verdict is Verdict.DONE and answer.outcome is not Outcome.CHANGED
        return str(answer.outcome) if done else result

    async def start(self, uuid: UUID) -> str:
        """Power a machine on, and wait until that is over, for `START_PATIENCE` at most: why it
        failed, "" where it did not. Raises what `ERRORS` says.
        """
        await self.power(uuid, PowerCommand.ON)
        await self.settle(uuid, START_PATIENCE)
        return self._known(uuid).power_fault

    async def settle(self, uuid: UUID, seconds: float) -> bool:
        """Wait until no command is under way, for so long at most: whether its machine is on
        then. Raises `NotFound`.
        """
        served = self._known(uuid)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while tasks := {*filter(None, (served.turn, served.lane))}:
                    await asyncio.wait(tasks)
        return served.aggregate.is_on

    async def set_override(self, uuid: UUID, override: BootOverride) -> None:
        """Set the boot override; durable when this returns."""
        served = self._known(uuid)
        _result(await self.ask(served, lambda t: OverrideRequested(override, t)))

    async def media_changed(self, uuid: UUID, name: str) -> None:
        """Media called so are in the CD drive now, with "" none; durable when this returns."""
        served = self._known(uuid)
        _result(await self.ask(served, lambda t: MediaChanged(name, t)))

    async def key_databases(self, uuid: UUID) -> Sequence[KeyDatabase]:
        """As `MachineDriver.key_databases`, which it asks."""
        return await self._machines.key_databases(uuid)

    def answers_at(self, address: str, port: int) -> bool:
        """Whether BMCs answer by Redfish who connects to there from this machine."""
        place = address, port
        found = any(map(self.registry.redfish_at, (place, ("::", port))))
        return found and (self.registry.endpoint(place) == place or is_here(address))

    def _known(self, uuid: UUID) -> Served:
        served = self.registry.status(uuid)
        if served is None:
            raise NotFound(
                f"no BMC is served for machine {uuid}", hint="`nospoon up` makes it again."
            )
        return served


def _inventory(config: BmcConfig) -> Inventory:
    machine = config.machine
    return Inventory(
        name=config.node,
        uuid=machine.uuid,
        serial=machine.serial_number,
        cpus=machine.cpus,
        memory=machine.memory,
        version=__version__,
        firmware=FIRMWARES[machine.firmware],
        boots_root=machine.boots_root,
    )


def _seen(last: MachineEvent) -> MachineEvent:
    """What is known of a machine when its BMC begins to answer. That is asked then and not before:
    no one hears what its machine reports while sockets are opened.
    """
    return MachineEvent(last.uuid, MachineChange.OBSERVED, last.power)


def _where(bmc: Bmc) -> tuple[object, ...]:
    return bmc.address, bmc.ipmi_port, bmc.redfish_port, bmc.pool, bmc.outlet, bmc.tls


def _result(answer: Answer) -> str:
    if answer.verdict in ERRORS:
        raise ERRORS[answer.verdict](answer.reason)
    return str(answer.verdict)
