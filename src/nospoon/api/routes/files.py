"""Uploads: content by its SHA-256."""

from __future__ import annotations

from fastapi import APIRouter, Request

from nospoon.api.depends import Called, Controlled

router = APIRouter(tags=["files"])


@router.post("/files/missing")
async def missing(digests: list[str], controller: Controlled, caller: Called) -> list[str]:
    """Which of these digests were not uploaded yet."""
    del caller
    return [digest for digest in digests if not controller.files.wanted(digest)]


@router.put("/files/{sha256}", status_code=204)
async def upload(sha256: str, request: Request, controller: Controlled, caller: Called) -> None:
    """Take a file's content; refused when it does not match the digest."""
    del caller
    await controller.files.receive(sha256, request.stream())
