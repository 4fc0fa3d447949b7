"""The driver of Kind.IRONIC_DISCOVERY: it starts nodes from the network, and Ironic does the rest.

What Ironic makes of them there is not ours, and is never touched: `down` leaves it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from uuid import UUID

from nospoon.control.fleet.fleet import Fleet, Member
from nospoon.control.fleet.hosts import Hosts
from nospoon.errors import ProviderError
from nospoon.model.boot import BootDevice, BootOverride, OverrideEnabled
from nospoon.model.ironic import IronicDiscovery
from nospoon.model.machine import PowerCommand, PowerState
from nospoon.model.resources.keys import IRONIC, Key, Kind
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.services.bmcs.service import BmcService

ONCE = BootOverride(BootDevice.NETWORK, OverrideEnabled.ONCE, None)


class DiscoveryDriver:
    """`sought`: the nodes that are to be found. `known`: gives the MACs of ports in Ironic."""

    kind = Kind.IRONIC_DISCOVERY

    def __init__(
        self,
        sought: Collection[UUID],
        known: Callable[[], Awaitable[Collection[str]]],
        *,
        deployment: str,
        fleet: Fleet,
        hosts: Hosts,
        bmcs: BmcService,
    ) -> None:
        self._sought, self._known, self._deployment = sought, known, deployment
        self._fleet, self._hosts, self._bmcs = fleet, hosts, bmcs

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        """Those of the sought that are on, or that Ironic has found."""
        members = [each for uuid in self._sought if (each := self._fleet.get(uuid)) is not None]
        mine = [each for each in members if cluster in (None, each.cluster_id)]
        macs = await self._known() if mine else ()
        return [self._observed(each) for each in mine if self._is_on(each) or _found(each, macs)]

    def _is_on(self, member: Member) -> bool:
        last = self._hosts.last(member.uuid)
        return last is not None and last.power is PowerState.ON

    def _observed(self, member: Member) -> Observed:
        key = Key(self.kind, IRONIC, member.node)
        tag = OwnerTag(self._deployment, member.cluster_id)
        return Observed(key, IronicDiscovery(member.uuid), tag)

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        """Start it from the network, once; what it boots later is as its shape says."""
        del tag
        shape = resource.shape
        if not isinstance(shape, IronicDiscovery):
            raise ProviderError(f"{resource.key} is nothing that Ironic discovers")
        await self._bmcs.set_override(shape.node, ONCE)
        await self._bmcs.power(shape.node, PowerCommand.ON)

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        del observed
        await self.create(desired, tag)

    async def delete(self, observed: Observed) -> None:
        """Nothing of it is ours."""


def _found(member: Member, macs: Collection[str]) -> bool:
    return any(nic.mac.lower() in macs for nic in member.machine.nics)
