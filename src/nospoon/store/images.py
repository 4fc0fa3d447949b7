"""Images that users loaded, by owner and name."""

from __future__ import annotations

from sqlalchemy import Connection, Row, delete, insert, select

from nospoon.model.images import HypervisorType, LoadedImage
from nospoon.model.principal import OwnerId
from nospoon.store import tables

images = tables.images


def of_owner(connection: Connection, owner: OwnerId) -> list[LoadedImage]:
    """By name."""
    query = select(images).where(images.c.owner == owner).order_by(images.c.name)
    return [_image(row) for row in connection.execute(query)]


def holders(connection: Connection) -> list[tuple[int, str]]:
    """Owner and SHA-256 of each."""
    return [
        (owner, sha256)
        for owner, sha256 in connection.execute(select(images.c.owner, images.c.sha256))
    ]


def put(connection: Connection, owner: OwnerId, image: LoadedImage) -> None:
    """In place of an earlier one of the same name."""
    remove(connection, owner, image.name)
    connection.execute(
        insert(images).values(
            owner=owner,
            name=image.name,
            sha256=image.sha256,
            format=image.format,
            size=image.size,
            hypervisor_type=image.hypervisor_type or "",
            created=image.created,
        )
    )


def remove(connection: Connection, owner: OwnerId, name: str) -> None:
    connection.execute(delete(images).where(images.c.owner == owner, images.c.name == name))


def _image(row: Row[tuple[object, ...]]) -> LoadedImage:
    kind = HypervisorType(row.hypervisor_type) if row.hypervisor_type else None
    return LoadedImage(row.name, row.sha256, row.format, row.size, kind, row.created)
