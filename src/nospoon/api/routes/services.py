"""Services of VMs and containers."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from nospoon.api import long_answers
from nospoon.api.answers import answered
from nospoon.api.depends import Called, Controlled
from nospoon.api.leaving import unless_gone
from nospoon.model.rest.services import ServiceStatus

router = APIRouter(tags=["services"])


@router.get("/services", responses=answered(list[ServiceStatus]))
async def services(
    request: Request, controller: Controlled, caller: Called, cluster: str = ""
) -> Response:
    """A row for each of the caller's services on each of its nodes, looked at now: service,
    cluster, node, kind, power, health (`healthy`, `unhealthy`, "" where nothing is looked at), why,
    unit, address, after.
    """
    found = await unless_gone(request, controller.services.rows(caller, cluster))
    return await long_answers.rows(found)
