"""The driver of Kind.NOVA_INVENTORY: Placement has what a flavor gives.

nova-compute makes it, of Ironic's nodes that are available: a resource provider whose UUID is the
node's, with one of its resource class and the node's traits. It looks once a minute, and
tells no one, so Placement is asked: https://docs.openstack.org/api-ref/placement/
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypedDict
from urllib.parse import quote
from uuid import UUID

from nospoon.errors import Gone, ProviderError
from nospoon.model.nova import NovaInventory
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.nova.api import Read
from nospoon.providers.polling import rest_after
from nospoon.providers.understood import understood
from nospoon.runtime import clock as clocks
from nospoon.runtime.telling import tell

TOLD = 5
"""Of how many nodes one look tells what they lack."""


LONGEST_CLASS = 255
"""Characters of a resource class."""


class Providers(TypedDict):
    resource_providers: Sequence[Mapping[str, str]]


class Traits(TypedDict):
    traits: Sequence[str]


class Placement(Protocol):
    """Its API. Raises `Gone` for what it has not, and as `nospoon.providers.nova.api` says."""

    async def call(self, method: str, path: str, *, read: Read | None = None) -> Any:
        """What it answers, decoded, or what `read` makes of it; None for nothing."""


@understood
class InventoryDriver:
    """`wanted`: what is to be there. `patience`: flavor -> seconds that one waits for it."""

    kind = Kind.NOVA_INVENTORY

    def __init__(
        self,
        api: Placement,
        wanted: Collection[Resource],
        patience: Mapping[str, float],
        *,
        deployment: str,
    ) -> None:
        self._api, self._wanted, self._patience = api, wanted, patience
        self._deployment = deployment

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        """Those of the wanted that are there as a whole."""
        if cluster is None:
            return []
        tag = OwnerTag(self._deployment, cluster)
        return [
            Observed(each.key, each.shape, tag)
            for each in self._wanted
            if not await self._lacking(_inventory(each))
        ]

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        """Return when it is there. Raises `ProviderError` at the end of one's patience."""
        del tag
        shape, name = _inventory(resource), resource.key.name
        end, said = clocks.monotonic() + self._patience[name], ""
        while True:
            began = clocks.monotonic()
            lacking = await self._lacking(shape)
            if not lacking:
                return
            words = "; ".join(f"{node} {why}" for node, why in lacking.items())
            if clocks.monotonic() > end:
                raise ProviderError(
                    f"Placement has not what flavor {name} gives, after"
                    f" {self._patience[name]:.0f} s: {words}",
                    hint="nova-compute with compute_driver ironic.IronicDriver puts it there, once "
                    "a minute; its log shows why not. `nova: {wait: …}` is how long it may take.",
                )
            if words != said:
                said = words
                tell(f"not in Placement yet: {words}")
            await asyncio.sleep(rest_after(clocks.monotonic() - began))  # no one tells of it

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        del observed
        await self.create(desired, tag)

    async def delete(self, observed: Observed) -> None:
        """Nothing of it is ours: it goes with its node."""

    async def _lacking(self, shape: NovaInventory) -> Mapping[str, str]:
        """Node -> what Placement lacks of it, of a few of those of which it lacks anything."""
        free, lacking = await self._free(shape), dict[str, str]()
        for name, uuid in shape.nodes:
            if uuid not in free and (why := await self._why(shape, uuid)):
                lacking[name] = why
            if len(lacking) == TOLD:
                break
        return lacking

    async def _free(self, shape: NovaInventory) -> Collection[UUID]:
        """Providers from which the flavor can be had now, in one call."""
        if not await self._knows(shape):
            return ()
        traits = [f"{'' if what == 'required' else '!'}{name}" for name, what in shape.traits]
        query = f"resources={shape.resource_class}:1"
        query += f"&required={quote(','.join(traits), safe='!,')}" if traits else ""
        read = partial(_among, {uuid for _, uuid in shape.nodes})
        found: Collection[UUID] = await self._api.call(
            "GET", f"/resource_providers?{query}", read=read
        )
        return found

    async def _knows(self, shape: NovaInventory) -> bool:
        """Whether the names mean anything: it refuses questions with others."""
        names = {name for name, _ in shape.traits}
        if names:
            path = f"/traits?name=in:{','.join(sorted(names))}"
            if await self._api.call("GET", path, read=partial(_unknown, names)):
                return False
        try:
            await self._api.call("GET", f"/resource_classes/{shape.resource_class}")
        except Gone:
            return False
        return True

    async def _why(self, shape: NovaInventory, node: UUID) -> str:
        """What a provider that is not free lacks, "" for nothing: an instance may have it."""
        path = f"/resource_providers/{node}"
        try:
            stock = (await self._api.call("GET", f"{path}/inventories"))["inventories"]
            names = {name for name, _ in shape.traits}
            read = partial(_unknown, names)
            traits = names - await self._api.call("GET", f"{path}/traits", read=read)
        except Gone:
            return "is not there"
        found = stock.get(shape.resource_class)
        if found is None:
            others = ", ".join(each[:LONGEST_CLASS] for each in sorted(stock)[:TOLD])
            return f"has no {shape.resource_class}, but {others or 'nothing'}"
        if found["total"] <= found["reserved"]:
            return "is reserved: Ironic has something else to do with it"
        for name, what in shape.traits:
            if (name in traits) is not (what == "required"):
                return f"{'lacks' if what == 'required' else 'has'} the trait {name}"
        return ""


def _among(nodes: Collection[UUID], answer: Providers) -> set[UUID]:
    """Those of these nodes that are among the providers of an answer."""
    found = (UUID(each["uuid"]) for each in answer["resource_providers"])
    return {each for each in found if each in nodes}


def _unknown(names: Collection[str], answer: Traits) -> set[str]:
    """Those of these names that are not among the traits of an answer."""
    left = set(names)
    for each in answer["traits"]:
        left.discard(each)
    return left


def _inventory(resource: Resource) -> NovaInventory:
    if not isinstance(resource.shape, NovaInventory):
        raise ProviderError(f"{resource.key} is nothing that Placement has")
    return resource.shape
