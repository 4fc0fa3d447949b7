"""Logs of servers' consoles, read again and again into records, of which Nova keeps the end alone.

https://docs.openstack.org/api-ref/compute/#show-console-output-os-getconsoleoutput-action
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from nospoon.errors import Conflict, Gone, ProviderError
from nospoon.model.machine import MachineEvent, PowerState
from nospoon.providers.answers import text_of
from nospoon.providers.openstack.api import Service
from nospoon.providers.openstack.around import Around
from nospoon.providers.openstack.looks import SOON
from nospoon.providers.openstack.records import GAP, LONGEST_LOG, OVERLAP, Known
from nospoon.providers.openstack.roster import Server
from nospoon.providers.recorder import Recorder
from nospoon.runtime import clock
from nospoon.runtime.log_rate import RateLimitedLog

few = RateLimitedLog()
"""For lines of each server at each look."""


class ConsoleRecords:
    """`recorder`: keeps what consoles said."""

    def __init__(self, around: Around, recorder: Recorder) -> None:
        self._around, self._recorder = around, recorder
        self._known: dict[UUID, Known] = {}
        self._started: set[UUID] = set()
        self._user = -2 - int(around.cloud.login[:8] or "0", 16)

    def path(self, machine: UUID) -> str:
        return str(self._recorder.path(machine) or "")

    def begins(self, machine: UUID) -> None:
        """It is started, and its console may begin from the start."""
        self._started.add(machine)
        known = self._known.setdefault(machine, Known())
        known.begin(clock.monotonic(), SOON * self._around.pause)

    def has_begun(self, machine: UUID) -> None:
        """It was started: its log is of this boot, also where it is off again when that is read."""
        self._known.setdefault(machine, Known()).start()

    @contextmanager
    def renewed(self, machine: UUID) -> Iterator[None]:
        """Nova resets it meanwhile, and begins a new log at a moment that it does not say. Nothing
        is read until that is over: a log that begins as the one before looks like more of that. Of
        a reset that fails, the boot before is not known to have ended.
        """
        self.begins(machine)
        self._known[machine].is_held = True
        try:
            yield
            self._known.setdefault(machine, Known()).reset()
        finally:
            self._known.setdefault(machine, Known()).is_held = False

    def pass_over(self, machine: UUID) -> None:
        """It is off, and what it said until now is of no use."""
        self._known[machine] = Known(is_over=True)

    def is_over(self, machine: UUID) -> bool:
        """Whether it was read to its end, of a machine that is off."""
        known = self._known.get(machine)
        return known is not None and known.is_over

    def forget(self, machine: UUID) -> None:
        self._known.pop(machine, None)
        self._started.discard(machine)

    async def read_due(self, machines: Iterable[MachineEvent]) -> None:
        """Of those that are on and due; what one cannot be asked for is asked for again."""
        on = [each for each in machines if self._is_due(each)]
        some = max(1, self._around.api.limits.at_once // 2)  # a host that is busy answers late
        for first in range(0, len(on), some):
            await asyncio.gather(*map(self._try, on[first : first + some]))

    def _is_due(self, each: MachineEvent) -> bool:
        if each.power is not PowerState.ON:
            return False
        known = self._known.get(each.uuid)
        return known is None or (not known.is_held and clock.monotonic() >= known.due)

    async def _try(self, each: MachineEvent) -> None:
        if each.smbios is None:
            return
        try:
            await self._read(each.uuid, each.smbios, is_on=True)
        except ProviderError as error:
            name = self._around.api.name
            few.info("console not read", of=name, machine=str(each.uuid), why=str(error))

    async def read(self, server: Server) -> None:
        """What it said since, into its record."""
        await self._read(server.machine, server.id, is_on=server.power is PowerState.ON)

    async def _read(self, machine: UUID, server: UUID, *, is_on: bool) -> None:
        """One that is not built yet has said nothing."""
        if not self._around.at_home(machine):
            return
        path = f"/servers/{server}/action"
        try:
            text = await self._around.api.call(
                Service.NOVA, "POST", path, {"os-getConsoleOutput": {}}, read=_said
            )
        except (Gone, Conflict):
            return
        known = self._known.get(machine)
        if known is None:
            record = self._recorder.path(machine)
            recorded = await asyncio.to_thread(_end_of, record) if record is not None else ""
            new = Known()
            new.recall(recorded, text)
            known = self._known.setdefault(machine, new)  # another may have read it meanwhile
        if known.is_held:  # the reset began while this was asked for
            return
        known.is_over = not is_on
        fresh = await asyncio.to_thread(
            known.more, text, restarted=machine in self._started, is_on=is_on
        )
        known.rest(clock.monotonic(), said=len(fresh), shortest=SOON * self._around.pause)
        if fresh:
            self._started.discard(machine)
            self._recorder.take(machine, fresh.encode(), self._user)


def _end_of(record: Path) -> str:
    """What it says last, "" where there is none."""
    try:
        with record.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4 * OVERLAP))
            return file.read().decode(errors="ignore")[-OVERLAP:]
    except OSError:
        return ""


def _said(answer: Mapping[str, object]) -> str:
    """The end of a console log; its thread is a call's."""
    return text_of(answer["output"])[len(GAP) - LONGEST_LOG :]
