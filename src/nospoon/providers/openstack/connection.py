"""A project of a cloud: what it can do, and its drivers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import BoundedSemaphore

import structlog

from nospoon.errors import HostUnreachable, ProviderError
from nospoon.model.capabilities import Capabilities, ChangeRule
from nospoon.model.cluster import Arch, Host
from nospoon.model.host_facts import ENDLESS, Adoptable, HostFacts, QuotaName, SizeOffered, known
from nospoon.model.resources.keys import Kind
from nospoon.plan.words import listed
from nospoon.providers.answers import How, number_of, text_of
from nospoon.providers.base import Driver, OpenImage, OpenSeed, no_seeds
from nospoon.providers.cloud_calls import Means, large_places
from nospoon.providers.openstack.adopted import OwnersServers
from nospoon.providers.openstack.api import Api, Service
from nospoon.providers.openstack.around import (
    Around,
    AtHome,
    BuildImage,
    cloud_of,
    everywhere,
)
from nospoon.providers.openstack.drives import KeptMedia
from nospoon.providers.openstack.floating_ips import FloatingIpDriver
from nospoon.providers.openstack.images import FIRMWARES, BootImageDriver
from nospoon.providers.openstack.key_pairs import KeyPairDriver
from nospoon.providers.openstack.made_of import MadeOf
from nospoon.providers.openstack.named_images import named_images
from nospoon.providers.openstack.networks import NetworkDriver
from nospoon.providers.openstack.ports import PortDriver
from nospoon.providers.openstack.quotas import Quotas
from nospoon.providers.openstack.relays import IsHome, RelayDriver
from nospoon.providers.openstack.roots import RootImageDriver
from nospoon.providers.openstack.roster import LONGEST_NAME, Roster
from nospoon.providers.openstack.routers import RouterDriver
from nospoon.providers.openstack.server_groups import WITH_RULES, ServerGroupDriver
from nospoon.providers.openstack.servers import ServerDriver
from nospoon.providers.openstack.shown import Flavor, HypervisorsShown, VolumeType
from nospoon.providers.openstack.snapshots import KeptRootDriver, SnapshotImages
from nospoon.providers.openstack.trunks import TrunkDriver
from nospoon.providers.recorder import Recorder, RecordSpace
from nospoon.providers.tunnels import Tunnels
from nospoon.providers.understood import understood
from nospoon.runtime.paced import paced
from nospoon.runtime.reach import Reach
from nospoon.runtime.tasks import Tasks

log = structlog.get_logger()
RULES: Mapping[Kind, Mapping[str, ChangeRule]] = {
    Kind.NETWORK: dict.fromkeys(
        ("mtu", "nat", "address", "spared", "relayed", "silent", "nameservers"), ChangeRule.LIVE
    ),
    Kind.PORT: dict.fromkeys(("virtual_ips", "range", "address"), ChangeRule.LIVE),
    Kind.TRUNK: {"carries": ChangeRule.LIVE},
    Kind.ROUTER: dict.fromkeys(("networks", "external"), ChangeRule.LIVE),
    Kind.FLOATING_IP: dict.fromkeys(("mac", "router"), ChangeRule.LIVE),
    Kind.MACHINE: dict.fromkeys(("boot", "boot_order", "ipv6", "nics", "shelved"), ChangeRule.LIVE),
}
GIB, MIB = 1 << 30, 1 << 20
RESUME = 20
"""Pauses from a look for relays that failed to the next."""
TRUNKS = "/extensions/trunk"
WITH_CDS = (2, 93)
"""Microversion of Zed, the first Nova that has the root of a server as a CD where its block device
says so, and not only by the format `iso` of its image (`get_root_info` of its libvirt driver).
"""
MOST_FLAVORS = 1000
"""That are looked through for each node."""
ADMIN = "admin"
"""The role that sees compute hosts, by Nova's usual policy."""
PAGED = "2.33"
"""Microversion (Newton) from which compute hosts are listed in pages."""
MOST_COMPUTES = 1000
"""That are looked at: of a cloud with more it stays unknown what they run."""


