"""BMCs as resources: planned, made, changed and removed by the same engine as machines."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

from nospoon.errors import NospoonError, ProviderError
from nospoon.model.resources.bmcs import Bmc
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.runtime.paced import paced
from nospoon.services.bmcs.ports import BmcConfig, Records
from nospoon.services.bmcs.service import BmcService

TOGETHER = 256
"""Records asked for at once at start-up: the store answers them in one transaction."""


class BmcDriver:
    """The driver for Kind.BMC: of one daemon, for all hosts."""

    kind = Kind.BMC

    def __init__(self, service: BmcService, records: Records) -> None:
        self._service, self._records = service, records
        self._unserved: dict[UUID, str] = {}
        """Why those are not served that could not be at start-up."""

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        """Those on record; one that is not served has a fault, which `up` repairs."""
        return [
            Observed(
                key=key,
                shape=bmc,
                tag=tag,
                fault=self._fault(bmc),
            )
            async for key, bmc, tag in paced(await self._records.all(cluster))
        ]

    def _fault(self, bmc: Bmc) -> str:
        if self._service.is_served(bmc):
            return ""
        why = self._unserved.get(bmc.uuid)
        return f"not served: {why}" if why else "not served"

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        """Serve it, then put it on record."""
        bmc = _shape(resource)
        await self._service.put(await self._records.config(resource))
        try:
            await self._records.put(resource.key, bmc, tag)
        except BaseException:
            await self._service.remove(bmc.uuid)
            raise

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        """Serve it as it shall be; on record only when that worked. That of another machine, by
        its UUID, is another BMC at the same address.
        """
        assert isinstance(observed.shape, Bmc), "BMC keys have BMC shapes"
        if _shape(desired).uuid != observed.shape.uuid:
            await self.delete(observed)
        await self._service.put(await self._records.config(desired))
        self._unserved.pop(_shape(desired).uuid, None)
        await self._records.put(desired.key, _shape(desired), tag)

    async def delete(self, observed: Observed) -> None:
        """Serve it no more."""
        assert isinstance(observed.shape, Bmc), "BMC keys have BMC shapes"
        await self._service.remove(observed.shape.uuid)
        await self._records.remove(observed.shape.uuid)
        self._unserved.pop(observed.shape.uuid, None)

    async def restore(self, resources: Sequence[tuple[Resource, OwnerTag]]) -> dict[str, str]:
        """At start-up: serve everything on record. Node -> why it could not be, for the rest."""
        failed = {}
        for first in range(0, len(resources), TOGETHER):
            some = [resource for resource, _ in resources[first : first + TOGETHER]]
            asked = (self._records.config(resource) for resource in some)
            found = await asyncio.gather(*asked, return_exceptions=True)
            async for resource, config in paced(list(zip(some, found, strict=True))):
                why = await self._served(config)
                self._unserved.pop(_shape(resource).uuid, None)
                if why:
                    failed[resource.key.name] = self._unserved[_shape(resource).uuid] = why
        return failed

    async def _served(self, config: BmcConfig | BaseException) -> str:
        """Serve it; returns why not, "" when it is."""
        try:
            if isinstance(config, BaseException):
                raise config
            await self._service.put(config)
        except NospoonError as error:
            return str(error)
        return ""


def _shape(resource: Resource) -> Bmc:
    if not isinstance(resource.shape, Bmc):
        raise ProviderError(f"{resource.key} is not a BMC")
    return resource.shape
