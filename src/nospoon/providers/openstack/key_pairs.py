"""Key pairs of Nova: public keys that it gives to servers by their metadata.

A key pair is of a user, and of no project, has no tags, and a name of few characters, which says
whose it is. Who logs in as another user sees none of the first one's.

https://docs.openstack.org/api-ref/compute/#keypairs-keypairs
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import quote
from uuid import UUID

from nospoon.errors import Conflict, Gone, NotOurs
from nospoon.model.resources.key_pairs import THEIRS, KeyPair
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.answers import text_of
from nospoon.providers.openstack.api import Service
from nospoon.providers.openstack.around import Around
from nospoon.providers.openstack.shown import KeyPairShown
from nospoon.providers.openstack.tags import Tagged, named, of_name, short
from nospoon.providers.understood import understood
from nospoon.runtime import clock

PATH = "/os-keypairs"
LONGEST_KEY = 16384
KNOWN = 10.0
"""Seconds for which names of key pairs are taken to be what they were."""


@dataclass(frozen=True, slots=True)
class Pair:
    """What is kept of one. `tagged`: None where nospoon did not make it; `place`: for which project
    it did.
    """

    name: str
    shape: KeyPair
    tagged: Tagged | None
    place: str


@understood
class KeyPairDriver:
    kind = Kind.KEY_PAIR

    def __init__(self, around: Around) -> None:
        self._around = around
        self._names: dict[tuple[UUID, str], str] = {}
        self._names_end = 0.0

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        return [
            self._around.observed(self.kind, each.shape, each.tagged)
            for each in await self.own(cluster)
            if each.tagged is not None
        ]

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        shape = resource.shape
        assert isinstance(shape, KeyPair), "keys of key pairs have their shapes"
        if await self._of(resource.key, tag.cluster):
            return
        name = named(Tagged(tag, resource.key.name), await self._place())
        body = {"keypair": {"name": name, "public_key": shape.public_key, "type": "ssh"}}
        try:
            await self._around.api.call(Service.NOVA, "POST", PATH, body)
        except Conflict as error:
            if await self._of(resource.key, tag.cluster):
                return  # of a call whose answer was lost
            raise NotOurs(
                f"the user of cloud {self._around.api.name} has another key pair {name}: it is "
                "left unchanged"
            ) from error

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        """The key itself: one that others put under this name."""
        await self.delete(observed)
        await self.create(desired, tag)

    async def delete(self, observed: Observed) -> None:
        for each in await self._of(observed.key, observed.tag.cluster):
            path = f"{PATH}/{quote(each.name, safe='')}"
            await self._around.api.delete(Service.NOVA, path)

    async def name_of(self, pair: str, cluster: UUID) -> str:
        """What Nova calls that of a machine's shape; asked for once for many. Raises `Gone`."""
        if pair.startswith(THEIRS):
            return pair.removeprefix(THEIRS)
        now = clock.monotonic()
        if now > self._names_end or (cluster, pair) not in self._names:
            own = [(each.tagged, each.name) for each in await self.own(None)]
            self._names = {(t.tag.cluster, t.name): name for t, name in own if t is not None}
            self._names_end = now + KNOWN
        if (cluster, pair) not in self._names:
            raise Gone(
                f"the user of cloud {self._around.api.name} has no key pair {pair} of this cluster",
                hint="Run `nospoon up` again.",
            )
        return self._names[cluster, pair]

    async def own(self, cluster: UUID | None) -> list[Pair]:
        """Those of nospoon for this project: the same user may have others."""
        return self._own_of(await self.pairs(), await self._place(), cluster)

    async def counted(self) -> tuple[int, Mapping[UUID, int]]:
        """How many the user has, and each cluster of this project of them."""
        pairs = await self.pairs()
        own = [each.tagged for each in self._own_of(pairs, await self._place(), None)]
        return len(pairs), Counter(each.tag.cluster for each in own if each is not None)

    def _own_of(self, pairs: Sequence[Pair], place: str, cluster: UUID | None) -> list[Pair]:
        return [
            each
            for each in pairs
            if each.place == place and self._around.is_own(each.tagged, cluster)
        ]

    async def pairs(self) -> list[Pair]:
        """All that the user has."""
        listed = self._around.api.listed(Service.NOVA, PATH, read=_read, name="keypairs")
        return [each async for each in listed]

    async def _of(self, key: Key, cluster: UUID) -> list[Pair]:
        """Several where an answer was lost, and the cluster was brought up again meanwhile."""
        found = await self.own(cluster)
        return [e for e in found if e.tagged is not None and e.tagged.name == key.name]

    async def _place(self) -> str:
        """The project, in few characters."""
        return sha256((await self._around.api.project()).encode()).hexdigest()[:8]


def _read(record: Mapping[str, KeyPairShown]) -> Pair:
    pair = record["keypair"]
    name, public_key = short(pair["name"]), text_of(pair["public_key"])[:LONGEST_KEY]
    tagged, place = of_name(name) or (None, "")
    return Pair(name, KeyPair(" ".join(public_key.split()[:2])), tagged, place)
