"""Every Ironic that clusters are enrolled in, and its drivers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from uuid import UUID

from nospoon.model.ironic import Held, IronicPlace
from nospoon.model.resources import Kind, OwnerTag
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
from nospoon.runtime.paced import paced
from nospoon.runtime.tasks import Tasks


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

    async def nodes(self, place: IronicPlace, user: int) -> list[tuple[OwnerTag, Record]]:
        """All nodes with a tag of nospoon's, of any deployment; passwords are masked by Ironic."""
        listed = await self._api(place, user).listed("nodes", query="&detail=true")
        tagged = [(records.tag_of(record), record) async for record in paced(listed)]
        return [(tag, record) for tag, record in tagged if tag is not None]

    async def addresses(self, place: IronicPlace, user: int) -> set[str]:
        """The MACs of all ports, whosever."""
        listed = await self._api(place, user).listed("ports", query="&fields=uuid,address")
        return {str(port["address"]).lower() async for port in paced(listed)}

    async def held(self, place: IronicPlace, user: int) -> Held:
        """Names and MACs that another node cannot have."""
        nodes = await self._api(place, user).listed("nodes", query="&fields=uuid,name")
        ports = await self._api(place, user).listed("ports", query="&fields=uuid,address,node_uuid")
        return Held(
            {
                str(each["name"]): UUID(each["uuid"])
                async for each in paced(nodes)
                if each.get("name")
            },
            {
                str(each["address"]).lower(): (UUID(each["uuid"]), UUID(each["node_uuid"]))
                async for each in paced(ports)
            },
        )

    def _api(self, place: IronicPlace, user: int) -> Api:
        make = partial(Api, place, patience=self._patience)
        return self._clouds.service(user, ("ironic", place), make)
