"""A daemon from its start to its end. Only this module, `parts` and `control` know every part."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import defaultdict
from types import TracebackType
from typing import Self
from uuid import UUID

import sqlalchemy
import structlog

from nospoon.api.app import prepare
from nospoon.control.content.space import text_of
from nospoon.daemon.control import Control
from nospoon.daemon.parts import Later, Parts
from nospoon.daemon.sockets import LOOPBACK
from nospoon.model.resources.resource import Resource
from nospoon.plan.words import counted
from nospoon.runtime import clock, running
from nospoon.runtime.hardening import restrict
from nospoon.settings import Settings
from nospoon.store import bmcs as bmc_rows
from nospoon.store import clusters as stored
from nospoon.store import images as loaded_images
from nospoon.store import logins
from nospoon.store import operations as journal
from nospoon.store.database import Database

log = structlog.get_logger()
FIRST_LOOK = 5.0
"""Seconds for which start-up waits for its hosts, so that the first answer about power is right."""


class Daemon:
    """Everything of one daemon; an async context manager from ready to ended."""

    def __init__(
        self,
        settings: Settings,
        listener: socket.socket,
        ending: asyncio.Event,
        *,
        lab_clock: clock.Clock = clock.unix,
    ) -> None:
        """`lab_clock`: Unix seconds, by which labs count leases, timeouts and pauses."""
        self._ending = ending
        self._end = contextlib.AsyncExitStack()
        self.superseded = ""
        database = _opened(settings)
        self._end.callback(running.hold(database.deployment).close)
        later = Later(
            board=lambda: self.control.board,
            inventories=lambda: self.control.inventories,
            console_grows=self._console_grows,
        )
        self.parts = Parts(settings, database, later, lost=self._superseded, lab_clock=lab_clock)
        self.control = Control(self.parts, listener, stop=ending.set)

    async def __aenter__(self) -> Self:
        """Know all nodes, serve all BMCs, take up network boot, then answer."""
        parts, control = self.parts, self.control
        self._end.callback(parts.database.close)
        try:
            await parts.lease.take()
        except BaseException:
            await self._end.aclose()
            raise
        self._end.push_async_callback(parts.lease.give_back)
        self._end.callback(parts.downloads.close)
        of_labs = (control.lab_records, control.lab_consoles, control.registered_consoles.workers)
        for workers in (parts.planner.workers, *of_labs):
            self._end.callback(workers.close)
        self._end.callback(control.people.close)
        self._end.callback(parts.clouds.close)  # after the tasks that call them
        self._end.callback(parts.simulations.save)  # after all that changes machines
        self._end.push_async_callback(parts.tasks.close)
        self._end.push_async_callback(parts.tunnels.close)
        self._end.push_async_callback(parts.agents.close)
        self._end.push_async_callback(parts.hosts.close)
        parts.tasks.start(parts.lease.keep(), name="keep the lease")
        parts.tasks.start(parts.simulations.keep(), name="keep simulations")
        parts.tasks.start(parts.hosts.tidy(), name="close idle connections")
        parts.tasks.start(parts.heap.keep_tidy(), name="collect garbage")
        parts.tasks.start(parts.files.tidy(self._named_files), name="remove files no one names")
        self._settings_directories()
        interrupted = await parts.database.call(journal.interrupt_running, now=clock.unix())
        await parts.database.call(self._restore_logins)
        nodes = await control.restoring.restore()
        await self._tidy_files()
        await parts.bmcs.restore_events()
        failed = await self._restore_bmcs()
        self._end.push_async_callback(parts.bmcs.close)
        await parts.hosts.look_at_all(patience=FIRST_LOOK)
        await parts.boot_http.open(LOOPBACK)
        await parts.netboot.start()
        self._end.push_async_callback(parts.netboot.close)
        parts.consoles.start()
        self._end.push_async_callback(parts.consoles.close)
        half_made = await control.snapshots.half_made()
        parts.tasks.start(control.snapshots.repair(half_made), name="repair snapshots")
        parts.host_boots.begin()
        parts.ready = True
        await control.board.start()
        parts.tasks.start(control.restoring.read_rest(), name="read the rest of the cluster files")
        parts.tasks.start(control.watch.keep(), name="watch consoles of labs")
        await self._begin_to_answer()
        open_calls = len(await parts.database.call(journal.open_intents))
        found = _found(nodes, [row.kind for row in interrupted], open_calls, failed)
        control.controller.found = found
        log.info("start-up found", what=found)
        return self

    async def _begin_to_answer(self) -> None:
        await asyncio.to_thread(prepare, self.control.app)
        await self.control.api.start()
        imported = asyncio.to_thread(self.parts.connections.prepare)
        self.parts.tasks.start(imported, name="import libvirt")
        self._end.callback(self.control.members.close)
        self._end.push_async_callback(self._stop_serving)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._end.aclose()

    async def _stop_serving(self) -> None:
        """Operations end while BMCs and hosts still answer: some power nodes off."""
        try:
            await self.control.api.close()
        finally:
            await self.control.operations.end()

    def _settings_directories(self) -> None:
        """virtlogd and dnsmasq's user look into these; what is secret has a mode of its own."""
        for name in ("consoles", "netboot"):
            directory = self.parts.settings.state / name
            directory.mkdir(exist_ok=True, mode=0o711)
            restrict(directory, 0o711)

    def _restore_logins(self, connection: sqlalchemy.Connection) -> None:
        """Those of hosts that some cluster has; others were left by clusters that are gone."""
        named = {each.connection.login for each in stored.all_hosts(connection)} - {""}
        logins.keep(connection, named)
        self.parts.logins.restore(logins.all_of_them(connection))

    async def _restore_bmcs(self) -> dict[str, str]:
        records = await self.parts.database.call(bmc_rows.records)
        resources = [(Resource(key, bmc, node=key.name), tag) for key, bmc, tag in records]
        return await self.parts.bmc_driver.restore(resources)

    def _console_grows(self, machine: UUID) -> bool:
        return self.control.registered_consoles.is_growing(machine)

    def _superseded(self, reason: str) -> None:
        """Someone else is in control: end, and do nothing on the way."""
        self.superseded = reason
        self._ending.set()

    async def _tidy_files(self) -> None:
        """What no cluster names was left by a daemon that ended."""
        parts = self.parts
        rows = await parts.database.call(stored.holdings)
        named = {digest for row in rows for digest in row.uploads.values()}
        named |= {sha256 for _, sha256 in await parts.database.call(loaded_images.holders)}
        await asyncio.to_thread(parts.files.begin, named)
        owned = defaultdict[int, set[str]](set)
        for row in rows:
            owned[row.owner].update(row.uploads.values())
            parts.files.space.hold(row.owner, text_of(row.id), row.size)
        parts.files.space.begin(owned)
        await parts.library.begin()
        parts.cloud_media.tidy(lambda machine: parts.fleet.get(machine) is not None)

    async def _named_files(self) -> set[str]:
        return await self.parts.database.read(stored.digests)


def _opened(settings: Settings) -> Database:
    """The store. Its deployment's id is kept beside it, so that a new store is the same one."""
    kept = settings.state / "deployment"
    database = Database.open(
        settings.database, deployment=kept.read_text().strip() if kept.exists() else ""
    )
    kept.write_text(f"{database.deployment}\n")
    return database


def _found(nodes: int, interrupted: list[str], calls: int, failed: dict[str, str]) -> str:
    """What start-up found, in a sentence or two."""
    parts = [counted(nodes, "node")]
    if interrupted:
        kinds = ", ".join(interrupted)
        parts.append(
            f"{kinds} interrupted with {calls} calls of unknown outcome: run the same command again"
        )
    parts += [f"BMC of {node} is not served: {why}" for node, why in failed.items()]
    return "; ".join(parts)
