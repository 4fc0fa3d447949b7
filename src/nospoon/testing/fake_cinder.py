"""Cinder of a cloud in memory: types, limits and quotas, volumes, their snapshots and images."""

from __future__ import annotations

from collections import Counter
from typing import Any, Protocol
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

Json = dict[str, Any]
DONE = {"creating": "available", "uploading": "available"}
"""What is under way is over at the next look."""


class Cloud(Protocol):
    """What it needs of its cloud."""

    url: str
    images: dict[str, Json]
    limits: Json
    volumes: dict[str, Json]
    volume_snapshots: dict[str, Json]
    volume_types: list[str]
    volume_quotas: dict[str, int]

    def now(self) -> str: ...


async def answer(cloud: Cloud, request: Request, path: str) -> Response:
    """To one call. After the version in a path comes the project."""
    match request.method, path.strip("/").split("/"):
        case _, [_]:
            links = [{"rel": "self", "href": f"{cloud.url}/volume/v3/"}]
            return JSONResponse({"versions": [{
                "id": "v3.0", "status": "CURRENT", "version": "3.70", "min_version": "3.0",
                "links": links,
            }]})  # fmt: skip
        case "GET", [_, _, "types"]:
            named = [{"id": each, "name": each} for each in cloud.volume_types]
            return JSONResponse({"volume_types": named})
        case "GET", [_, _, "types", "default"]:
            return JSONResponse({"volume_type": {"id": "d", "name": cloud.volume_types[0]}})
        case "GET", [_, _, "os-quota-sets", project]:
            return JSONResponse({"quota_set": {"id": project, **_quotas(cloud)}})
        case "GET", [_, _, "limits"]:
            used = {
                "totalVolumesUsed": len(cloud.volumes),
                "totalGigabytesUsed": sum(each["size"] for each in cloud.volumes.values()),
            }
            return JSONResponse({"limits": {"rate": [], "absolute": {**used, **cloud.limits}}})
        case _, [_, _, "volumes" | "snapshots" as kind, *rest]:
            return await _thing(cloud, request, kind, rest)
    return _missing(path)


async def _thing(cloud: Cloud, request: Request, kind: str, rest: list[str]) -> Response:
    things = cloud.volumes if kind == "volumes" else cloud.volume_snapshots
    name = kind.removesuffix("s")
    match request.method, rest:
        case "GET", ["detail"]:
            return JSONResponse({kind: list(things.values())})
        case "POST", []:
            made: Json = {"id": str(uuid4()), "status": "creating", **(await request.json())[name]}
            if kind == "volumes":
                source = cloud.volumes[cloud.volume_snapshots[made["snapshot_id"]]["volume_id"]]
                same = {key: source[key] for key in ("size", "volume_type", "image_metadata")}
                made |= {"server": "", "attachments": [], **same}
            things[made["id"]] = made
            return JSONResponse({name: made}, 202)
        case "GET", [id_] if id_ in things:
            shown = dict(things[id_])
            things[id_]["status"] = DONE.get(shown["status"], shown["status"])
            return JSONResponse({name: shown})
        case "DELETE", [id_] if id_ in things:
            if things[id_]["status"] not in {"available", "error"}:
                message = f"{name} status must be available or error"
                return JSONResponse({"badRequest": {"message": message}}, 400)
            del things[id_]
            return Response(status_code=202)
        case "POST", [id_, "action"] if id_ in things:
            return _act(cloud, things[id_], await request.json())
    return _missing("/".join(rest))


def _act(cloud: Cloud, volume: Json, action: Json) -> Response:
    ((name, how),) = action.items()
    if name == "os-set_image_metadata":
        volume["image_metadata"] = {**volume["image_metadata"], **how["metadata"]}
        return JSONResponse({"metadata": how["metadata"]})
    if volume["status"] != "available":
        message = "Volume status must be available"
        return JSONResponse({"badRequest": {"message": message}}, 400)
    id_ = str(uuid4())
    cloud.images[id_] = {
        **volume["image_metadata"], "id": id_, "name": how["image_name"], "status": "saving",
        "created_at": cloud.now(),
    }  # fmt: skip
    volume["status"] = "uploading"
    return JSONResponse({name: {"image_id": id_}}, 202)


def _quotas(cloud: Cloud) -> dict[str, Json]:
    used = Counter[str]()
    for each in cloud.volumes.values():
        used[f"volumes_{each['volume_type']}"] += 1
        used[f"gigabytes_{each['volume_type']}"] += each["size"]
    return {
        name: {"limit": most, "in_use": used[name], "reserved": 0, "allocated": 0}
        for name, most in cloud.volume_quotas.items()
    }


def _missing(path: str) -> Response:
    return JSONResponse({"itemNotFound": {"message": f"{path} is not there"}}, 404)
