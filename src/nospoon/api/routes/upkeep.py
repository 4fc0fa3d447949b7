"""Upkeep of what the store does not know: orphans, and a store that was lost."""

from __future__ import annotations

from fastapi import APIRouter, Request

from nospoon.api.answers import answered, record
from nospoon.api.depends import Called, Controlled
from nospoon.api.leaving import unless_gone
from nospoon.api.routes.operations import details
from nospoon.api.wire import AdoptRequest, HostsRequest, ReapRequest
from nospoon.control.controller import Controller
from nospoon.control.maintenance.survey import Scope
from nospoon.errors import Forbidden
from nospoon.model.principal import Principal
from nospoon.model.rest.daemon import DaemonStopping
from nospoon.model.rest.operations import OperationDetails
from nospoon.model.rest.upkeep import OrphanReport, RecoveryReport

router = APIRouter(tags=["upkeep"])


async def _scope(body: HostsRequest, controller: Controller, caller: Principal) -> Scope:
    """What was given; none: all that is known. A file is read in a thread, as plans are."""
    if not body.hosts and not body.text:
        return Scope()
    given = controller.survey.given
    return await controller.planner.workers.run(caller.uid, given, body.hosts, body.file, body.text)


def _require_admin(caller: Principal) -> None:
    if not caller.admin:
        raise Forbidden("only root and the daemon's own user may do this: it concerns everybody's")


@router.post("/orphans", response_model=None, responses=answered(OrphanReport))
async def orphans(
    request: Request, body: HostsRequest, controller: Controlled, caller: Called
) -> dict[str, object]:
    """What carries our tag and belongs to no cluster: `{orphans, others, away}`."""
    _require_admin(caller)
    report = controller.orphans.report(await _scope(body, controller, caller))
    return record(await unless_gone(request, report))


@router.post(
    "/orphans/reap",
    status_code=202,
    response_model=None,
    responses=answered(OperationDetails, status=202),
)
async def reap(body: ReapRequest, controller: Controlled, caller: Called) -> dict[str, object]:
    """Remove orphans after a time of grace, as an operation."""
    _require_admin(caller)
    scope = await _scope(body, controller, caller)
    return record(details(await controller.orphans.reap(caller, scope, grace=body.grace)))


@router.post("/recover", response_model=None, responses=answered(RecoveryReport))
async def recover(body: HostsRequest, controller: Controlled, caller: Called) -> dict[str, object]:
    """Make the store again from tags: `{clusters, others, away}`; with a file, its cluster only."""
    _require_admin(caller)
    of = None
    if body.text:
        read = controller.planner.clusters.read
        file, text = body.file, body.text
        of = await controller.planner.workers.run(caller.uid, read, file, text, caller.uid)
    scope = await _scope(body, controller, caller)
    return record(await controller.recovery.recover(caller, scope, of=of))


@router.post(
    "/recover/deployment",
    status_code=202,
    response_model=None,
    responses=answered(DaemonStopping, status=202),
)
async def adopt(body: AdoptRequest, controller: Controlled, caller: Called) -> dict[str, object]:
    """Become the deployment whose state was lost; the daemon ends, to be started as that one."""
    _require_admin(caller)
    await controller.recovery.adopt(body.deployment, await _scope(body, controller, caller))
    controller.stop()
    return record(DaemonStopping())
