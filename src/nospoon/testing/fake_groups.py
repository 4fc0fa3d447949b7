"""Server groups of a cloud in memory, as Nova has them."""

from __future__ import annotations

from typing import Protocol
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from nospoon.testing.fake_cinder import Json

WITH_RULES = 64


class Cloud(Protocol):
    """What it needs of its cloud."""

    limits: Json
    server_groups: dict[str, Json]
    compute_hosts: int
    full: set[str]


async def server_groups(cloud: Cloud, request: Request, rest: list[str]) -> Response:
    """Calls of `/os-server-groups`. One policy with rules is shown from microversion 2.64 on, a
    list of them before.
    """
    asked = request.headers.get("X-OpenStack-Nova-API-Version", "2.1")
    has_rules = int(asked.partition(".")[2]) >= WITH_RULES
    match request.method, rest:
        case "GET", []:
            first = int(request.query_params.get("offset", 0))
            most = int(request.query_params.get("limit", 1000))
            found = list(cloud.server_groups.values())[first : first + most]
            return JSONResponse({"server_groups": [_shown(e, has_rules=has_rules) for e in found]})
        case "POST", []:
            body = (await request.json())["server_group"]
            if ("policy" in body) is not has_rules:
                return JSONResponse({"badRequest": {"message": "no such property"}}, 400)
            most = cloud.limits.get("maxServerGroups", -1)
            if 0 <= most <= len(cloud.server_groups):
                message = "Quota exceeded, too many server groups."
                return JSONResponse({"forbidden": {"message": message}}, 403)
            id_ = str(uuid4())
            policy = body["policy"] if has_rules else body["policies"][0]
            made = {"id": id_, "name": body["name"], "policy": policy, "members": []}
            cloud.server_groups[id_] = {**made, "rules": body.get("rules", {})}
            shown = _shown(cloud.server_groups[id_], has_rules=has_rules)
            return JSONResponse({"server_group": shown})
        case "DELETE", [id_] if id_ in cloud.server_groups:
            del cloud.server_groups[id_]
            return Response(status_code=204)
    return JSONResponse({"itemNotFound": {"message": "/".join(rest)}}, 404)


def _shown(group: Json, *, has_rules: bool) -> Json:
    policy = group["policy"]
    rest = {name: group[name] for name in ("id", "name", "members")}
    if has_rules:
        return {**rest, "policy": policy, "rules": group["rules"]}
    return {**rest, "policies": [policy], "metadata": {}}


def has_compute_host(cloud: Cloud, group: str, *of: str) -> bool:
    """Whether one is left for the newest server of a group that is strict and apart. `of`: its zone
    and flavor.
    """
    if not cloud.full.isdisjoint(of):
        return False
    known = cloud.server_groups.get(group)
    if known is None or not cloud.compute_hosts or known["policy"] != "anti-affinity":
        return True
    most: int = known["rules"].get("max_server_per_host", 1)
    members: list[str] = known["members"]
    return len(members) <= cloud.compute_hosts * most
