"""Images in Glance, of a cloud in the user's clouds.yaml."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nospoon.control.content.images import (
    HEAD,
    ROOT_HEAD,
    format_of,
    is_root,
    refuse_other_disk,
    refuse_other_root,
)
from nospoon.errors import Conflict, MissingTool, NotFound, ProviderError, UsageError
from nospoon.model.images import CONTAINERS, HypervisorType
from nospoon.runtime.reasons import reason

if TYPE_CHECKING:
    from openstack.connection import Connection

PROPERTIES = ("img_hv_type", "hypervisor_type")
"""The first is what Nova's ImagePropertiesFilter looks at, the second its former name."""


def load(cloud: str, file: Path, name: str, kind: HypervisorType | None) -> dict[str, object]:
    """Upload it under a name that no image of the project has."""
    kinds = formats(file, kind)
    with _connected(cloud) as connection:
        if _found(connection, name):
            raise Conflict(
                f"cloud {cloud!r} has an image {name!r}",
                hint="Remove it, or choose another --name.",
            )
        wanted: dict[str, Any] = dict(kinds)
        wanted |= dict.fromkeys(PROPERTIES, str(kind)) if kind is not None else {}
        with file.open("rb") as content:
            wanted["data"] = content  # sent in pieces, although it is declared as bytes
            made = connection.image.create_image(name=name, **wanted)
        return _row(connection.image.get_image(made.id))


def images(cloud: str) -> list[dict[str, object]]:
    """All that the project sees, by name."""
    with _connected(cloud) as connection:
        return sorted(map(_row, connection.image.images()), key=lambda row: str(row["name"]))


def image(cloud: str, name: str) -> dict[str, object]:
    """One of them. Raises `NotFound`."""
    with _connected(cloud) as connection:
        return _row(_one(connection, cloud, name))


def remove(cloud: str, name: str) -> None:
    with _connected(cloud) as connection:
        connection.image.delete_image(_one(connection, cloud, name).id)


def formats(file: Path, kind: HypervisorType | None) -> dict[str, str]:
    """`disk_format` and `container_format` of a file, by its first bytes. Raises `UsageError` for
    what Nova cannot use.
    """
    if kind is HypervisorType.DOCKER:
        with file.open("rb") as content:
            refuse_other_root(str(file), content.read(ROOT_HEAD))
        return {"disk_format": "raw", "container_format": "docker"}
    if is_root(file):
        raise UsageError(
            f"{file} is a root file system, packed as a tar; Nova boots disks, and its LXC driver "
            "an ext4 file system",
            hint="Make one: nospoon image build DIRECTORY --as ext4.",
        )
    refuse_other_disk(file, str(file))
    with file.open("rb") as content:
        disk = format_of(str(file), content.read(HEAD))
    if kind in CONTAINERS and disk != "raw":
        raise UsageError(
            f"{file} is a qcow2, which Nova's LXC driver mounts only by NBD",
            hint="Convert it: qemu-img convert -O raw OLD NEW.",
        )
    return {"disk_format": disk, "container_format": "bare"}


@contextmanager
def _connected(cloud: str) -> Iterator[Connection]:
    try:
        import openstack  # noqa: PLC0415  (an extra)
        from openstack import exceptions  # noqa: PLC0415
    except ImportError as error:
        raise MissingTool(
            "openstacksdk is needed for --os-cloud, and is not installed",
            hint="Install it with `pip install 'nospoon[ironic]'`; without `--os-cloud`, images "
            "are those of nospoon's own store.",
        ) from error
    try:
        with openstack.connect(cloud=cloud) as connection:
            yield connection
    except exceptions.ConfigException as error:
        raise UsageError(
            f"cloud {cloud!r} is not in clouds.yaml, or its entry is not complete",
            hint="OS_CLIENT_CONFIG_FILE names a clouds.yaml.",
        ) from error
    except exceptions.SDKException as error:
        answered = getattr(error, "status_code", None)  # where there was an answer at all
        said = f"it answers HTTP {answered}" if answered else reason(error)
        raise ProviderError(f"Glance of cloud {cloud!r}: {said}") from error


def _found(connection: Connection, name: str) -> list[Any]:
    by_name = list(connection.image.images(name=name))
    return by_name or [each for each in connection.image.images() if each.id == name]


def _one(connection: Connection, cloud: str, name: str) -> Any:
    found = _found(connection, name)
    if not found:
        raise NotFound(f"cloud {cloud!r} has no image {name!r} that its project sees")
    if len(found) > 1:
        ids = ", ".join(sorted(each.id for each in found))
        raise UsageError(f"cloud {cloud!r} has several images {name!r}", hint=f"Name an id: {ids}.")
    return found[0]


def _row(image: Any) -> dict[str, object]:
    """The same columns as those of images in nospoon's store."""
    kind = image.hypervisor_type or image.properties.get("img_hv_type", "")
    return {
        "name": image.name, "hypervisor_type": kind, "format": image.disk_format,
        "size": image.size, "created": image.created_at, "id": image.id,
    }  # fmt: skip
