"""Server groups of Nova: which servers share a compute host, and which do not.

A group has no tag, no description and no metadata: its name is what says whose it is. Servers join
it when they are made, and leave it when they go.

https://docs.openstack.org/api-ref/compute/#server-groups-os-server-groups
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from nospoon.errors import Gone, ProviderError
from nospoon.model.resources.groups import GroupPolicy, ServerGroup
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.answers import How, number_of, text_of
from nospoon.providers.openstack.api import MOST_LISTED, MOST_PAGES, PAGE, Service
from nospoon.providers.openstack.around import Around
from nospoon.providers.openstack.shown import GroupShown
from nospoon.providers.openstack.tags import Tagged, described, of_description, short
from nospoon.providers.understood import understood
from nospoon.runtime import clock
from nospoon.runtime.paced import paced

PATH = "/os-server-groups"
WITH_RULES = (2, 64)
"""Microversion (Rocky) from which a group has one policy, with rules."""
MOST = "max_server_per_host"
MOST_MEMBERS = 20_000
"""Of all groups: each server is in one."""
KNOWN = 10.0
"""Seconds for which the ids of groups are taken to be what they were."""


@dataclass(frozen=True, slots=True)
class Group:
    """What is kept of one. `members`: ids of servers."""

    id: str
    shape: ServerGroup
    tagged: Tagged
    members: frozenset[str]


@understood
class ServerGroupDriver:
    kind = Kind.SERVER_GROUP

    def __init__(self, around: Around) -> None:
        self._around = around
        self._ids: dict[tuple[UUID, str], str] = {}
        self._ids_end = 0.0

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        return [
            self._around.observed(self.kind, each.shape, each.tagged)
            for each in await self.groups(cluster)
        ]

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        shape = resource.shape
        assert isinstance(shape, ServerGroup), "keys of server groups have their shapes"
        if await self._own(resource.key, tag) is not None:
            return
        body: dict[str, object] = {"name": described(Tagged(tag, resource.key.name))}
        how: How = {}
        if await self._has_rules():
            how = {"microversion": _written(WITH_RULES)}
            body["policy"] = str(shape.policy)
            if shape.most:
                body["rules"] = {MOST: shape.most}
        elif shape.most:
            raise ProviderError(
                f"Nova of cloud {self._around.api.name} has no rules of server groups: they came "
                f"with microversion {_written(WITH_RULES)}",
                hint="Drop `per_compute_host` of the host.",
            )
        else:
            body["policies"] = [str(shape.policy)]
        await self._around.api.call(Service.NOVA, "POST", PATH, {"server_group": body}, **how)

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        """Nothing of a group can change."""
        del observed
        await self.create(desired, tag)

    async def delete(self, observed: Observed) -> None:
        """All that were made under this name: an answer may have been lost."""
        for each in await self.groups(observed.tag.cluster):
            if each.tagged.name == observed.key.name:
                await self._around.api.delete(Service.NOVA, f"{PATH}/{each.id}")

    async def id_of(self, name: str, cluster: UUID) -> str:
        """Of a cluster's group; asked for once for many servers. Raises `Gone`."""
        now = clock.monotonic()
        if now > self._ids_end or (cluster, name) not in self._ids:
            found = await self.groups(None)
            self._ids = {(each.tagged.tag.cluster, each.tagged.name): each.id for each in found}
            self._ids_end = now + KNOWN
        if (cluster, name) not in self._ids:
            raise Gone(
                f"there is no server group {name} in cloud {self._around.api.name}",
                hint="Run `nospoon up` again.",
            )
        return self._ids[cluster, name]

    async def of_servers(self, cluster: UUID | None) -> Mapping[str, str]:
        """Id of a server -> name of the group that it is in."""
        found = {}
        async for each in paced(await self.groups(cluster)):
            found.update(dict.fromkeys(each.members, each.tagged.name))
        return found

    async def groups(self, cluster: UUID | None) -> list[Group]:
        """Those of nospoon in the project."""
        how: How = {"microversion": _written(WITH_RULES)} if await self._has_rules() else {}
        found, count, members = list[Group](), 0, 0
        for _ in range(MOST_PAGES):
            page = await self._around.api.call(
                Service.NOVA, "GET", f"{PATH}?limit={PAGE}&offset={count}", read=_page, **how
            )
            found += (each for each in page if each is not None)
            count += len(page)
            members += sum(len(each.members) for each in page if each is not None)
            if not page:  # Nova may give fewer than were asked for (`max_limit`)
                return [each for each in found if self._around.is_own(each.tagged, cluster)]
            if count >= MOST_LISTED or members > MOST_MEMBERS:
                break
        raise ProviderError(
            f"Nova of cloud {self._around.api.name} lists server groups without an end, or more "
            f"than {MOST_LISTED}, or {MOST_MEMBERS} servers in them"
        )

    async def _has_rules(self) -> bool:
        return await self._around.api.microversion() >= WITH_RULES

    async def _own(self, key: Key, tag: OwnerTag) -> Group | None:
        found = await self.groups(tag.cluster)
        return next((each for each in found if each.tagged.name == key.name), None)


def _written(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _page(answer: Mapping[str, Sequence[GroupShown]]) -> list[Group | None]:
    """None for what nospoon did not make."""
    return [_read(each) for each in answer["server_groups"][:PAGE]]


def _read(record: GroupShown) -> Group | None:
    tagged = of_description(record["name"])
    if tagged is None:
        return None
    policy = record["policy"] if "policy" in record else record["policies"][0]
    try:
        shape = ServerGroup(GroupPolicy(short(policy)), _most(record))
    except ValueError:
        return None  # others wrote that
    members = frozenset(short(each) for each in record["members"][:MOST_MEMBERS])
    return Group(text_of(record["id"])[:255], shape, tagged, members)


def _most(record: GroupShown) -> int:
    """Nova shows no rules where one machine of a group is on a compute host."""
    most = number_of((record.get("rules") or {}).get(MOST, 0))
    return most if most > 1 else 0
