"""What a project of a cloud may have, and has: quotas of Nova, Neutron and, for volumes, Cinder.

https://docs.openstack.org/api-ref/compute/#limits-limits, …/network/v2/#quotas-details,
…/block-storage/v3/#absolute-limits, …/block-storage/v3/#show-quota-usage-for-a-project
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar
from uuid import UUID

import structlog

from nospoon.errors import Gone, ProviderError
from nospoon.model.host_facts import Quota, QuotaName, Share
from nospoon.providers.answers import number_of, text_of
from nospoon.providers.openstack.api import UNAVAILABLE, Service
from nospoon.providers.openstack.around import Around
from nospoon.providers.openstack.floating_ips import KEPT, MARK
from nospoon.providers.openstack.key_pairs import KeyPairDriver
from nospoon.providers.openstack.roster import GIB, MIB, Roster, Server
from nospoon.providers.openstack.server_groups import ServerGroupDriver
from nospoon.providers.openstack.shown import VolumeShown
from nospoon.providers.openstack.tags import of_description, short
from nospoon.runtime.paced import paced

log = structlog.get_logger()
A = TypeVar("A")
K = TypeVar("K")
V = TypeVar("V")
UNLIMITED = -1
FORBIDDEN, FAILED = 403, 500
"""Statuses of HTTP; from the second on, what is asked for failed there."""
AGAIN = (2, 6, 10)
"""Pauses until it is asked for again."""
Limits = Mapping[str, int]
"""Name -> how many: a project may have so many, or has so many."""


@dataclass(frozen=True, slots=True)
class _Limited:
    """How a service's limits call `most` and what is `used`, in which unit, and how many a server
    of nospoon takes.
    """

    most: str
    used: str
    of: Callable[[Server], int]
    unit: int = 1


NOVAS = {
    QuotaName.SERVERS: _Limited("maxTotalInstances", "totalInstancesUsed", lambda _: 1),
    QuotaName.CPUS: _Limited("maxTotalCores", "totalCoresUsed", lambda server: server.cpus),
    QuotaName.MEMORY: _Limited(
        "maxTotalRAMSize", "totalRAMUsed", lambda server: server.memory, MIB
    ),
}
CINDERS = {
    QuotaName.VOLUMES: _Limited("maxTotalVolumes", "totalVolumesUsed", lambda s: s.volumes),
    QuotaName.VOLUME_SPACE: _Limited(
        "maxTotalVolumeGigabytes", "totalGigabytesUsed", lambda s: s.volume_space, GIB
    ),
}
OF_TYPE = {
    QuotaName.VOLUMES_OF_TYPE: ("volumes_{}", 1),
    QuotaName.SPACE_OF_TYPE: ("gigabytes_{}", GIB),
}
QUOTA_SET = {**OF_TYPE, QuotaName.VOLUME_SIZE: ("per_volume_gigabytes", GIB)}
"""As Cinder calls them, and in which unit they are."""
MOST_ATTACHED = 16
"""Servers of a volume that are looked at."""
NEUTRONS = {
    QuotaName.NETWORKS: "network",
    QuotaName.SUBNETS: "subnet",
    QuotaName.PORTS: "port",
    QuotaName.TRUNKS: "trunk",
    QuotaName.ROUTERS: "router",
    QuotaName.FLOATING_IPS: "floatingip",
}
"""As Neutron calls one of them; its collections have an s more."""


@dataclass(frozen=True, slots=True)
class _Thing:
    """What is kept of a thing of Neutron's. `of`: the cluster whose it is, None for none; `network`
    of which it is, by id; `allocated`: an address that the project has by itself.
    """

    id: str
    of: UUID | None
    network: str = ""
    allocated: str = ""


class Quotas:
    """Of one project."""

    def __init__(self, around: Around) -> None:
        self._around = around

    async def survey(self) -> Quota:
        """What it may have, and who has what of it. What a cloud shows to other roles alone is
        unknown. Raises `ProviderError`, also for a login that is refused.
        """
        unknown = set[QuotaName]()
        made = [each for each in await Roster(self._around).servers() if not each.shape.adopted]
        nova = await self._around.api.call(Service.NOVA, "GET", "/limits", read=_limits)
        found = await _shares(nova, NOVAS, made)
        if self._around.cloud.has_volumes:
            cinder = await self._shown(Service.CINDER, "/limits", _limits)
            unknown |= CINDERS.keys() if cinder is None else set()
            found |= await _shares(cinder or {}, CINDERS, made)
        found |= await self._of_groups(nova)
        found |= await self._of_key_pairs(nova)
        project = await self._around.api.project()
        if self._around.cloud.has_volumes:
            of_type = await self._of_type(project, made)
            unknown |= QUOTA_SET.keys() if of_type is None else set()
            found |= of_type or {}
        path = f"/quotas/{project}/details.json"
        shown = await self._shown(Service.NEUTRON, path, _details)
        unknown |= NEUTRONS.keys() if shown is None else set()
        limited = shown or {}
        things = await self._things(limited, project)
        for name, share in limited.items():
            own = Counter[UUID]()
            async for each in paced(things[name]):
                if each.of is not None:
                    own[each.of] += 1
            found[name] = Share(share.most, share.used, own)
        floating = things.get(QuotaName.FLOATING_IPS, ())
        allocated = frozenset(each.allocated for each in floating if each.allocated)
        return Quota(found, allocated, frozenset(unknown))

    async def _of_groups(self, limits: Limits) -> Mapping[QuotaName, Share]:
        """Quotas of server groups, and of servers in one."""
        found = {}
        if (most := number_of(limits.get("maxServerGroups", UNLIMITED))) != UNLIMITED:
            groups = await ServerGroupDriver(self._around).groups(None)
            own = Counter(each.tagged.tag.cluster for each in groups)
            used = number_of(limits.get("totalServerGroupsUsed", 0))
            found[QuotaName.SERVER_GROUPS] = Share(most, used, own)
        if (most := number_of(limits.get("maxServerGroupMembers", UNLIMITED))) != UNLIMITED:
            found[QuotaName.GROUP_MEMBERS] = Share(most)
        return found

    async def _of_key_pairs(self, limits: Limits) -> Mapping[QuotaName, Share]:
        """Of the user: limits say not how many that has."""
        if (most := number_of(limits.get("maxTotalKeypairs", UNLIMITED))) == UNLIMITED:
            return {}
        used, own = await KeyPairDriver(self._around).counted()
        return {QuotaName.KEY_PAIRS: Share(most, used, own)}

    async def _of_type(
        self, project: str, made: Sequence[Server]
    ) -> Mapping[QuotaName, Share] | None:
        """Quotas of the type that volumes of the host have, and of the size of one; None where they
        are not shown. Which volumes of a type are nodes' disks is known by their attachments: a
        host may have had another type when it made some.
        """
        type_ = self._around.cloud.volume_type
        if not type_:
            usual = await self._shown(Service.CINDER, "/types/default", _usual_type)
            type_ = (usual or {}).get("name", "")
        path = f"/os-quota-sets/{project}?usage=True"
        found = await self._shown(Service.CINDER, path, partial(_of_quota_set, type_))
        if found is None or not found.keys() & OF_TYPE.keys():
            return found
        of = {str(each.id): each.tagged.tag.cluster async for each in paced(made)}
        count, space = Counter[UUID](), Counter[UUID]()
        listed = self._around.api.listed(
            Service.CINDER, "/volumes/detail", read=partial(_attached, type_)
        )
        async for servers, size in listed:
            for cluster in {of[server] for server in servers if server in of}:
                count[cluster] += 1
                space[cluster] += size
        own = {QuotaName.VOLUMES_OF_TYPE: count, QuotaName.SPACE_OF_TYPE: space}
        return {name: replace(each, own=own.get(name, {})) for name, each in found.items()}

    async def _shown(
        self, service: Service, path: str, read: Callable[[A], Mapping[K, V]]
    ) -> Mapping[K, V] | None:
        """None where the cloud does not show it: in some it is for other roles alone (403), or is
        not there (404). What fails in the cloud is asked for again. Raises `ProviderError`.
        """
        for pause in (*AGAIN, None):
            try:
                return await self._around.api.call(service, "GET", path, read=read)
            except ProviderError as error:
                is_hidden = isinstance(error, Gone) or error.status == FORBIDDEN
                if is_hidden:
                    log.info("no quotas are shown", cloud=self._around.api.name, why=str(error))
                    return None
                # what is not available (503) the API asked for again already
                fails = error.status >= FAILED and error.status != UNAVAILABLE
                if pause is None or not fails:
                    raise
                await asyncio.sleep(pause * self._around.pause)
        raise AssertionError("the last one is returned or raised")

    async def _things(
        self, limited: Mapping[QuotaName, Share], project: str
    ) -> dict[QuotaName, list[_Thing]]:
        """Those that count. Subnets have no tag: their owner is that of their network."""
        names = dict.fromkeys(limited)
        if QuotaName.SUBNETS in names:
            names[QuotaName.NETWORKS] = None
        listed = await asyncio.gather(*(self._listed(NEUTRONS[name], project) for name in names))
        found = dict(zip(names, listed, strict=True))
        if QuotaName.SUBNETS in found:
            of = {each.id: each.of for each in found[QuotaName.NETWORKS]}
            found[QuotaName.SUBNETS] = [
                _Thing(each.id, of.get(each.network)) for each in found[QuotaName.SUBNETS]
            ]
        return found

    async def _listed(self, called: str, project: str) -> list[_Thing]:
        read = partial(self._thing, project)
        found = self._around.api.listed(Service.NEUTRON, f"/{called}s", read=read)
        return [each async for each in found]

    def _thing(self, project: str, record: Mapping[str, object]) -> _Thing | None:
        """None for one of another project, which administrators are shown, too."""
        if record.get("project_id", project) != project:
            return None
        tagged = of_description(record.get("description"))
        is_own = self._around.is_own(tagged, None)
        kept = tagged is not None and KEPT in tagged.more.split(MARK)
        of = tagged.tag.cluster if tagged is not None and is_own and not kept else None
        return _Thing(
            id=short(record["id"]),
            of=of,
            network=short(record.get("network_id", "")),
            allocated="" if of else short(record.get("floating_ip_address", "")),
        )


async def _shares(
    limits: Limits, limited: Mapping[QuotaName, _Limited], servers: Sequence[Server]
) -> dict[QuotaName, Share]:
    found = {}
    for name, each in limited.items():
        if (most := number_of(limits.get(each.most, UNLIMITED))) != UNLIMITED:
            own = Counter[UUID]()
            async for server in paced(servers):
                own[server.tagged.tag.cluster] += each.of(server)
            used = number_of(limits.get(each.used, 0))
            found[name] = Share(most * each.unit, used * each.unit, own)
    return found


def _usual_type(answer: Mapping[str, Mapping[str, object]]) -> Mapping[str, str]:
    """Of volumes for which none is asked for."""
    return {"name": short(answer["volume_type"]["name"])}


def _of_quota_set(
    type_: str, answer: Mapping[str, Mapping[str, Limits]]
) -> Mapping[QuotaName, Share]:
    found = {}
    for name, (called, unit) in QUOTA_SET.items():
        each = answer["quota_set"].get(called.format(type_))
        if each is not None and (most := number_of(each["limit"])) != UNLIMITED:
            used = number_of(each.get("in_use", 0)) + number_of(each.get("reserved", 0))
            found[name] = Share(most * unit, used * unit)
    return found


def _attached(type_: str, record: VolumeShown) -> tuple[list[str], int] | None:
    """Servers of a volume of this type, and its bytes."""
    if text_of(record.get("volume_type") or "") != type_:
        return None
    servers = [short(each["server_id"]) for each in record["attachments"][:MOST_ATTACHED]]
    return servers, number_of(record["size"]) * GIB


def _limits(answer: Mapping[str, Mapping[str, Limits]]) -> Limits:
    return answer["limits"]["absolute"]


def _details(answer: Mapping[str, Mapping[str, Limits]]) -> Mapping[QuotaName, Share]:
    known = {name: answer["quota"].get(called) for name, called in NEUTRONS.items()}
    return {
        name: Share(number_of(each["limit"]), number_of(each.get("used", 0)))
        for name, each in known.items()
        if each is not None and number_of(each["limit"]) != UNLIMITED
    }
