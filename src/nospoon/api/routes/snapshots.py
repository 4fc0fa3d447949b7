"""Snapshots of clusters."""

from __future__ import annotations

from fastapi import APIRouter

from nospoon.api.answers import answered, record, records
from nospoon.api.depends import Called, Controlled
from nospoon.api.routes.operations import details
from nospoon.api.wire import SnapshotRequest
from nospoon.model.rest.clusters import SnapshotSummary
from nospoon.model.rest.operations import OperationDetails

router = APIRouter(tags=["snapshots"])


@router.get(
    "/clusters/{name}/snapshots", response_model=None, responses=answered(list[SnapshotSummary])
)
async def snapshots(name: str, controller: Controlled, caller: Called) -> list[dict[str, object]]:
    """A row a snapshot: name, state, created (Unix seconds), nodes, and how many were on."""
    return records(await controller.snapshots.rows(caller, name))


@router.post(
    "/clusters/{name}/snapshots",
    status_code=202,
    response_model=None,
    responses=answered(OperationDetails, status=202),
)
async def create(
    name: str, body: SnapshotRequest, controller: Controlled, caller: Called
) -> dict[str, object]:
    """Take one, as an operation; nodes that run are paused together meanwhile."""
    return record(details(await controller.snapshots.create(caller, name, body.name)))


@router.post(
    "/clusters/{name}/snapshots/{snapshot}/restore",
    status_code=202,
    response_model=None,
    responses=answered(OperationDetails, status=202),
)
async def restore(
    name: str, snapshot: str, controller: Controlled, caller: Called
) -> dict[str, object]:
    """Bring its nodes' disks, firmware variables and power back, as an operation."""
    return record(details(await controller.snapshots.restore(caller, name, snapshot)))


@router.delete(
    "/clusters/{name}/snapshots/{snapshot}",
    status_code=202,
    response_model=None,
    responses=answered(OperationDetails, status=202),
)
async def delete(
    name: str, snapshot: str, controller: Controlled, caller: Called
) -> dict[str, object]:
    """Delete one, as an operation."""
    return record(details(await controller.snapshots.delete(caller, name, snapshot)))
