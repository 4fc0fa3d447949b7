"""Images that are in a cloud already: a server starts from one of its Glance, by name or by id."""

from __future__ import annotations

from dataclasses import dataclass

from nospoon.model.cluster import Firmware

IN_CLOUD = "glance:"
"""Begins the name of such an image in a cluster file, and its id in the disk of a machine."""


@dataclass(frozen=True, slots=True)
class CloudImage:
    """What a cloud says of one. `status`: Glance's; `hypervisor_type`: of what runs it, by its
    property `img_hv_type`, "" for any; `least`: bytes of the disk that it needs.
    """

    id: str
    status: str
    format: str
    hypervisor_type: str
    firmware: Firmware
    least: int


def cloud_name(image: str) -> str:
    """The name or id of the image that a cluster file means; "" for one that is not in a cloud."""
    return image.removeprefix(IN_CLOUD) if image.startswith(IN_CLOUD) else ""
