"""Machines and all that belongs to them, wired together up to the plan."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import BoundedSemaphore
from uuid import UUID

import structlog
from starlette.types import Receive, Scope, Send

from nospoon.control.content.client_downloads import ClientDownloads, Limits
from nospoon.control.content.files import Files
from nospoon.control.content.http_discs import HttpDiscs
from nospoon.control.content.library import Library
from nospoon.control.content.media import Media
from nospoon.control.content.seeds import Seeds
from nospoon.control.fleet.authority import Authority
from nospoon.control.fleet.enrolment import Enrolment
from nospoon.control.fleet.fleet import Fleet
from nospoon.control.fleet.host_boots import HostBoots
from nospoon.control.fleet.hosts import Hosts
from nospoon.control.labs.board import Board
from nospoon.control.labs.callbacks import Callbacks
from nospoon.control.labs.inventory import Inventories
from nospoon.control.planning.access import Access
from nospoon.control.planning.around import pool_root
from nospoon.control.planning.logins import Logins
from nospoon.control.planning.pending import Pending
from nospoon.control.planning.planner import Planner
from nospoon.daemon.bmc_state import StoredRuntime
from nospoon.daemon.boots import Boots
from nospoon.daemon.builds import Builds
from nospoon.daemon.connections import Connections
from nospoon.daemon.drivers import HostDrivers
from nospoon.daemon.enrolling import Enrolling
from nospoon.daemon.fenced import fenced
from nospoon.daemon.grants import GrantsFile
from nospoon.daemon.lease import Lease
from nospoon.daemon.remote import Remote, Remotes
from nospoon.daemon.simulation import Simulations
from nospoon.daemon.sockets import Sockets, boot_port, other_holder
from nospoon.daemon.stored_bmcs import StoredBmcs
from nospoon.engine.looks import Looks
from nospoon.errors import NospoonError
from nospoon.model.cluster import Host
from nospoon.model.machine import MachineEvent
from nospoon.model.principal import ROOT, Administrators, OwnerId
from nospoon.providers.base import Connection
from nospoon.providers.cloud_calls import Clouds, large_places
from nospoon.providers.ironic.connection import Ironics
from nospoon.providers.libvirt_rights import may_manage
from nospoon.providers.openstack.drives import KeptMedia
from nospoon.providers.recorder import RecordSpace
from nospoon.runtime import clock
from nospoon.runtime.gc_freeze import Heap
from nospoon.runtime.lookups import Lookups
from nospoon.runtime.reach import Reach
from nospoon.runtime.tasks import Tasks
from nospoon.runtime.udp import listening, ports_in_use
from nospoon.services.agents.service import AgentService, Bounds
from nospoon.services.bmcs.certificates import Certificates
from nospoon.services.bmcs.driver import BmcDriver
from nospoon.services.bmcs.service import BmcService
from nospoon.services.consoles.capacity import Capacity
from nospoon.services.consoles.records import Records
from nospoon.services.consoles.service import ConsoleService
from nospoon.services.netboot.driver import NetbootDriver
from nospoon.services.netboot.http import create_app as create_boot_app
from nospoon.services.netboot.peers import Peers
from nospoon.services.netboot.relayed import RelayNetbootDriver
from nospoon.services.netboot.relays import RelayTunnels
from nospoon.services.netboot.serving import HttpListeners
from nospoon.services.relayed.bmcs import RelayedBmcs
from nospoon.settings import Settings
from nospoon.store import clusters as stored
from nospoon.store.crypt import Cipher
from nospoon.store.database import Database

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Later:
    """What is made of the parts, and asked by them when all is made."""

    board: Callable[[], Board]
    inventories: Callable[[], Inventories]
    console_grows: Callable[[UUID], bool]
    """Whether this console of a registered machine is being recorded."""


class Parts:
    """Stores and files; hosts, machines and their BMCs; network boot; the planner over these."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        later: Later,
        *,
        lost: Callable[[str], None],
        lab_clock: clock.Clock,
    ) -> None:
        """`lost`: called with the reason when another daemon has this one's lease. `lab_clock`:
        Unix seconds, by which labs count leases, timeouts and pauses.
        """
        self.settings, self.database, self.later = settings, database, later
        self.lab_clock = lab_clock
        self.ready = False
        """Set when all nodes are known; machines that ask for a boot script before are to retry."""
        self.tasks, self.heap = Tasks("daemon"), Heap(lambda: len(self.fleet))
        self.cipher = Cipher.from_file(settings.state / "nospoon.key")
        self.reach = Reach(settings.media_networks, closed=self._is_own, names=Lookups())
        self.logins = Logins(self.cipher)
        self.files = Files.at(
            settings.state / "files",
            reserve=settings.free_space,
            quota=settings.owner_space,
            reach=replace(self.reach, anywhere=True),
        )
        self.clouds = Clouds(self.files.reach)
        self.downloads = ClientDownloads(
            self.tasks,
            Limits(reach=self.reach, largest=settings.media_size),
            self.files.space,
            self._owner_of,
        )
        self.records = Records(settings.state / "consoles")
        self.lease = Lease(
            self.database,
            seconds=settings.lease,
            pid_file=settings.pid_file,
            lost=lost,
        )
        self.builds = Builds(settings.cache, settings.state / "boot-iso", self._boot_http_port)
        self._wire_simulated()
        self._wire_machines()
        self._wire_bmcs()
        self._wire_boot()
        self._wire_plans()

    def _wire_simulated(self) -> None:
        """Simulated hosts, and the agents that run in their machines."""
        settings = self.settings
        discs = HttpDiscs(
            lambda uuid: self.boots.http_uri_of(uuid),  # noqa: PLW0108  (made later)
            self.files,
            self.downloads,
        )
        bounds = Bounds(
            self.reach,
            endpoint_of=lambda uuid: self.enrolment.endpoint_of(self.fleet.get(uuid)),
            owner_of=lambda uuid: self.fleet.owner_of(uuid),  # noqa: PLW0108  (it is made later)
        )
        self.agents = AgentService(self.tasks, discs.cmdline, bounds=bounds)
        self.record_space = RecordSpace(self.files.space.lacking)
        self.simulations = Simulations(
            settings.state / "simulated",
            self.database.deployment,
            lambda: self.lease.fresh,
            guests=self.agents,
            is_probed=self._is_probed,
            record_space=self.record_space,
        )

    def _wire_machines(self) -> None:
        """Hosts, and the connections that they have."""
        settings, database = self.settings, self.database
        sockets = settings.runtime
        self.cloud_media = KeptMedia(settings.state / "cloud-media")
        self.files.space.beside = lambda owner: self.cloud_media.size(
            lambda machine: self._owner_of(machine) == owner
        )
        self.remotes = Remotes(
            state=settings.state,
            sockets=sockets,
            deployment=database.deployment,
            records=self.records,
            tasks=self.tasks,
        )
        self.seeds = Seeds()
        self.relay_netboot = RelayNetbootDriver(
            state=settings.state / "netboot-of-relays", deployment=database.deployment
        )
        self.tunnels = RelayTunnels(
            self._answer_relays,
            settings.runtime / "relays",
            self.cipher.derived("relays"),
            bmcs=RelayedBmcs(self._answers_relayed).serve,
            netboot=self.relay_netboot.serve,
            owner_of=self._member_of,
        )
        self.connections = Connections(
            deployment=database.deployment,
            sockets=sockets,
            verdicts=settings.cache,
            records=self.records.directory,
            files=self.files,
            seeds=self.seeds,
            builds=self.builds,
            simulations=self.simulations,
            remotes=self.remotes,
            begin=self._remote,
            login=self.logins.of,
            reach=self.files.reach,
            serve=self._serve_boot_scripts,
            media=self.cloud_media,
            is_at=lambda host, machine: self.hosts.is_at(host, machine),  # noqa: PLW0108  (made later)
            record_space=self.record_space,
            pools=lambda host: pool_root(host, str(settings.pools)),
            tunnels=self.tunnels,
            has_nodes=lambda host, cluster: self.fleet.has_nodes(host, cluster),  # noqa: PLW0108  (made later)
            large=self._large_places,
        )
        self.hosts = Hosts(self._connect, self.tasks, self._machine_event, sockets=sockets)

    def _large_places(self, login: str) -> BoundedSemaphore:
        """Of one that was planned by no one since the start, one of its own."""
        owner = self.logins.planned_by(login)
        return large_places(1) if owner is None else self.clouds.large_places(owner)

    def _wire_bmcs(self) -> None:
        """What belongs to each machine: its console, its media, its BMC."""
        settings = self.settings
        self.consoles = ConsoleService(
            self.hosts.console,
            self.records,
            fetch=self._fetch_record,
            capacity=Capacity(
                lambda uuid: self.fleet.get(uuid) is None and not self.later.console_grows(uuid),
                self.files.space.lacking,
            ),
        )
        store = StoredRuntime(self.database, self.cipher, self.tasks)
        self.media = Media(
            self.files,
            self.hosts,
            self.downloads,
            is_kept=self._is_kept,
            note=self._note_media,
        )
        self.certificates = Certificates(settings.state / "certificates")
        self.bmcs = BmcService(
            self.hosts,
            store,
            self.tasks,
            consoles=self.consoles,
            media=self.media,
            certificates=self.certificates,
            restart_seconds=settings.bmc_restart,
            account_key=self.cipher.derived("accounts"),
            reach=self.reach,
        )
        self.host_boots = HostBoots(
            self.hosts,
            self.tasks,
            self.bmcs.host_seen,
            is_new=self.bmcs.is_new_boot,
            drivers_of=lambda host: self.drivers.of(host),  # noqa: PLW0108  (made later)
        )

    def _wire_boot(self) -> None:
        """Who decides what a machine boots, and what serves it."""
        settings, database = self.settings, self.database
        self.boots = Boots(self.bmcs, self.hosts, self.tasks)
        self.authority = Authority(
            self.boots.plan_of,
            self.boots.http_uri_of,
            self.bmcs.boot_observed,
            medium_of=self.cloud_media.path,
            start_disk=self.boots.start_disk,
        )
        self.fleet = Fleet(self.hosts, self.authority, self.bmcs.reshape, left=self._node_left)
        self.peers = Peers(self._owner_of)
        self.callbacks = Callbacks(
            self.later.board,
            self.lab_clock,
            self.later.inventories,
            self.fleet.owner_of_bridge,
        )
        app = create_boot_app(
            self.authority,
            self.peers,
            ready=lambda: self.ready,
            lab=self.callbacks,
            inventories=self.callbacks,
        )
        self.relay_app = create_boot_app(self.authority, self.peers, ready=lambda: self.ready)
        self.boot_http = HttpListeners(app, port=boot_port(settings))
        self.netboot = NetbootDriver(
            state=settings.state / "netboot",
            deployment=database.deployment,
            http=self.boot_http,
            authority=self.authority,
            peers=self.peers,
            find_grub=self.builds.grub,
        )

    def _wire_plans(self) -> None:
        """Who may ask for what, and what comes of it."""
        settings, database = self.settings, self.database
        self.pending = Pending()
        self.bmc_records = StoredBmcs(database, self.cipher, self.fleet, self.pending)
        self.bmc_driver = BmcDriver(self.bmcs, self.bmc_records)
        self.drivers = HostDrivers(
            self.hosts,
            self.bmc_driver,
            self.netboot,
            self.relay_netboot,
            self._remote,
            self.lease.require,
        )
        self.sockets = Sockets(self.bmcs, self.boot_http, self.agents)
        self.ironics = Ironics(
            database.deployment,
            self.bmc_records.secrets,
            self.tasks,
            self.clouds,
            patience=settings.ironic_patience,
        )
        self.enrolling = Enrolling(
            self.ironics,
            self.clouds,
            deployment=database.deployment,
            fleet=self.fleet,
            hosts=self.hosts,
            bmcs=self.bmcs,
            require=self.lease.require,
        )
        self.admins = Administrators(frozenset({ROOT, os.getuid()}))
        self.access = Access(
            self.admins,
            GrantsFile(settings.grants, self.admins.uids).read,
            str(settings.grants),
            may_manage,
        )
        self._wire_planner()

    def _wire_planner(self) -> None:
        settings, database = self.settings, self.database
        self.enrolment = Enrolment(
            self.cipher, self.enrolling.drivers, self.ironics.nodes, database, self.ironics.held
        )
        self.planner = Planner(
            access=self.access,
            enrolment=self.enrolment,
            logins=self.logins,
            database=database,
            cipher=self.cipher,
            files=self.files,
            seeds=self.seeds,
            hosts=self.hosts,
            looks=Looks(self.tasks),
            drivers_of=self.drivers.of,
            ports_in_use=lambda: ports_in_use("udp"),
            listening=listening,
            holder_of_port=other_holder,
            labs=lambda: [(each.owner, each.lab) for each in self.later.board().known.values()],
            check_sockets=self.sockets.violations,
            fleet=self.fleet,
            boot_port=self._boot_http_port,
            pool_root=str(settings.pools),
            default_uri=settings.default_uri,
            member_nodes=settings.member_nodes,
        )
        self.library = Library(database, self.files, self.planner.workers, clock.unix)

    def _serve_boot_scripts(self, address: str) -> None:
        """Guests of a cloud ask at this address."""
        self.tasks.start(self._serving_at(address), name=f"serve boot scripts at {address}")

    async def _serving_at(self, address: str) -> None:
        try:
            self.boot_http.refuse(address)
            await self.boot_http.open(address)
        except NospoonError as error:
            log.warning("boot scripts are not served", address=address, why=str(error))

    def _connect(self, host: Host) -> Connection:
        return fenced(self.connections.connect(host), self.lease.require)

    def _remote(self, host: Host) -> Remote:
        return self.remotes.use(host, self.hosts, self.authority, self.builds.grub)

    async def _answer_relays(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What comes through relays: boot scripts and files of machines that know their secret."""
        await self.relay_app(scope, receive, send)

    def _answers_relayed(self, cluster: UUID, address: str, port: int) -> bool:
        """Whether a BMC of this cluster alone answers there."""
        place = address, port
        served = self.bmcs.registry.at(place)
        here = {*self.bmcs.registry.redfish_at(place), *([served.bmc.uuid] if served else [])}
        members = [self.fleet.get(each) for each in here]
        return bool(here) and all(each and each.cluster_id == cluster for each in members)

    def _machine_event(self, event: MachineEvent) -> None:
        if event.smbios is not None:
            self.authority.call(event.uuid, event.smbios)
        self.bmcs.machine_event(event)
        self.consoles.machine_event(event)
        self.host_boots.note(event)

    def _node_left(self, machine: UUID) -> None:
        self.cloud_media.drop(machine)
        self.consoles.node_removed(machine)

    async def _fetch_record(self, machine: UUID) -> None:
        await self.remotes.fetch_record(machine, hosts=self.hosts)

    async def publish(self, *machines: UUID) -> None:
        await self.netboot.publish(*machines)
        await self.remotes.publish(*machines)

    def _boot_http_port(self) -> int:
        return self.boot_http.port

    def machine_of(self, owner: OwnerId, reference: str) -> UUID | None:
        try:
            return self.fleet.find(owner, reference).uuid
        except NospoonError:
            return None

    def _owner_of(self, machine: UUID) -> int | None:
        member = self.fleet.get(machine)
        return member.owner if member is not None else None

    def _member_of(self, cluster: UUID) -> OwnerId | None:
        """Whose a cluster is, None for administrators, whom nothing limits."""
        owner = self.fleet.owner_of_cluster(cluster)
        return None if owner is None or owner in self.admins else owner

    async def _is_kept(self, sha256: str) -> bool:
        return sha256 in await self.database.read(stored.digests)

    async def _note_media(self, uuid: UUID, name: str) -> None:
        await self.bmcs.media_changed(uuid, name)

    def _is_probed(self, machine: UUID) -> bool:
        return self.authority.is_probed(machine)

    def _is_own(self, address: str, port: int) -> bool:
        """Whether boot files or BMCs are served there: both know who asks by the address, and so by
        this machine's for what it is made to ask.
        """
        return self.boot_http.serves(address, port) or self.bmcs.answers_at(address, port)
