"""Uploads: content by its SHA-256."""

from __future__ import annotations

from fastapi import APIRouter, Request

from nospoon.api.depends import Called, Controlled
from nospoon.api.wire import Digests

router = APIRouter(tags=["files"])


@router.post("/files/missing")
async def missing(digests: Digests, controller: Controlled, caller: Called) -> list[str]:
    """Which of these digests, at most 1,000, were not uploaded yet."""
    return await controller.files.missing(digests, owner=caller.uid)


@router.put("/files/{sha256}", status_code=204)
async def upload(sha256: str, request: Request, controller: Controlled, caller: Called) -> None:
    """Take a file's content; refused when it does not match the digest."""
    told = request.headers.get("content-length", "")
    await controller.files.receive(
        sha256,
        request.stream(),
        owner=caller.uid,
        announced=int(told) if told.isdigit() else 0,
    )
