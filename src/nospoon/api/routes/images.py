"""Images that the caller loaded, by name."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter

from nospoon.api.depends import Called, Controlled
from nospoon.api.wire import ImageRequest
from nospoon.model.images import LoadedImage

router = APIRouter(tags=["images"])


@router.get("/images")
async def images(controller: Controlled, caller: Called) -> list[dict[str, object]]:
    """A row an image: name, sha256, format, size (bytes), hypervisor_type, created (Unix time)."""
    return [_row(each) for each in await controller.library.images(caller)]


@router.get("/images/{name}")
async def image(name: str, controller: Controlled, caller: Called) -> dict[str, object]:
    """One of them."""
    return _row(await controller.library.image(caller, name))


@router.put("/images/{name}")
async def load(
    name: str, body: ImageRequest, controller: Controlled, caller: Called
) -> dict[str, object]:
    """Give an uploaded file a name, which an earlier image loses."""
    kind = body.hypervisor_type
    return _row(await controller.library.load(caller, name, body.sha256, kind))


@router.delete("/images/{name}", status_code=204)
async def remove(name: str, controller: Controlled, caller: Called) -> None:
    """Remove one; refused while a cluster uses it."""
    await controller.library.remove(caller, name)


def _row(image: LoadedImage) -> dict[str, object]:
    return {**asdict(image), "hypervisor_type": image.hypervisor_type or ""}
