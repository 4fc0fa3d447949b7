"""What registered machines of labs ask and report while their inventory is taken.

    GET  /lab/inventory/{uuid}/ipxe     the script of one that is known by its UUID
    GET  /lab/{secret}/probe-kernel     the probe
    GET  /lab/{secret}/probe-initrd
    POST /lab/{secret}/inventory        the probe's record, JSON; text/plain, "ok"

One that is known by a MAC asks as for its installer (`lab`). What is of no inventory that is being
taken is 404, and so is the record of another machine, and a second one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route

from nospoon.probe.record import Record, decode
from nospoon.runtime.socket_diag import Place
from nospoon.services.netboot.bodies import TOO_LARGE, body_of
from nospoon.services.netboot.lab import base_of, unknown, when_ready


class Inventoried(Protocol):
    """What the labs answer; `base`: this server's URL as the machine reaches it."""

    async def probe_script(
        self, uuid: str, base: str, *, peer: Place, here: Place
    ) -> str | None: ...
    def probe_file(self, secret: str, name: str) -> Path | None: ...
    async def inventory(self, secret: str, record: Record) -> bool: ...


def inventory_routes(lab: Inventoried, ready: Callable[[], bool]) -> list[Route]:
    """To be put before those of `lab`."""

    async def script(request: Request) -> Response:
        if request.client is None:
            return unknown()
        peer, here = request.client, request.scope["server"]
        place, port = (peer.host, peer.port), (here[0], here[1])
        uuid = request.path_params["uuid"]
        text = await lab.probe_script(uuid, base_of(request), peer=place, here=port)
        return PlainTextResponse(text) if text is not None else unknown()

    async def file(request: Request) -> Response:
        name = request.url.path.rpartition("/")[2]
        path = lab.probe_file(request.path_params["secret"], name)
        if path is None:
            return unknown()
        return FileResponse(path, media_type="application/octet-stream")

    async def report(request: Request) -> Response:
        body = await body_of(request)
        if body is None:
            return PlainTextResponse("a record is shorter\n", TOO_LARGE)
        record = decode(body)
        if record is None or not await lab.inventory(request.path_params["secret"], record):
            return unknown()
        return PlainTextResponse("ok\n")

    return [
        Route("/lab/inventory/{uuid}/ipxe", when_ready(ready, script), methods=["GET"]),
        Route("/lab/{secret}/probe-kernel", when_ready(ready, file), methods=["GET"]),
        Route("/lab/{secret}/probe-initrd", when_ready(ready, file), methods=["GET"]),
        Route("/lab/{secret}/inventory", when_ready(ready, report), methods=["POST"]),
    ]
