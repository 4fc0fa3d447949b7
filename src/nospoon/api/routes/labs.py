"""Labs: what they offer, requests of schedulers, and the leases that these get."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Path
from fastapi.responses import PlainTextResponse, Response, StreamingResponse

from nospoon.api import long_answers
from nospoon.api.answers import answered, record, records
from nospoon.api.depends import Called, Controlled
from nospoon.api.routes.operations import After, details
from nospoon.api.wire import (
    LEASE,
    SET,
    DrainRequest,
    ExtendRequest,
    InventoryRequest,
    LabRequest,
    MachineRequest,
    PowerRequest,
)
from nospoon.control.labs.service import Submission
from nospoon.errors import NotFound
from nospoon.model.rest.labs import (
    CheckedRecipe,
    LabDetails,
    LabSummary,
    LeaseMachine,
    LeasePower,
    LeaseStatus,
    MachineStatus,
    RefusedFlavor,
    SetDetails,
    SetSummary,
)
from nospoon.model.rest.operations import OperationDetails

router = APIRouter(tags=["labs"])
SetId = Annotated[str, Path(pattern=SET)]
LeaseId = Annotated[str, Path(pattern=LEASE)]


def _submission(body: LabRequest) -> Submission:
    return Submission(
        data=body.text.encode(), file=body.file, lab=body.lab, owner=body.owner, key=body.key,
        flavor=body.flavor,
    )  # fmt: skip


def _json(content: bytes, *, status: int = 200) -> Response:
    """What was encoded in pieces: a list of thousands would keep everyone waiting."""
    return Response(content, status, media_type="application/json")


def _parts(lease: str) -> tuple[str, int]:
    set_id, _, recipe = lease.rpartition(".")
    return set_id, int(recipe)


@router.get("/labs", response_model=None, responses=answered(list[LabSummary]))
async def labs(controller: Controlled, caller: Called) -> list[dict[str, object]]:
    """Labs that the caller may use, a row each."""
    return records(await controller.labs.rows(caller))


@router.get("/labs/{lab:path}/show", responses=answered(LabDetails))
async def lab(lab: str, controller: Controlled, caller: Called) -> Response:
    """One lab (NAME or CLUSTER/NAME): flavors, limits and what is left, registered machines."""
    return await long_answers.lab(await controller.labs.show(caller, lab))


@router.get(
    "/labs/{lab:path}/refusals", response_model=None, responses=answered(list[RefusedFlavor])
)
async def refusals(lab: str, controller: Controlled, caller: Called) -> list[dict[str, object]]:
    """Flavors of which no machine can be made now, and why: one of each is planned. For operators;
    empty for other users.
    """
    return records(await controller.labs.refusals(caller, lab))


@router.post("/labs/{lab:path}/drain", response_model=None, responses=answered(LabSummary))
async def drain(
    lab: str, body: DrainRequest, controller: Controlled, caller: Called
) -> dict[str, object]:
    """Start nothing there any more, or start again; for its operators."""
    return record(await controller.labs.drain(caller, lab, drained=body.drained))


@router.post(
    "/labs/{lab:path}/machines/{machine}", response_model=None, responses=answered(MachineStatus)
)
async def machine(
    lab: str, machine: str, body: MachineRequest, controller: Controlled, caller: Called
) -> dict[str, object]:
    """Mark a registered machine as broken or repaired, reserve it or give it back."""
    return record(
        await controller.labs.set_machine(
            caller, lab, machine, broken=body.broken, reserved=body.reserved
        )
    )


@router.post(
    "/labs/{lab:path}/machines/{machine}/inventory",
    status_code=202,
    response_model=None,
    responses=answered(OperationDetails, status=202),
)
async def inventory(
    lab: str, machine: str, body: InventoryRequest, controller: Controlled, caller: Called
) -> dict[str, object]:
    """Boot the probe on a registered machine, as an operation: what it reports are the machine's
    attributes from then on, unless its file has others. For operators.
    """
    row = await controller.labs.inventory(caller, lab, machine, timeout=body.timeout)
    return record(details(row))


@router.post("/requests/check", responses=answered(list[CheckedRecipe]))
async def check(body: LabRequest, controller: Controlled, caller: Called) -> Response:
    """A dry run: a row for each recipe and lab; nothing is made."""
    return _json(await controller.labs.check(caller, _submission(body)))


@router.post("/requests", status_code=201, responses=answered(list[SetDetails], status=201))
async def submit(body: LabRequest, controller: Controlled, caller: Called) -> Response:
    """Its recipe sets wait for machines from now on, a record each. A second request under one
    `key` is the first. 422 where a set can never start, with every reason.
    """
    return _json(await controller.labs.submit(caller, _submission(body)), status=201)


@router.get("/requests", response_model=None, responses=answered(list[SetSummary]))
async def requests(controller: Controlled, caller: Called, *, everyone: bool = False) -> Response:
    """The caller's recipe sets, a row each; `everyone`: all of labs that the caller operates."""
    return _json(await controller.labs.requests(caller, everyone=everyone))


