"""Key pairs of the user of a cloud in memory, as Nova has them."""

from __future__ import annotations

import re
from typing import Protocol
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from nospoon.testing.fake_cinder import Json

NAME = re.compile(r"[_\- a-zA-Z0-9]{1,255}")
"""Of Nova before 2.92 (`keypair_name_special_chars`)."""


class Cloud(Protocol):
    """What it needs of its cloud."""

    limits: Json
    key_pairs: dict[str, Json]


async def key_pairs(cloud: Cloud, request: Request, rest: list[str]) -> Response:
    """Calls of `/os-keypairs`."""
    match request.method, rest:
        case "GET", []:
            return JSONResponse({"keypairs": [{"keypair": e} for e in cloud.key_pairs.values()]})
        case "POST", []:
            body = (await request.json())["keypair"]
            return _made(cloud, body)
        case "DELETE", [name] if unquote(name) in cloud.key_pairs:
            del cloud.key_pairs[unquote(name)]
            return Response(status_code=202)
    return JSONResponse({"itemNotFound": {"message": "/".join(rest)}}, 404)


def _made(cloud: Cloud, body: Json) -> Response:
    name, most = body["name"], cloud.limits.get("maxTotalKeypairs", -1)
    if NAME.fullmatch(name) is None:
        return JSONResponse({"badRequest": {"message": f"Invalid input for name {name}"}}, 400)
    if name in cloud.key_pairs:
        message = f"Key pair '{name}' already exists."
        return JSONResponse({"conflictingRequest": {"message": message}}, 409)
    if 0 <= most <= len(cloud.key_pairs):
        message = "Quota exceeded, too many key pairs."
        return JSONResponse({"forbidden": {"message": message}}, 403)
    cloud.key_pairs[name] = {"name": name, "public_key": body["public_key"], "type": "ssh"}
    return JSONResponse({"keypair": cloud.key_pairs[name]}, 201)
