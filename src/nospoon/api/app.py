"""The application: /v1 over a unix socket; OpenAPI at /openapi.json."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Sequence
from itertools import islice

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic_core import ErrorDetails
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from nospoon import __version__
from nospoon.api.errors import encode, status_of
from nospoon.api.gate import Gate
from nospoon.api.peer import Members
from nospoon.api.routes import (
    clusters,
    files,
    images,
    labs,
    nodes,
    operations,
    services,
    snapshots,
    system,
    upkeep,
)
from nospoon.api.wire import PATTERNS
from nospoon.clusterfile.sections import wanted
from nospoon.control.controller import Controller
from nospoon.errors import NospoonError, NotFound, Transient, UsageError
from nospoon.runtime import storage
from nospoon.runtime.log_rate import RateLimitedLog

MAX_ERRORS = 20
"""Errors of a body that are told."""
MAX_TOLD = 200
"""Characters of each."""
MAX_LOGGED = 4000
"""Characters of a refusal in the log: one of a plan has a line for each of many nodes."""
NOT_FOUND, NOT_ALLOWED = 404, 405
SHOWN = 60
"""Characters of a text that does not fit."""


def create_app(controller: Controller, *, members: Members) -> FastAPI:
    """The REST API of a daemon."""
    app = FastAPI(title="nospoon", version=__version__, openapi_url=None)
    app.state.controller, app.state.members = controller, members
    app.state.log = RateLimitedLog()
    app.add_exception_handler(NospoonError, _refuse)
    app.add_exception_handler(OSError, _of_storage)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _unknown)
    app.add_middleware(Gate, members=members, log=app.state.log)
    for module in (
        system, files, images, clusters, nodes, operations, services, snapshots, labs, upkeep,
    ):  # fmt: skip
        app.include_router(module.router, prefix="/v1")

    @app.get("/openapi.json", include_in_schema=False)
    async def document() -> JSONResponse:
        """Made for the first who asks, in a thread: it takes a tenth of a second."""
        return JSONResponse(await asyncio.to_thread(app.openapi))

    return app


def prepare(app: FastAPI) -> None:
    """Have made and imported what FastAPI makes and imports for the first request: a tenth of a
    second, in which no BMC would be answered. Run it in a thread, before any request.
    """
    asyncio.run(run_in_threadpool(_match, app))  # which imports what runs functions of routes


def _match(app: FastAPI) -> None:
    inspect.getsourcelines(_match)  # as FastAPI does of each route: tokenize compiles its patterns
    for each in app.router.routes:
        each.matches({"type": "http", "method": "GET", "path": "/", "root_path": "", "headers": []})


async def _refuse(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, NospoonError)
    uid = str(request.client.host if request.client else "").removeprefix("uid=")
    log: RateLimitedLog = request.app.state.log
    why = str(error)[:MAX_LOGGED]
    log.info("refused", of=uid, uid=uid, path=request.url.path, error=why)
    return answer_of(error)


def answer_of(error: NospoonError) -> JSONResponse:
    """With Retry-After where the host said when it takes calls again (RFC 9110 section 10.2.3)."""
    headers = dict[str, str]()
    if isinstance(error, Transient) and error.retry_after is not None:
        headers["Retry-After"] = f"{math.ceil(error.retry_after)}"
    return JSONResponse(encode(error), status_code=status_of(error), headers=headers)


async def _of_storage(request: Request, error: Exception) -> JSONResponse:
    refusal = storage.as_refusal(error)
    if refusal is None:
        raise error
    return await _refuse(request, refusal)


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    del request
    assert isinstance(error, RequestValidationError)
    return JSONResponse(encode(UsageError(_summary(error.errors()))), status_code=400)


async def _unknown(request: Request, error: Exception) -> JSONResponse:
    """What Starlette answers by itself: no route has such a path, or none takes this method."""
    assert isinstance(error, HTTPException)
    path, hint = request.url.path[:MAX_TOLD], "GET /openapi.json lists all routes."
    refusal = NospoonError(str(error.detail))
    if error.status_code == NOT_FOUND:
        refusal = NotFound(f"the API has no {path}", hint=hint)
    elif error.status_code == NOT_ALLOWED:
        refusal = UsageError(f"{path} does not take {request.method[:MAX_TOLD]}", hint=hint)
    body, status = encode(refusal), error.status_code
    return JSONResponse(body, status_code=status, headers=error.headers)


def _summary(details: Sequence[ErrorDetails]) -> str:
    """The first errors, 4,000 characters in all: what was given may be long, and its keys too."""
    told = [_error(detail) for detail in islice(details, MAX_ERRORS)]
    more = len(details) - len(told)
    return "; ".join([*told, f"and {more} more"] if more else told)


def _error(detail: ErrorDetails) -> str:
    place = [str(part)[:MAX_TOLD] for part in detail["loc"]]
    if place[:1] == ["path"]:  # users of the command line know no names of its parts
        place = place[2:]
    where = ".".join(place)[: MAX_TOLD // 2]
    kind, context = detail["type"], detail.get("ctx", {})
    match kind:
        case "missing":
            what = "is missing"
        case "extra_forbidden":
            what = "is not a known field"
        case "value_error":
            what = str(context["error"])
        case "string_pattern_mismatch":
            what = f"expected {PATTERNS[context['pattern']]}, got {str(detail['input'])[:SHOWN]!r}"
        case _:
            what = f"expected {wanted(kind, context)}"
    return (f"{where}: {what}" if where else what)[:MAX_TOLD]
