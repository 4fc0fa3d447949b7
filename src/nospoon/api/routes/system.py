"""The daemon itself."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from nospoon.api.answers import answered, record
from nospoon.api.depends import Called, Controlled
from nospoon.api.leaving import unless_gone
from nospoon.errors import Forbidden
from nospoon.model.rest.daemon import DaemonStatus, DaemonStopping

router = APIRouter(tags=["daemon"])


@router.get("/daemon", response_model=None, responses=answered(DaemonStatus))
async def daemon(request: Request, controller: Controlled, caller: Called) -> dict[str, object]:
    """Version, pid, uptime, clusters, and what start-up found."""
    return record(await unless_gone(request, controller.about(caller)))


@router.get("/daemon/settings")
async def settings(controller: Controlled, caller: Called) -> dict[str, str]:
    """SHA-256 of the text of each `NOSPOON_…` variable with which the daemon runs."""
    if not caller.admin:
        raise Forbidden("only root and the daemon's own user may compare its settings")
    return dict(controller.settings)


@router.post(
    "/daemon/stop",
    status_code=202,
    response_model=None,
    responses=answered(DaemonStopping, status=202),
)
async def stop(controller: Controlled, caller: Called) -> dict[str, object]:
    """End the daemon after its replies; machines and their network boot go on."""
    if not caller.admin:
        raise Forbidden("only root and the daemon's own user may stop it")
    controller.stop()
    return record(DaemonStopping())


@router.get("/support-bundle")
async def support_bundle(controller: Controlled, caller: Called, cluster: str = "") -> Response:
    """A .tar.gz with file, plan, logs, consoles and versions; secrets are masked."""
    data = await controller.support_bundle(caller, cluster)
    return Response(data, media_type="application/gzip")
