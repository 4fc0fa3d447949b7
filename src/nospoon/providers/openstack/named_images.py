"""Images of a cloud that a cluster file names: theirs whose they are, and only looked at.

https://docs.openstack.org/api-ref/image/v2/
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from nospoon.errors import ProviderError
from nospoon.model.cloud_images import CloudImage, cloud_name
from nospoon.model.cluster import Firmware
from nospoon.providers.answers import number_of
from nospoon.providers.openstack.api import MOST_LISTED, Service
from nospoon.providers.openstack.around import Around
from nospoon.providers.openstack.images import FIRMWARES, FORMAT, RUN_BY
from nospoon.providers.openstack.roots import GIB, RUN_BY_ONCE
from nospoon.providers.openstack.tags import short

FIRMWARE, LEAST, BYTES = "hw_firmware_type", "min_disk", ("virtual_size", "size")
MOST_ALIKE = 100
"""Images of one name that are kept: a plan shows some of them for each of its nodes."""
OF_NAME = {said: firmware for firmware, said in FIRMWARES.items()}


async def named_images(around: Around, wanted: Iterable[str]) -> dict[str, tuple[CloudImage, ...]]:
    """By what the file says of each. Names are not unique in Glance, and one may be an id. Raises
    `ProviderError` where there are more than a project may have: a file has thousands of names.
    """
    found, left = dict[str, tuple[CloudImage, ...]](), MOST_LISTED
    for name in sorted(filter(None, map(cloud_name, wanted))):
        some = list[CloudImage]()
        listed = around.api.listed(Service.GLANCE, "/images", {"name": name}, read=_named)
        async for called, image in listed:
            left -= 1
            if left < 0:
                raise ProviderError(
                    f"Glance of cloud {around.api.name} lists more than {MOST_LISTED} images of "
                    "the names in the file"
                )
            some += [image] if called == name and len(some) < MOST_ALIKE else []
        found[name] = tuple(some or await _by_id(around, name))
    return found


async def _by_id(around: Around, name: str) -> list[CloudImage]:
    if not _is_id(name):
        return []
    image = await around.api.get(Service.GLANCE, f"/images/{name}", read=_read)
    return [image] if image is not None else []


def _is_id(name: str) -> bool:
    """As Glance writes them: nothing else becomes a part of a path."""
    try:
        return str(UUID(name)) == name
    except ValueError:
        return False


def _named(record: Mapping[str, object]) -> tuple[str, CloudImage]:
    """A cloud may list more than it is asked for."""
    return short(record.get("name") or ""), _read(record)


def _read(record: Mapping[str, object]) -> CloudImage:
    run_by = short(record.get(RUN_BY) or record.get(RUN_BY_ONCE) or "").lower()
    least, size = (_whole(record, *each) for each in ((LEAST,), BYTES))
    return CloudImage(
        id=short(record["id"]),
        status=short(record["status"]),
        format=short(record.get(FORMAT) or ""),
        hypervisor_type=run_by,
        firmware=OF_NAME.get(short(record.get(FIRMWARE) or ""), Firmware.BIOS),
        least=max(least * GIB, size),
    )


def _whole(record: Mapping[str, object], *names: str) -> int:
    """The first of these that is one: Glance says null of what it does not know."""
    said = (record.get(name) for name in names)
    return next((number_of(each) for each in said if isinstance(each, int) and each > 0), 0)
