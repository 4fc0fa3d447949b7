"""What the aggregate of a node says, as Redfish events: log records, runtime state, Tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from nospoon.bmc import events
from nospoon.bmc.events import Happening, Message
from nospoon.bmc.log import Kind, Record
from nospoon.bmc.messages import Append, Erase
from nospoon.bmc.runtime import Runtime
from nospoon.runtime import clock
from nospoon.services.bmcs.redfish.messages.uris import ROOT

if TYPE_CHECKING:
    from nospoon.services.bmcs.redfish.messages.jobs import Job
    from nospoon.services.bmcs.served import Served

MEANT = {
    Kind.POWER_ON: events.POWERED_ON,
    Kind.POWER_OFF: events.POWERED_OFF,
    Kind.POWER_FAULT: events.CRITICAL,
    Kind.GUEST_STOPPED: events.CRITICAL,
}
"""Records that say something of the system; every record is a new log entry, too."""


def of_log(served: Served, effect: Append | Erase) -> Iterator[Happening]:
    """What follows from a change of the event log."""
    system, now = f"{ROOT}/Systems/{served.bmc.uuid}", clock.unix()
    service = f"{system}/LogServices/SEL"
    match effect:
        case Append(record=record):
            entry = f"{service}/Entries/{record.number}"
            yield from _of_record(served, record, entry)
            yield Happening(events.CREATED, entry, "LogEntry", now, entry=entry)
        case Erase():
            yield Happening(events.CHANGED, service, "LogService", now)


def _of_record(served: Served, record: Record, entry: str) -> Iterator[Happening]:
    message = MEANT.get(record.kind)
    if message is not None:
        yield _of_system(served, message, entry=entry)


def _of_system(served: Served, message: Message, *, entry: str = "") -> Happening:
    name = served.config.node
    health = message in {events.CRITICAL, events.HEALTHY}
    args = (name, str(message.severity)) if health else (name,) if "%1" in message.text else ()
    origin = f"{ROOT}/Systems/{served.bmc.uuid}"
    return Happening(message, origin, "ComputerSystem", clock.unix(), args, entry)


def of_runtime(served: Served, before: Runtime, after: Runtime) -> Iterator[Happening]:
    """What follows from runtime state that was changed and kept."""
    now, uuid = clock.unix(), served.bmc.uuid
    if before.power_fault and not after.power_fault:
        yield _of_system(served, events.HEALTHY)
    if _shown(before) != _shown(after):
        yield _of_system(served, events.CHANGED)
    if before.media != after.media or _verifies(before) != _verifies(after):
        drive = f"{ROOT}/Managers/{uuid}/VirtualMedia/Cd"
        yield Happening(events.CHANGED, drive, "VirtualMedia", now)
    if before.settings.users != after.settings.users:
        accounts = f"{ROOT}/AccountService/Accounts"
        yield Happening(events.CHANGED, accounts, "ManagerAccountCollection", now)


def _shown(runtime: Runtime) -> tuple[object, ...]:
    """What a ComputerSystem shows of it."""
    settings = runtime.settings
    return (
        runtime.override, runtime.identify, runtime.http_boot_uri, settings.policy,
        settings.asset_tag, runtime.boot_order,
    )  # fmt: skip


def _verifies(runtime: Runtime) -> bool:
    return runtime.settings.verify_media


def of_job(job: Job) -> Happening:
    """A Task that began or ended."""
    message = events.TASK_STARTED
    if job.ended is not None:
        message = events.TASK_ABORTED if job.error is not None else events.TASK_COMPLETED
    origin = f"{ROOT}/TaskService/Tasks/{job.id}"
    return Happening(message, origin, "Task", clock.unix(), (job.id,))