@router.get("/requests/{set_id}", response_model=None, responses=answered(SetDetails))
async def request(set_id: SetId, controller: Controlled, caller: Called) -> dict[str, object]:
    """One recipe set: state, position, leases, history."""
    return record(await controller.labs.request(caller, set_id))


@router.get("/requests/{set_id}/events")
async def events(
    set_id: SetId,
    controller: Controlled,
    caller: Called,
    after: After,
) -> StreamingResponse:
    """Its events as they happen (text/event-stream): `{seq, at, recipe, event, message}`; the last
    one is `{state, result, message}`, and has no id: who comes again has all before it.
    """
    found = await controller.labs.follow(caller, set_id, after)

    async def lines() -> AsyncIterator[str]:
        async for each in found:
            number = f"id: {each['seq']}\n" if "seq" in each else ""
            yield f"{number}data: {json.dumps(each)}\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream")


@router.post("/requests/{set_id}/cancel", response_model=None, responses=answered(SetDetails))
async def cancel(set_id: SetId, controller: Controlled, caller: Called) -> dict[str, object]:
    """End it at once; its machines are removed."""
    return record(await controller.labs.cancel(caller, set_id))


@router.post("/requests/{set_id}/release", response_model=None, responses=answered(SetDetails))
async def release(set_id: SetId, controller: Controlled, caller: Called) -> dict[str, object]:
    """All of its leases are over."""
    return record(await controller.labs.release(caller, set_id, None))


@router.post("/requests/{set_id}/extend", response_model=None, responses=answered(SetDetails))
async def extend(
    set_id: SetId, body: ExtendRequest, controller: Controlled, caller: Called
) -> dict[str, object]:
    """All of its leases end so many seconds from now, or later by them with `add`."""
    return record(await controller.labs.extend(caller, set_id, None, body.seconds, add=body.add))


@router.get("/leases", response_model=None, responses=answered(list[LeaseStatus]))
async def leases(controller: Controlled, caller: Called, *, everyone: bool = False) -> Response:
    """The caller's leases while their sets have machines, a row each, the first 50,000; `everyone`:
    all of labs that the caller operates.
    """
    return _json(await controller.labs.leases(caller, everyone=everyone))


@router.get("/leases/{lease}", response_model=None, responses=answered(LeaseMachine))
async def lease(lease: LeaseId, controller: Controlled, caller: Called) -> dict[str, object]:
    """One lease: a recipe's machine. `uuid`: of a dynamic one while it is there, as SMBIOS has it;
    "" else.
    """
    set_id, recipe = _parts(lease)
    row = await controller.labs.lease(caller, set_id, recipe)
    try:
        owner, node = await controller.labs.node_of(caller, set_id, recipe)
        about = await controller.nodes.show(owner, node)
    except NotFound:
        return {**record(row), "uuid": "", "power": ""}
    return {**record(row), "uuid": about.uuid, "power": about.power}


@router.post("/leases/{lease}/power", response_model=None, responses=answered(LeasePower))
async def power(
    lease: LeaseId, body: PowerRequest, controller: Controlled, caller: Called
) -> dict[str, object]:
    """A chassis command for its machine; registered machines know on, off and cycle."""
    set_id, recipe = _parts(lease)
    return record(await controller.labs.power(caller, set_id, recipe, body.command))


@router.post("/leases/{lease}/extend", response_model=None, responses=answered(SetDetails))
async def extend_lease(
    lease: LeaseId, body: ExtendRequest, controller: Controlled, caller: Called
) -> dict[str, object]:
    """It ends so many seconds from now, or later by them with `add`; 0: now."""
    set_id, recipe = _parts(lease)
    return record(await controller.labs.extend(caller, set_id, recipe, body.seconds, add=body.add))


@router.post("/leases/{lease}/release", response_model=None, responses=answered(SetDetails))
async def release_lease(
    lease: LeaseId, controller: Controlled, caller: Called
) -> dict[str, object]:
    """It is over; the set ends with its last lease."""
    set_id, recipe = _parts(lease)
    return record(await controller.labs.release(caller, set_id, recipe))


@router.get("/leases/{lease}/console")
async def console(
    lease: LeaseId, controller: Controlled, caller: Called, *, follow: bool = False
) -> StreamingResponse:
    """The console log of its machine from the first byte on, also after the set has ended."""
    set_id, recipe = _parts(lease)
    chunks = await controller.labs.console(caller, set_id, recipe, follow=follow)
    return StreamingResponse(chunks, media_type="application/octet-stream")


@router.get("/metrics")
async def metrics(controller: Controlled, caller: Called) -> PlainTextResponse:
    """Of labs, for Prometheus; for administrators of the daemon."""
    text = await controller.labs.metrics(caller)
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4")
