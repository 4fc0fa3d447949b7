"""Nodes and BMCs: list, power, boot, console."""

from __future__ import annotations

import contextlib

from fastapi import APIRouter, Request, Response, WebSocket
from fastapi.responses import StreamingResponse

from nospoon.api import long_answers
from nospoon.api.answers import answered, record, records
from nospoon.api.depends import Called, Controlled
from nospoon.api.leaving import unless_gone
from nospoon.api.wire import BootRequest, FaultRequest, MediaRequest, PowerRequest
from nospoon.errors import Gone, NospoonError
from nospoon.model.rest.nodes import (
    BmcAccess,
    BootSetting,
    InjectedFault,
    MediaSetting,
    NodeDetails,
    NodeLogin,
    NodeSummary,
    PowerResult,
)
from nospoon.runtime.tasks import Tasks
from nospoon.services.consoles.service import Attached

router = APIRouter(tags=["nodes"])
LONGEST_REASON = 123
"""Bytes of why a websocket is closed (RFC 6455 §5.5)."""
REFUSED = 4000
"""Close code of a console that is not available; the reason says why."""


@router.get("/nodes", responses=answered(list[NodeSummary]))
async def nodes(
    request: Request, controller: Controlled, caller: Called, cluster: str = ""
) -> Response:
    """The caller's nodes, all or of one cluster, with power and BMC."""
    found = await unless_gone(request, controller.nodes.rows(caller, cluster))
    return await long_answers.rows(found)


@router.get("/bmcs", responses=answered(list[BmcAccess]))
async def bmcs(
    request: Request, controller: Controlled, caller: Called, cluster: str = ""
) -> Response:
    """Where the caller's BMCs answer, with their credentials."""
    found = await unless_gone(request, controller.nodes.bmc_rows(caller, cluster))
    return await long_answers.rows(found)


@router.get("/nodes/{node:path}/show", response_model=None, responses=answered(NodeDetails))
async def node(node: str, controller: Controlled, caller: Called) -> dict[str, object]:
    """One node, by name, cluster/name or UUID."""
    return record(await controller.nodes.show(caller, node))


@router.get("/nodes/{node:path}/login", response_model=None, responses=answered(NodeLogin))
async def login(node: str, controller: Controlled, caller: Called) -> dict[str, object]:
    """Where ssh finds the node: its address, and the host that it is reached through."""
    return record(await controller.login(caller, node))


@router.post("/nodes/{node:path}/power", response_model=None, responses=answered(PowerResult))
async def power(
    node: str, body: PowerRequest, controller: Controlled, caller: Called
) -> dict[str, object]:
    """Give the node's BMC a chassis command."""
    return record(await controller.nodes.power(caller, node, body.command))


@router.post(
    "/nodes/{node:path}/faults", response_model=None, responses=answered(list[InjectedFault])
)
async def set_fault(
    node: str, body: FaultRequest, controller: Controlled, caller: Called
) -> list[dict[str, object]]:
    """Inject a fault into the node's BMC; returns all its injected faults."""
    await controller.nodes.fault(caller, node, body.fault(), body.for_seconds)
    return records(await controller.nodes.faults(caller, node))


@router.get(
    "/nodes/{node:path}/faults", response_model=None, responses=answered(list[InjectedFault])
)
async def faults(node: str, controller: Controlled, caller: Called) -> list[dict[str, object]]:
    """The injected faults of a node's BMC."""
    return records(await controller.nodes.faults(caller, node))


@router.delete(
    "/nodes/{node:path}/faults", response_model=None, responses=answered(list[InjectedFault])
)
async def clear_faults(
    node: str, controller: Controlled, caller: Called
) -> list[dict[str, object]]:
    """Clear the injected faults of a node's BMC."""
    await controller.nodes.clear_faults(caller, node)
    return records(await controller.nodes.faults(caller, node))


@router.post("/nodes/{node:path}/boot", response_model=None, responses=answered(BootSetting))
async def boot(
    node: str, body: BootRequest, controller: Controlled, caller: Called
) -> dict[str, object]:
    """Set the boot override that the node's BMC holds."""
    found = await controller.nodes.boot(
        caller, node, target=body.target, enabled=body.enabled, mode=body.mode
    )
    return record(found)


@router.post("/nodes/{node:path}/media", response_model=None, responses=answered(MediaSetting))
async def insert(
    node: str, body: MediaRequest, controller: Controlled, caller: Called
) -> dict[str, object]:
    """Put an image into the node's CD drive; answers when it is in."""
    if body.sha256:
        return record(await controller.nodes.insert_uploaded(caller, node, body.sha256, body.name))
    found = await controller.nodes.insert(
        caller,
        node,
        body.url,
        username=body.username,
        password=body.password,
        verify=body.verify,
    )
    return record(found)


@router.delete("/nodes/{node:path}/media", response_model=None, responses=answered(MediaSetting))
async def eject(node: str, controller: Controlled, caller: Called) -> dict[str, object]:
    """Empty the node's CD drive."""
    return record(await controller.nodes.eject(caller, node))


@router.get("/nodes/{node:path}/log")
async def log(
    node: str, controller: Controlled, caller: Called, *, follow: bool = False
) -> StreamingResponse:
    """The console's record from power-on, every byte; with `follow` for ever."""
    chunks = await controller.nodes.console_log(caller, node, follow=follow)
    return StreamingResponse(chunks, media_type="application/octet-stream")


@router.websocket("/nodes/{node:path}/console")
async def console(node: str, socket: WebSocket, controller: Controlled, caller: Called) -> None:
    """The interactive console: binary messages both ways."""
    await socket.accept()
    try:
        attached = await controller.nodes.console(caller, node)
    except NospoonError as error:
        await socket.close(REFUSED, str(error).encode()[:LONGEST_REASON].decode(errors="ignore"))
        return
    async with attached, Tasks("console") as tasks:
        tasks.start(_send(socket, node, attached), name=node)
        while (message := await socket.receive())["type"] != "websocket.disconnect":
            typed = message.get("bytes")
            with contextlib.suppress(Gone):  # as on a real line: a machine that is off is deaf
                await attached.write(message["text"].encode() if typed is None else typed)


async def _send(socket: WebSocket, node: str, attached: Attached) -> None:
    async for data in attached.output():
        await socket.send_bytes(data)
    if attached.is_removed:
        await socket.close(REFUSED, f"node {node} was removed"[:LONGEST_REASON])
    else:
        await socket.close()