@understood
class OpenStackConnection:
    """A `Connection`. `settings`: of openstacksdk, asked for when it is first needed; `open_image`
    and `open_seed`: what VMs are made of; `records`: directory for consoles; `media`: what is in CD
    drives; `pause`: as `Around` has it. `tunnels`: to relays, of clusters that have nodes here by
    `is_home`; `large`: places for large answers.
    """

    def __init__(
        self,
        host: Host,
        deployment: str,
        settings: Callable[[], Mapping[str, object]],
        *,
        reach: Reach,
        build_image: BuildImage,
        open_image: OpenImage,
        open_seed: OpenSeed = no_seeds,
        records: Path,
        media: KeptMedia,
        pause: float = 0.5,
        at_home: AtHome = everywhere,
        record_space: RecordSpace | None = None,
        serve: Callable[[], object] = lambda: None,
        tunnels: Tunnels,
        is_home: IsHome = everywhere,
        large: BoundedSemaphore | None = None,
    ) -> None:
        limits = host.declares.calls
        self._threads = ThreadPoolExecutor(limits.at_once, thread_name_prefix=f"cloud {host.name}")
        means = Means(self._threads, reach, large or large_places())
        self._api = Api(cloud_of(host).cloud, settings, means, limits)
        self._around = Around(self._api, host, deployment, build_image, pause, at_home)
        self._tasks = Tasks(f"cloud {host.name}")
        self._recorder = Recorder(records, self._tasks, record_space)
        self._owners = OwnersServers(self._around)
        roots = RootImageDriver(self._around, open_image)
        self._boot_images = BootImageDriver(self._around)
        self._key_pairs = KeyPairDriver(self._around)
        made_of = MadeOf(self._around, self._boot_images, roots, open_seed, self._key_pairs)
        self._serve = serve
        groups = ServerGroupDriver(self._around)
        self._machines = ServerDriver(
            self._around, self._owners, self._recorder, media, self._begin, made_of, groups
        )
        floating_ips = FloatingIpDriver(self._around)
        self._relays = RelayDriver(self._around, floating_ips, tunnels, is_home)
        self._resuming: asyncio.Task[None] | None = None
        self._drivers: dict[Kind, Driver] = {
            Kind.NETWORK: NetworkDriver(self._around),
            Kind.PORT: PortDriver(self._around),
            Kind.TRUNK: TrunkDriver(self._around),
            Kind.FLOATING_IP: floating_ips,
            Kind.ROUTER: RouterDriver(self._around, floating_ips),
            Kind.SERVER_GROUP: groups,
            Kind.KEY_PAIR: self._key_pairs,
            Kind.RELAY: self._relays,
            Kind.BOOT_IMAGE: made_of.boot_images,
            Kind.IMAGE: roots,
            Kind.MACHINE: self._machines,
            Kind.SNAPSHOT: KeptRootDriver(self._around, self._machines.snapshots),
        }

    @property
    def drivers(self) -> Mapping[Kind, Driver]:
        return self._drivers

    @property
    def machine_driver(self) -> ServerDriver:
        return self._machines

    async def capabilities(self) -> Capabilities:
        return Capabilities(
            kinds=frozenset(self._drivers),
            firmwares=frozenset(FIRMWARES),
            archs=frozenset({Arch.X86_64}),
            tpm=False,
            accelerator="nova",
            anti_spoofing=True,
            identity=" ".join(self._around.cloud.daemon),
            rules=RULES,
        )

    async def deployments(self) -> Mapping[str, int]:
        servers = [each.tagged for each in await Roster(self._around).servers()]
        networks = [each.tagged for each in await self._around.networks()]
        return Counter(each.tag.deployment for each in (*servers, *networks) if each is not None)

    async def survey(self, pools: str, named: Collection[str]) -> HostFacts:
        """Flavors, networks, and quotas with what of them is used."""
        del pools
        if self._around.cloud.has_volumes:
            await self._require_volumes()
        quota, flavors = await Quotas(self._around).survey(), await self._flavors()
        own, roles = await self._api.project(), await self._api.roles()
        version = await self._api.microversion()
        names, own_names, external = set[str](), set[str](), list[tuple[str, str]]()
        sees_places, given = False, await self._around.addresses()
        addresses = dict[str, int]()
        async for each in paced(await self._around.networks()):
            names |= {each.name, each.id}
            if each.tagged is None:
                addresses |= dict.fromkeys((each.name, each.id), given.get(each.id, 0))
            sees_places |= each.segment is not None
            if each.project == own:
                own_names |= {each.name, each.id}
            if each.is_external:
                external.append((each.name, each.id))
        return replace(
            HostFacts.of_one_that(await self.capabilities()),
            cpus=known(quota.left(QuotaName.CPUS)),
            memory=known(quota.left(QuotaName.MEMORY)),
            quota=quota,
            real=True,
            sizes=self._sizes(flavors),
            flavors={name: each for each in flavors for name in (each.id, each.name)},
            networks=frozenset(names),
            own_networks=frozenset(own_names),
            external_networks=tuple(external),
            provider_networks=sees_places,
            addresses=addresses,
            trunks=await self._api.get(Service.NEUTRON, TRUNKS, read=bool) is not None,
            roles=roles,
            computes=await self._computes() if ADMIN in roles else None,
            image_formats=await self._boot_images.formats(),
            makes_cds=version >= WITH_CDS,
            counts_in_groups=version >= WITH_RULES,
            key_pairs=await self._named_pairs(),
            kept=await SnapshotImages(self._around).roots(),
            cloud_images=await named_images(self._around, named),
        )

    async def _computes(self) -> frozenset[str] | None:
        """What compute hosts run, None where they may not be seen, or are too many."""
        path = f"/os-hypervisors/detail?limit={MOST_COMPUTES}"
        how: How = {"microversion": PAGED}
        try:
            return await self._api.call(Service.NOVA, "GET", path, read=_run_by, **how)
        except HostUnreachable:
            raise
        except ProviderError as error:
            log.info("compute hosts are not shown", cloud=self._api.name, why=str(error))
            return None

    async def _named_pairs(self) -> frozenset[str] | None:
        """None where the file names none."""
        if not self._around.cloud.key_pair:
            return None
        return frozenset(each.name for each in await self._key_pairs.pairs())

    async def _flavors(self) -> list[SizeOffered]:
        """All that the project sees. Raises `ProviderError` for too many."""
        flavors = self._api.listed(Service.NOVA, "/flavors/detail", read=_size)
        found = [each async for each in flavors]
        if len(found) > MOST_FLAVORS:
            raise ProviderError(f"cloud {self._api.name} has more than {MOST_FLAVORS} flavors")
        return found

    def _sizes(self, found: Sequence[SizeOffered]) -> tuple[SizeOffered, ...]:
        """Flavors that the file allows, and beside volumes those alone that have no ephemeral disk:
        Nova gives it to every server. Raises `ProviderError` for names that the cloud has not.
        """
        allowed = self._around.cloud.flavors
        names = {name for each in found for name in (each.name, each.id)}
        missing = [name for name in allowed if name not in names]
        if missing:
            raise ProviderError(
                f"cloud {self._api.name} has no flavor {', '.join(missing)}",
                hint=f"It has {listed([each.name for each in found]) or 'none'}.",
            )
        chosen = (each for each in found if not allowed or {each.name, each.id} & set(allowed))
        if not self._around.cloud.has_volumes:
            return tuple(chosen)
        beside = [replace(each, disk=ENDLESS, root=ENDLESS) for each in chosen if not each.disk]
        if not beside:
            raise ProviderError(
                f"every flavor of cloud {self._api.name} that nodes may use has an ephemeral "
                "disk, which Nova would add to their volumes",
                hint="Allow others by `flavors` of its host, or drop its `volumes`.",
            )
        return tuple(beside)

    async def _require_volumes(self) -> None:
        """Raises `ProviderError` for a region without Cinder, or without the volume type."""
        wanted, name = self._around.cloud.volume_type, self._api.name
        if not await self._api.has_volumes():
            raise ProviderError(
                f"the region of cloud {name} makes no volumes: it has no Cinder",
                hint="Drop `volumes` of its host: disks are parts of the flavor then.",
            )
        if not wanted:
            return
        known = await self._api.call(Service.CINDER, "GET", "/types", read=_volume_types)
        if wanted not in known:
            raise ProviderError(
                f"cloud {name} has no volume type {wanted}",
                hint=f"It has {listed(known) or 'none'}.",
            )

    async def adoptable(self) -> tuple[Adoptable, ...]:
        return await self._owners.adoptable()

    def configure(self, host: Host) -> None:
        self._around.host = host

    async def check(self) -> None:
        await self._api.call(Service.NOVA, "GET", "/limits")

    def _begin(self) -> None:
        """There are nodes: answer their boot images. It is called each time a watch begins."""
        self._serve()
        if self._around.cloud.relay is None:
            return
        if self._resuming is None or self._resuming.done():
            self._resuming = self._tasks.start(self._resume(), name="tunnels to relays")

    async def _resume(self) -> None:
        while True:
            try:
                await self._relays.resume()
            except ProviderError as error:
                log.warning("relays are not known yet", cloud=self._api.name, why=str(error))
                await asyncio.sleep(RESUME * self._around.pause)
            else:
                return

    async def close(self) -> None:
        await self._tasks.close()
        await self._relays.close()
        self._recorder.close()
        self._threads.shutdown(wait=False, cancel_futures=True)


def _run_by(answer: HypervisorsShown) -> frozenset[str] | None:
    if answer.get("hypervisors_links"):
        return None
    found = answer["hypervisors"][:MOST_COMPUTES]
    return frozenset(text_of(each["hypervisor_type"])[:LONGEST_NAME].lower() for each in found)


def _size(flavor: Flavor) -> SizeOffered:
    return SizeOffered(
        name=text_of(flavor["name"])[:LONGEST_NAME],
        id=text_of(flavor["id"])[:LONGEST_NAME],
        cpus=number_of(flavor["vcpus"]),
        memory=number_of(flavor["ram"]) * MIB,
        disk=number_of(flavor.get("OS-FLV-EXT-DATA:ephemeral", 0)) * GIB,
        root=number_of(flavor.get("disk", 0)) * GIB,
    )


def _volume_types(answer: Mapping[str, Sequence[VolumeType]]) -> list[str]:
    return [text_of(each["name"])[:LONGEST_NAME] for each in answer["volume_types"][:MOST_FLAVORS]]
