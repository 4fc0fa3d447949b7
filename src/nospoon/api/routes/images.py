"""Images that the caller loaded, by name."""

from __future__ import annotations

from fastapi import APIRouter

from nospoon.api.answers import answered, record, records
from nospoon.api.depends import Called, Controlled
from nospoon.api.wire import ImageRequest
from nospoon.model.images import LoadedImage
from nospoon.model.rest.images import ImageSummary

router = APIRouter(tags=["images"])


@router.get("/images", response_model=None, responses=answered(list[ImageSummary]))
async def images(controller: Controlled, caller: Called) -> list[dict[str, object]]:
    """A row an image: name, sha256, format, size (bytes), hypervisor_type, created (Unix time)."""
    return records(map(_summary, await controller.library.images(caller)))


@router.get("/images/{name}", response_model=None, responses=answered(ImageSummary))
async def image(name: str, controller: Controlled, caller: Called) -> dict[str, object]:
    """One of them."""
    return record(_summary(await controller.library.image(caller, name)))


@router.put("/images/{name}", response_model=None, responses=answered(ImageSummary))
async def load(
    name: str, body: ImageRequest, controller: Controlled, caller: Called
) -> dict[str, object]:
    """Give an uploaded file a name, which an earlier image loses."""
    kind = body.hypervisor_type
    return record(_summary(await controller.library.load(caller, name, body.sha256, kind)))


@router.delete("/images/{name}", status_code=204)
async def remove(name: str, controller: Controlled, caller: Called) -> None:
    """Remove one; refused while a cluster uses it."""
    await controller.library.remove(caller, name)


def _summary(image: LoadedImage) -> ImageSummary:
    return ImageSummary(
        name=image.name,
        sha256=image.sha256,
        format=image.format,
        size=image.size,
        hypervisor_type=image.hypervisor_type or "",
        created=image.created,
    )
