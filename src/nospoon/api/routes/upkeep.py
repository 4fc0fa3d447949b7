"""Upkeep of what the store does not know: orphans, and a store that was lost."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from nospoon.api.depends import Called, Controlled
from nospoon.api.peer import Caller
from nospoon.api.routes.operations import operation_json
from nospoon.api.wire import AdoptRequest, HostsRequest, ReapRequest
from nospoon.control.controller import Controller
from nospoon.errors import Forbidden
from nospoon.model.cluster import Host

router = APIRouter(tags=["upkeep"])


def _hosts(body: HostsRequest, controller: Controller) -> list[Host]:
    """Those that were given; none: all that are known."""
    if not body.hosts and not body.text:
        return []
    return controller.survey.hosts_given(body.hosts, body.file, body.text)


def _require_admin(caller: Caller) -> None:
    if not caller.admin:
        raise Forbidden("only root and the daemon's own user may do this: it concerns everybody's")


@router.post("/orphans")
async def orphans(body: HostsRequest, controller: Controlled, caller: Called) -> dict[str, Any]:
    """What carries our tag and belongs to no cluster: `{orphans, others, away}`."""
    _require_admin(caller)
    return await controller.orphans.report(_hosts(body, controller))


@router.post("/orphans/reap", status_code=202)
async def reap(body: ReapRequest, controller: Controlled, caller: Called) -> dict[str, Any]:
    """Remove orphans after a time of grace, as an operation."""
    _require_admin(caller)
    hosts = _hosts(body, controller)
    return operation_json(await controller.orphans.reap(caller.uid, hosts, grace=body.grace))


@router.post("/recover")
async def recover(body: HostsRequest, controller: Controlled, caller: Called) -> dict[str, Any]:
    """Make the store again from tags: `{clusters, others, away}`; with a file, its cluster only."""
    _require_admin(caller)
    only = controller.planner.read(body.file, body.text).name if body.text else ""
    return await controller.recovery.recover(caller.uid, _hosts(body, controller), only=only)


@router.post("/recover/deployment", status_code=202)
async def adopt(body: AdoptRequest, controller: Controlled, caller: Called) -> dict[str, Any]:
    """Become the deployment whose state was lost; the daemon ends, to be started as that one."""
    _require_admin(caller)
    await controller.recovery.adopt(body.deployment, _hosts(body, controller))
    controller.stop()
    return {"stopping": True}
