"""The application: /v1 over a unix socket; OpenAPI at /openapi.json."""

from __future__ import annotations

from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from nospoon import __version__
from nospoon.api.errors import encode, status_of
from nospoon.api.routes import clusters, files, nodes, operations, snapshots, system, upkeep
from nospoon.control.controller import Controller
from nospoon.errors import NospoonError, UsageError

log = structlog.get_logger()


def create_app(controller: Controller, *, group: str) -> FastAPI:
    """The REST API of a daemon."""
    app = FastAPI(title="nospoon", version=__version__, docs_url=None, redoc_url=None)
    app.state.controller = controller
    app.state.group = group
    app.add_exception_handler(NospoonError, _refuse)
    app.add_exception_handler(RequestValidationError, _invalid)
    for module in (system, files, clusters, nodes, operations, snapshots, upkeep):
        app.include_router(module.router, prefix="/v1")
    return app


async def _refuse(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, NospoonError)
    log.info("refused", path=request.url.path, error=str(error))
    return JSONResponse(encode(error), status_code=status_of(error))


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    del request
    assert isinstance(error, RequestValidationError)
    return JSONResponse(encode(UsageError(_summary(error.errors()))), status_code=400)


def _summary(details: Any) -> str:
    return "; ".join(f"{'.'.join(map(str, d['loc']))}: {d['msg']}" for d in details)
