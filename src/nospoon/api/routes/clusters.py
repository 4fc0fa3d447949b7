"""Clusters: plan, up, down, status, verify."""

from __future__ import annotations

from http import HTTPStatus

import msgspec
from fastapi import APIRouter
from fastapi import Request as HttpRequest
from fastapi.responses import Response

from nospoon.api import long_answers
from nospoon.api.answers import answered, record, records
from nospoon.api.depends import Called, Controlled
from nospoon.api.leaving import unless_gone
from nospoon.api.long_answers import JSON
from nospoon.api.routes.operations import details
from nospoon.api.wire import ClusterRequest, DownRequest, VerifyRequest
from nospoon.control.operations.work import Removal
from nospoon.control.request import Request
from nospoon.model.ironic import Leaving
from nospoon.model.principal import Principal
from nospoon.model.rest.clusters import ClusterStatus, ClusterSummary, Exported
from nospoon.model.rest.hosts import HostFinding, HostSummary
from nospoon.model.rest.operations import OperationDetails
from nospoon.model.rest.plans import BegunPlan, ShownPlan
from nospoon.plan.document import document
from nospoon.plan.order.steps import Plan
from nospoon.plan.text import plan_text
from nospoon.runtime.freeing import free

router = APIRouter(tags=["clusters"])
_JSON = msgspec.json.Encoder()
"""Encodes in a tenth of json's time, in which no other thread has its turn."""


def _request(body: ClusterRequest, caller: Principal) -> Request:
    return Request(
        caller=caller,
        file=body.file,
        text=body.text,
        uploads=body.uploads,
        cluster_id=body.cluster_id,
        fingerprint=body.fingerprint,
        rebalance=body.rebalance,
        targets=tuple(dict.fromkeys(body.targets)),
        parallel=body.parallel,
        force=body.force,
    )


def _shown(plan: Plan) -> Response:
    """Run it in a thread: 20,000 nodes take seconds."""
    return Response(_JSON.encode(ShownPlan(document(plan), plan_text(plan))), media_type=JSON)


def _begun(plan: Plan, operation: OperationDetails | None) -> Response:
    """Run it in a thread, too."""
    answer = BegunPlan(document(plan), plan_text(plan), operation)
    return Response(_JSON.encode(answer), HTTPStatus.ACCEPTED, media_type=JSON)


@router.post("/plan", responses=answered(ShownPlan))
async def plan(
    body: ClusterRequest, request: HttpRequest, controller: Controlled, caller: Called
) -> Response:
    """What `up` would do: `{plan, text}`; changes nothing. One at a time for each user."""
    held = [await unless_gone(request, controller.plan(_request(body, caller)))]
    answer = await controller.planner.workers.run(caller.uid, _shown, held[0])
    await free(held)
    return answer


@router.post(
    "/fetch",
    status_code=202,
    response_model=None,
    responses=answered(OperationDetails | None, status=202),
)
async def fetch(
    body: ClusterRequest, controller: Controlled, caller: Called
) -> dict[str, object] | None:
    """Fetch what the file names by URL, as an operation; null when all of it is here."""
    row = await controller.fetch(_request(body, caller))
    return record(details(row)) if row is not None else None


@router.get("/hosts", responses=answered(list[HostSummary]))
async def list_hosts(request: HttpRequest, controller: Controlled, caller: Called) -> Response:
    """The hosts of the caller's clusters, a row a cluster; `memory` in bytes, `away`: why."""
    found = await unless_gone(request, controller.list_hosts(caller))
    return await long_answers.rows(found)


@router.post("/hosts/check", response_model=None, responses=answered(list[HostFinding]))
async def check_hosts(
    body: ClusterRequest, request: HttpRequest, controller: Controlled, caller: Called
) -> Response:
    """What the hosts of a file have of what they need, a row a finding; changes nothing."""
    found = await unless_gone(request, controller.check_hosts(_request(body, caller)))
    return await long_answers.rows(found)


@router.post("/clusters", status_code=202, responses=answered(BegunPlan, status=202))
async def up(body: ClusterRequest, controller: Controlled, caller: Called) -> Response:
    """Bring a cluster to its file: `{plan, text, operation}`, the last null for nothing to do."""
    plan, row = await controller.up(_request(body, caller))
    held, operation = [plan], details(row) if row is not None else None
    del plan
    answer = await controller.planner.workers.run(caller.uid, _begun, held[0], operation)
    await free(held)
    return answer


@router.get("/clusters", response_model=None, responses=answered(list[ClusterSummary]))
async def clusters(controller: Controlled, caller: Called) -> list[dict[str, object]]:
    """The caller's clusters."""
    return records(await controller.clusters(caller))


@router.get("/clusters/{name}", responses=answered(ClusterStatus))
async def status(
    name: str, request: HttpRequest, controller: Controlled, caller: Called
) -> Response:
    """Desired and observed state, and drift, node by node. One at a time for each user."""
    found = [await unless_gone(request, controller.status(caller, name))]
    answer = await long_answers.status(found[0])
    await free(found)
    return answer


@router.get("/clusters/{name}/removal", responses=answered(ShownPlan))
async def removal(
    name: str,
    request: HttpRequest,
    controller: Controlled,
    caller: Called,
    *,
    force: bool = False,
    enrolment: Leaving = Leaving.REMOVE,
) -> Response:
    """What `down` would remove: `{plan, text}`; changes nothing."""
    how = Removal(force=force, enrolment=enrolment)
    held = [await unless_gone(request, controller.removal(caller, name, how))]
    answer = await controller.planner.workers.run(caller.uid, _shown, held[0])
    await free(held)
    return answer


@router.get("/clusters/{name}/export/{to}", responses=answered(Exported))
async def export(name: str, to: str, controller: Controlled, caller: Called) -> Response:
    """A cluster of the caller's as what another tool reads: `{text, left_out}`, with passwords."""
    made = await controller.export(caller, name, to)
    content = await controller.planner.workers.run(caller.uid, _JSON.encode, made)
    return Response(content, media_type="application/json")


@router.post(
    "/clusters/{name}/down",
    status_code=202,
    response_model=None,
    responses=answered(OperationDetails, status=202),
)
async def down(
    name: str, body: DownRequest, controller: Controlled, caller: Called
) -> dict[str, object]:
    """Remove everything of a cluster, as an operation."""
    how = Removal(body.purge, body.force, body.enrolment)
    return record(details(await controller.down(caller, name, how)))


@router.post(
    "/clusters/{name}/verify",
    status_code=202,
    response_model=None,
    responses=answered(OperationDetails, status=202),
)
async def verify(
    name: str, body: VerifyRequest, controller: Controlled, caller: Called
) -> dict[str, object]:
    """Boot the probe on its nodes and compare, as an operation."""
    row = await controller.verify(
        caller,
        name,
        nodes=body.nodes,
        reboot_running=body.reboot_running,
        timeout=body.timeout,
    )
    return record(details(row))
