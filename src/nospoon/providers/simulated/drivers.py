"""The simple kinds: pools, images, links and volumes. They exist or they do not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

from nospoon.errors import Gone, NotOurs, ProviderError
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.resource import Observed, Resource, Shape
from nospoon.model.resources.storage import Volume
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan import identity
from nospoon.plan.order.kinds import whose
from nospoon.providers.base import in_use
from nospoon.providers.simulated.surroundings import Surroundings
from nospoon.providers.simulated.world import Made
from nospoon.runtime.paced import paced


class SimulatedDriver:
    """Makes things of one kind by writing them down."""

    def __init__(self, kind: Kind, around: Surroundings) -> None:
        self._kind = kind
        self.around = around

    @property
    def kind(self) -> Kind:
        return self._kind

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        self.around.begin(f"observe {self.kind}")
        all_of_it = list(self.around.world.made[self._kind].values())
        return [
            Observed(
                made.key,
                made.shape,
                made.tag,
                running=self._is_running(made),
                live=self._live(made),
            )
            async for made in paced(all_of_it)
            if made.tag is not None
            and made.tag.deployment == self.around.deployment
            and cluster in (None, made.tag.cluster)
        ]

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        self.around.begin(f"create {resource.key}")
        self._refuse_strangers(resource, tag)
        await asyncio.sleep(self.around.simulation.make)
        self.around.check_space(resource)
        self.around.world.put(Made(resource.key, resource.shape, tag))

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        self.around.begin(f"change {desired.key}")
        found = self.around.world.find(Resource(observed.key, observed.shape))
        if found is None:
            raise Gone(f"{observed.key} no longer exists", hint="Plan again.")
        self._refuse_strangers(desired, tag)
        _refuse_shrinking(observed, desired)
        await asyncio.sleep(self.around.simulation.make)
        self.around.world.put(Made(desired.key, desired.shape, tag))

    async def delete(self, observed: Observed) -> None:
        self.around.begin(f"delete {observed.key}")
        found = self.around.world.find(Resource(observed.key, observed.shape))
        if found is None:
            return
        if not self._is_of(found, observed.tag):
            raise NotOurs(f"{observed.key} is no longer managed by nospoon: it is left unchanged")
        self._refuse_in_use(observed)
        self.around.world.take_away(found)

    def _is_running(self, made: Made) -> bool:
        """Whether a change would disturb a guest; nothing does of these kinds."""
        del made
        return False

    def _live(self, made: Made) -> Shape | None:
        """What a running machine has until its power-off, where that is something else."""
        del made
        return None

    def _is_ours(self, made: Made) -> bool:
        return made.tag is not None and made.tag.deployment == self.around.deployment

    def _is_of(self, made: Made, tag: OwnerTag) -> bool:
        """Whether it is ours, and of the tag's cluster: names of two may be alike."""
        return self._is_ours(made) and made.tag is not None and made.tag.cluster == tag.cluster

    def _refuse_in_use(self, observed: Observed) -> None:
        if isinstance(observed.shape, Volume):
            node = whose(observed.key)
            machine = identity.node_uuid(observed.tag.cluster, node)
            if observed.key.name in self.around.world.disks_in_use(machine):
                raise in_use(observed.key, node)

    def _refuse_strangers(self, resource: Resource, tag: OwnerTag) -> None:
        found = self.around.world.find(resource)
        if found is not None and not self._is_of(found, tag):
            raise NotOurs(
                f"{resource.key} exists on host {self.around.host} and has no nospoon tag"
                " of this cluster",
                hint="Rename yours, or remove the other one.",
            )


def _refuse_shrinking(observed: Observed, desired: Resource) -> None:
    match observed.shape, desired.shape:
        case Volume(size=before), Volume(size=after) if after < before:
            raise ProviderError(
                f"{desired.key} cannot shrink from {before} to {after} bytes",
                hint="Remove the node and make it again.",
            )
