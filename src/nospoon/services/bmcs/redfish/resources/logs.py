"""The event log by Redfish: the same records that IPMI reads as its SEL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

from nospoon.bmc.log import CAPACITY, Record
from nospoon.bmc.messages import LogEraseRequested
from nospoon.services.bmcs.redfish.http.answers import CLOCK, ODATA, etag
from nospoon.services.bmcs.redfish.http.exchange import Exchange
from nospoon.services.bmcs.redfish.http.parameters import Action, Parameter
from nospoon.services.bmcs.redfish.messages import errors
from nospoon.services.bmcs.redfish.messages.bodies import OK, ref, resource
from nospoon.services.bmcs.redfish.messages.jobs import when
from nospoon.services.bmcs.redfish.messages.uris import ROOT
from nospoon.services.bmcs.redfish.resources.changes import done
from nospoon.services.bmcs.redfish.resources.sel import decoded

if TYPE_CHECKING:
    from nospoon.services.bmcs.served import Served

SERVICE = "SEL"
CLEAR = Action("LogService.ClearLog", (Parameter("LogEntriesETag"),))


def _place(served: Served, owner: str) -> str:
    return f"{owner}/{served.bmc.uuid}/LogServices/{SERVICE}"


def services(served: Served) -> list[str]:
    """There is one log."""
    del served
    return [SERVICE]


def service(owner: str, served: Served, member: str) -> dict[str, object] | None:
    """LogService, below Systems or Managers."""
    if member != SERVICE:
        return None
    path = _place(served, owner)
    return {
        **resource("LogService", path, SERVICE, "System Event Log"),
        "LogEntryType": "SEL",
        "MaxNumberOfRecords": CAPACITY,
        "OverWritePolicy": "WrapsWhenFull",
        CLOCK: when(served.aggregate.state.clock(served.now())),
        "DateTimeLocalOffset": "+00:00",
        "ServiceEnabled": True,
        "Status": OK,
        "Entries": ref(f"{path}/Entries"),
        "Actions": {
            "#LogService.ClearLog": {"target": f"{ROOT}/{path}/Actions/LogService.ClearLog"}
        },
    }


def entries(owner: str, served: Served) -> dict[str, object]:
    """The collection, with its entries in it: DSP0266 wants them expanded."""
    path = f"{_place(served, owner)}/Entries"
    found = [_entry(owner, served, each) for each in served.aggregate.log.records]
    return {
        "@odata.type": "#LogEntryCollection.LogEntryCollection",
        "@odata.id": f"{ROOT}/{path}",
        "Name": "LogEntry Collection",
        "Members@odata.count": len(found),
        "Members": found,
    }


def entry(owner: str, served: Served, member: str) -> dict[str, object] | None:
    """LogEntry by its number."""
    found = (each for each in served.aggregate.log.records if str(each.number) == member)
    record = next(found, None)
    return _entry(owner, served, record) if record is not None else None


def _entry(owner: str, served: Served, record: Record) -> dict[str, object]:
    id_ = str(record.number)
    path = f"{_place(served, owner)}/Entries/{id_}"
    return {
        **resource("LogEntry", path, id_, f"Log Entry {id_}"),
        "EntryType": "SEL",
        "Created": when(record.at),
        "Message": record.message,
        "Severity": str(record.severity),
        **decoded(record),
    }


async def clear(owner: str, exchange: Exchange) -> Response:
    """LogService.ClearLog; `LogEntriesETag`: of the entries as the client knows them."""
    served = exchange.served()
    given = CLEAR.read(await exchange.given())
    wanted = given.get("LogEntriesETag")
    if wanted is not None and wanted != etag(entries(owner, served)):
        raise errors.precondition_required()
    done(await exchange.service.ask(served, lambda ticket: LogEraseRequested(None, ticket)))
    return Response(status_code=204, headers=ODATA)
