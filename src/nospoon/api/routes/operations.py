"""Operations: list, show, follow by server-sent events, cancel."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Header, Query
from fastapi.responses import StreamingResponse

from nospoon.api.answers import answered, record, records
from nospoon.api.depends import Called, Controlled
from nospoon.api.long_answers import JSON
from nospoon.control.controller import Controller
from nospoon.errors import NotFound
from nospoon.model.principal import Principal
from nospoon.model.rest.operations import OperationDetails, OperationSummary
from nospoon.runtime.paced import paced
from nospoon.store.operations import OperationRow

router = APIRouter(tags=["operations"])
PIECE, LONG = 64 << 10, 1 << 20
"""Characters of a result that are sent at a time, and of a long one."""
MAX_EVENT = 2**31 - 1
"""Of an event's number: what PostgreSQL's integer takes."""
MOST_DIGITS = 9


def _after(
    after: Annotated[int, Query(ge=0, le=MAX_EVENT)] = 0,
    last_event_id: Annotated[str, Header()] = "",
) -> int:
    """The number of the last event that a client has: `after`, or what an EventSource sends when it
    connects again (HTML, §9.2.4).
    """
    is_number = last_event_id.isascii() and last_event_id.isdigit()
    had = int(last_event_id) if is_number and len(last_event_id) <= MOST_DIGITS else 0
    return max(after, had)


After = Annotated[int, Depends(_after)]


def _summary(row: OperationRow) -> OperationSummary:
    return OperationSummary(**_about(row), finished=_time(row.finished) if row.finished else None)


def details(row: OperationRow) -> OperationDetails:
    """With its result."""
    finished = _time(row.finished) if row.finished else None
    return OperationDetails(**_about(row), finished=finished, result=row.result)


def _about(row: OperationRow) -> dict[str, str]:
    return {
        "id": str(row.id),
        "kind": row.kind,
        "cluster": row.cluster,
        "state": row.state,
        "created": _time(row.created),
        "message": row.message,
    }


def _time(unix: float) -> str:
    return datetime.fromtimestamp(unix, UTC).isoformat(timespec="seconds")


async def _own(controller: Controller, caller: Principal, id: UUID) -> OperationRow:  # noqa: A002
    row = await controller.operations.brief(id)
    if not caller.owns(row.owner):
        raise NotFound(f"no operation {id}")
    return row


@router.get("/operations", response_model=None, responses=answered(list[OperationSummary]))
async def operations(controller: Controlled, caller: Called) -> list[dict[str, object]]:
    """The caller's operations, newest first, without their results."""
    return records(map(_summary, await controller.operations.list(caller.uid)))


@router.get("/operations/{id}", response_model=None, responses=answered(OperationDetails))
async def operation(
    id: UUID,  # noqa: A002
    controller: Controlled,
    caller: Called,
) -> StreamingResponse:
    """One operation."""
    row = _summary(await _own(controller, caller, id))
    return StreamingResponse(_with_result(controller, caller, id, record(row)), media_type=JSON)


async def _with_result(
    controller: Controller,
    caller: Principal,
    id: UUID,  # noqa: A002
    row: Mapping[str, object],
) -> AsyncIterator[str]:
    """In JSON, piece by piece. The result is as it is stored: one of 50 MB, decoded and encoded,
    would keep all BMCs waiting for a second. Of such long ones a user is sent one at a time: a
    client takes it as slowly as it likes.
    """
    is_long = await controller.operations.result_size(id) > LONG
    turn = controller.turns.of("result", str(caller.uid)) if is_long else nullcontext()
    async with turn:
        text = await controller.operations.result_text(id)
        yield f'{json.dumps(row)[:-1]}, "result": '
        async for at in paced(range(0, len(text), PIECE)):
            yield text[at : at + PIECE]
        yield "}"


@router.get("/operations/{id}/events")
async def events(
    id: UUID,  # noqa: A002
    controller: Controlled,
    caller: Called,
    after: After,
) -> StreamingResponse:
    """Its events as they happen (text/event-stream); the last one has `state`, and no id."""
    await _own(controller, caller, id)

    async def lines() -> AsyncIterator[str]:
        async for batch in controller.operations.follow(id, after=after):
            yield "".join(f"id: {e['seq']}\ndata: {json.dumps(e)}\n\n" for e in batch if "seq" in e)
            if "seq" not in batch[-1]:
                yield "data: "
                async for piece in _with_result(controller, caller, id, batch[-1]):
                    yield piece
                yield "\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream")


@router.post("/operations/{id}/cancel", response_model=None, responses=answered(OperationDetails))
async def cancel(
    id: UUID,  # noqa: A002
    controller: Controlled,
    caller: Called,
) -> StreamingResponse:
    """Stop it; what it has made stays, and the next `up` or `down` goes on from there."""
    await _own(controller, caller, id)
    await controller.operations.cancel(id)
    row = record(_summary(await controller.operations.brief(id)))
    return StreamingResponse(_with_result(controller, caller, id, row), media_type=JSON)
