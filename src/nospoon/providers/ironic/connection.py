"""Every Ironic that clusters are enrolled in, and its drivers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from uuid import UUID

from nospoon.model.ironic import Held, IronicPlace
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.answers import text_of
from nospoon.providers.base import Driver
from nospoon.providers.cloud_calls import Clouds
from nospoon.providers.ironic import records
from nospoon.providers.ironic.api import Api
from nospoon.providers.ironic.drivers import (
    CONNECTORS,
    TARGETS,
    Around,
    NodeDriver,
    PortDriver,
    PortgroupDriver,
    SecretsOf,
    VolumeDriver,
)
from nospoon.providers.ironic.records import Record
from nospoon.providers.ironic.standing import StandingDriver
from nospoon.providers.understood import understood
from nospoon.runtime.tasks import Tasks

LONGEST_NAME = 255
"""Characters of a node's name, and of a port's address."""


@understood
class Ironics:
    """Every Ironic in use, by its place; connected when first asked."""

    def __init__(
        self,
        deployment: str,
        secrets: SecretsOf,
        tasks: Tasks,
        clouds: Clouds,
        *,
        patience: float = 0.0,
    ) -> None:
        self._patience, self._clouds = patience, clouds
        self._deployment, self._secrets = deployment, secrets
        self._tasks = tasks

    def drivers(
        self, place: IronicPlace, user: int, *, force: bool = False
    ) -> Mapping[Kind, Driver]:
        """The drivers of one Ironic, for a user. `force`: they remove nodes in use, too."""
        around = Around(self._api(place, user), self._deployment, self._secrets, force)
        return {
            Kind.IRONIC_NODE: NodeDriver(around),
            Kind.IRONIC_PORTGROUP: PortgroupDriver(around),
            Kind.IRONIC_PORT: PortDriver(around),
            Kind.IRONIC_CONNECTOR: VolumeDriver(around, CONNECTORS),
            Kind.IRONIC_TARGET: VolumeDriver(around, TARGETS),
            Kind.IRONIC_STANDING: StandingDriver(around, self._tasks),
        }

    async def nodes(self, place: IronicPlace, user: int) -> list[tuple[OwnerTag, bytes]]:
        """All nodes with a tag of nospoon's, of any deployment, as JSON; passwords are masked by
        Ironic.
        """
        api = self._api(place, user)
        return await api.listed("nodes", read=_tagged, query="&detail=true")

    async def addresses(self, place: IronicPlace, user: int) -> set[str]:
        """The MACs of all ports, whosever."""
        api = self._api(place, user)
        return set(await api.listed("ports", read=_address, query="&fields=uuid,address"))

    async def held(self, place: IronicPlace, user: int) -> Held:
        """Names and MACs that another node cannot have."""
        api = self._api(place, user)
        nodes = await api.listed("nodes", read=_named, query="&fields=uuid,name")
        ports = await api.listed("ports", read=_port, query="&fields=uuid,address,node_uuid")
        return Held(dict(nodes), dict(ports))

    def _api(self, place: IronicPlace, user: int) -> Api:
        make = partial(Api, place, patience=self._patience)
        return self._clouds.service(user, ("ironic", place), make)


def _tagged(record: Record) -> tuple[OwnerTag, bytes] | None:
    tag = records.tag_of(record)
    return (tag, records.encoded(record)) if tag is not None else None


def _address(port: Record) -> str:
    return text_of(port["address"])[:LONGEST_NAME].lower()


def _named(node: Record) -> tuple[str, UUID] | None:
    if not node.get("name"):
        return None
    return text_of(node["name"])[:LONGEST_NAME], UUID(node["uuid"])


def _port(port: Record) -> tuple[str, tuple[UUID, UUID]]:
    return _address(port), (UUID(port["uuid"]), UUID(port["node_uuid"]))
