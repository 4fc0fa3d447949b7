"""Glance of a cloud in memory: images and what they are of."""

from __future__ import annotations

from typing import Protocol
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from nospoon.testing.fake_cinder import Json
from nospoon.testing.fake_neutron import missing


class Cloud(Protocol):
    """What it needs of its cloud."""

    url: str
    image_formats: tuple[str, ...]
    images: dict[str, Json]
    uploads: dict[str, bytes]

    def now(self) -> str: ...


async def answer(cloud: Cloud, request: Request, path: str) -> Response:
    """To one call."""
    match request.method, path.removeprefix("/v2").strip("/").split("/"):
        case "GET", [""]:
            links = [{"rel": "self", "href": f"{cloud.url}/image/v2/"}]
            return JSONResponse({"versions": [{"id": "v2.9", "status": "CURRENT", "links": links}]})
        case "GET", ["schemas", "image"]:
            formats = {"enum": [None, *cloud.image_formats], "type": ["null", "string"]}
            return JSONResponse({"properties": {"disk_format": formats}})
        case "GET", ["images", id_] if id_ in cloud.images:
            return JSONResponse(cloud.images[id_])
        case "GET", ["images"]:
            asked = {k: v for k, v in request.query_params.items() if k not in {"limit", "marker"}}
            found = [
                each
                for each in cloud.images.values()
                if all(each.get(key) == value for key, value in asked.items())
            ]
            shown = [dict(each) for each in found]
            for each in found:
                each["status"] = each["status"].replace("saving", "active")
            return JSONResponse({"images": shown})
        case "POST", ["images"]:
            id_ = str(uuid4())
            cloud.images[id_] = {
                "id": id_, "status": "queued", "created_at": cloud.now(),
                **await request.json(),
            }  # fmt: skip
            return JSONResponse(cloud.images[id_], 201)
        case "PATCH", ["images", id_] if id_ in cloud.images:
            for change in await request.json():
                name = change["path"].removeprefix("/")
                if change["op"] == "remove":
                    del cloud.images[id_][name]
                else:
                    cloud.images[id_][name] = change["value"]
            return JSONResponse(cloud.images[id_])
        case "PUT", ["images", id_, "file"] if id_ in cloud.images:
            cloud.uploads[id_] = await request.body()
            cloud.images[id_]["status"] = "active"
            return Response(status_code=204)
        case "DELETE", ["images", id_] if id_ in cloud.images:
            del cloud.images[id_]
            return Response(status_code=204)
    return missing(path)
