"""Images that users loaded."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ImageSummary:
    """`size`: bytes; `hypervisor_type`: "" for every machine that can begin with its format;
    `created`: Unix seconds.
    """

    name: str
    sha256: str
    format: str
    size: int
    hypervisor_type: str
    created: float
