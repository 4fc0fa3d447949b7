"""Wires everything together: the only place that knows every part."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Self
from uuid import UUID

import sqlalchemy
import structlog
from starlette.types import Receive, Scope, Send

from nospoon.api.app import create_app
from nospoon.api.peer import Members, PeerHttp, PeerWebSocket
from nospoon.control.content.client_downloads import ClientDownloads, Limits
from nospoon.control.content.files import Files
from nospoon.control.content.http_discs import HttpDiscs
from nospoon.control.content.library import Library
from nospoon.control.content.media import Media
from nospoon.control.content.seeds import Seeds
from nospoon.control.content.space import text_of
from nospoon.control.controller import Controller
from nospoon.control.fleet.authority import Authority
from nospoon.control.fleet.enrolment import Enrolment
from nospoon.control.fleet.fleet import Fleet
from nospoon.control.fleet.host_boots import HostBoots
from nospoon.control.fleet.hosts import Hosts
from nospoon.control.labs.access import People
from nospoon.control.labs.bmcs import RegisteredBmcs
from nospoon.control.labs.callbacks import Callbacks
from nospoon.control.labs.consoles import RegisteredConsoles
from nospoon.control.labs.installers import Installers
from nospoon.control.labs.inventory import Inventories
from nospoon.control.labs.racks import Racks
from nospoon.control.labs.service import Labs
from nospoon.control.labs.set_logins import SetLogins
from nospoon.control.labs.watch import Watch
from nospoon.control.labs.webhooks import Webhooks
from nospoon.control.maintenance.orphans import Orphans
from nospoon.control.maintenance.recover import Recovery
from nospoon.control.maintenance.survey import Survey
from nospoon.control.operations.health import HealthChecks
from nospoon.control.operations.memory import Memory
from nospoon.control.operations.nodes import Nodes
from nospoon.control.operations.operations import Operations
from nospoon.control.operations.services import Services
from nospoon.control.operations.snapshots import Snapshots
from nospoon.control.operations.starting import Starting
from nospoon.control.operations.verify import Verifier
from nospoon.control.operations.work import Work
from nospoon.control.planning.access import Access
from nospoon.control.planning.around import pool_root
from nospoon.control.planning.exports import Exports
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
from nospoon.daemon.labs import board_over
from nospoon.daemon.lease import Lease
from nospoon.daemon.remote import Remote, Remotes
from nospoon.daemon.simulation import Simulations
from nospoon.daemon.sockets import LOOPBACK, Sockets, boot_port, other_holder
from nospoon.daemon.stored_bmcs import StoredBmcs
from nospoon.engine.looks import Looks
from nospoon.errors import NospoonError
from nospoon.model.cluster import Host
from nospoon.model.machine import MachineEvent
from nospoon.model.principal import ROOT, Administrators, OwnerId
from nospoon.model.resources import Resource
from nospoon.plan.words import counted
from nospoon.providers.base import Connection
from nospoon.providers.cloud_calls import Clouds
from nospoon.providers.ironic.connection import Ironics
from nospoon.providers.libvirt_rights import may_manage
from nospoon.providers.openstack.drives import KeptMedia
from nospoon.providers.recorder import RecordSpace
from nospoon.runtime import clock, running
from nospoon.runtime.hardening import restrict
from nospoon.runtime.heap import Heap
from nospoon.runtime.http_limits import CONTROL
from nospoon.runtime.lookups import Lookups
from nospoon.runtime.reach import Reach
from nospoon.runtime.serve import HttpServer
from nospoon.runtime.tasks import Tasks
from nospoon.runtime.udp import listening, ports_in_use
from nospoon.runtime.workers import Workers
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
from nospoon.store import bmcs as bmc_rows
from nospoon.store import clusters as stored
from nospoon.store import images as loaded_images
from nospoon.store import lab_notices, logins
from nospoon.store import operations as journal
from nospoon.store.crypt import Cipher
from nospoon.store.database import Database

log = structlog.get_logger()
FIRST_LOOK = 5.0
"""Seconds for which start-up waits for its hosts, so that the first answer about power is right."""


class Daemon:
    """Everything of one daemon; an async context manager from ready to ended."""

    def __init__(
        self,
        settings: Settings,
        listener: socket.socket,
        ending: asyncio.Event,
        *,
        lab_clock: clock.Clock = clock.unix,
    ) -> None:
        """`lab_clock`: Unix seconds, by which labs count leases, timeouts and pauses."""
        self._settings, self._listener, self._ending = settings, listener, ending
        self._lab_clock = lab_clock
        self._ready = False
        self._tasks, self._heap = Tasks("daemon"), Heap(lambda: len(self.fleet))
        self._end = contextlib.AsyncExitStack()
        self.database = _opened(settings)
        self._end.callback(running.hold(self.database.deployment).close)
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
            self._tasks,
            Limits(reach=self.reach, largest=settings.media_size),
            self.files.space,
            self._owner_of,
        )
        self.records = Records(settings.state / "consoles")
        self.lease = Lease(
            self.database,
            seconds=settings.lease,
            pid_file=settings.pid_file,
            lost=self._superseded,
        )
        self.superseded = ""
        self.builds = Builds(settings.cache, settings.state / "boot-iso", self._boot_http_port)
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
        self.agents = AgentService(self._tasks, discs.cmdline, bounds=bounds)
        self.record_space = RecordSpace(self.files.space.lacking)
        self.simulations = Simulations(
            settings.state / "simulated",
            self.database.deployment,
            lambda: self.lease.fresh,
            guests=self.agents,
            is_probed=self._is_probed,
            record_space=self.record_space,
        )
        self._wire_machines()
        self._wire_bmcs()
        self._wire_boot()
        self._wire_plans()
        self._wire_work()
        self._wire_api()

    def _wire_machines(self) -> None:
        """Hosts, and the connections that they have."""
        settings, database = self._settings, self.database
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
            tasks=self._tasks,
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
        )
        self.hosts = Hosts(self._connect, self._tasks, self._machine_event, sockets=sockets)

    def _wire_bmcs(self) -> None:
        """What belongs to each machine: its console, its media, its BMC."""
        settings = self._settings
        self.consoles = ConsoleService(
            self.hosts.driver,
            self.records,
            fetch=self._fetch_record,
            capacity=Capacity(
                lambda uuid: (
                    self.fleet.get(uuid) is None and not self.registered_consoles.is_growing(uuid)
                ),
                self.files.space.lacking,
            ),
        )
        store = StoredRuntime(self.database, self.cipher, self._tasks)
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
            self._tasks,
            consoles=self.consoles,
            media=self.media,
            certificates=self.certificates,
            restart_seconds=settings.bmc_restart,
            account_key=self.cipher.derived("accounts"),
            reach=self.reach,
        )
        self.host_boots = HostBoots(
            self.hosts,
            self._tasks,
            self.bmcs.host_seen,
            is_new=self.bmcs.is_new_boot,
            drivers_of=lambda host: self.drivers.of(host),  # noqa: PLW0108  (made later)
        )

    def _wire_boot(self) -> None:
        """Who decides what a machine boots, and what serves it."""
        settings, database = self._settings, self.database
        self.boots = Boots(self.bmcs, self.hosts, self._tasks)
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
            lambda: self.board,
            self._lab_clock,
            lambda: self.inventories,
            self.fleet.owner_of_bridge,
        )
        app = create_boot_app(
            self.authority,
            self.peers,
            ready=lambda: self._ready,
            lab=self.callbacks,
            inventories=self.callbacks,
        )
        self.relay_app = create_boot_app(self.authority, self.peers, ready=lambda: self._ready)
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
        settings, database = self._settings, self.database
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
            self._tasks,
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
            looks=Looks(self._tasks),
            drivers_of=self.drivers.of,
            ports_in_use=lambda: ports_in_use("udp"),
            listening=listening,
            holder_of_port=other_holder,
            labs=lambda: [(each.owner, each.lab) for each in self.board.known.values()],
            check_sockets=self.sockets.violations,
            fleet=self.fleet,
            boot_port=self._boot_http_port,
            pool_root=str(settings.pools),
            default_uri=settings.default_uri,
            member_nodes=settings.member_nodes,
        )
        self.library = Library(database, self.files, self.planner.workers, clock.unix)

    def _wire_work(self) -> None:
        """What carries plans out, labs, and the controller before all of it."""
        settings, database = self._settings, self.database
        self.operations = Operations(database, self._tasks, clock.unix, after=self._heap.settle)
        self.nodes = self._nodes()
        self.people = People(self.admins)
        self.lab_records = Workers("records of labs", 1)
        self.lab_consoles = Workers("consoles of labs", 2)
        self.bmc_reach = replace(self.reach, closed=self.boot_http.serves)
        self.registered_consoles = RegisteredConsoles(
            records=self.records,
            reach=self.bmc_reach,
            tasks=self._tasks,
            workers=Workers("console logs of labs", 2),
            ended=self.consoles.node_removed,
            lacking=self.files.space.lacking,
        )
        racks = self._racks()
        self.board = board_over(
            racks,
            Webhooks(
                self._tasks,
                self.reach,
                lambda ids: database.call(lab_notices.remove, ids),
                has=lambda lab, hook: self.board.labs.has_webhook(lab, hook),  # noqa: PLW0108  (made here)
            ),
            tasks=self._tasks,
            workers=self.lab_records,
            clock=self._lab_clock,
        )
        self.inventories = Inventories(self.board, racks, self.builds.probe, clock.unix)
        self.health = HealthChecks(self.hosts)
        self.memory = Memory(
            database=database,
            cipher=self.cipher,
            files=self.files,
            planner=self.planner,
            fleet=self.fleet,
            consoles=self.consoles,
            publish=self._publish,
            give=self.certificates.give,
            labs=self.board.labs,
            clock=clock.unix,
        )
        self.work = Work(
            database=database,
            memory=self.memory,
            planner=self.planner,
            hosts=self.hosts,
            fleet=self.fleet,
            records=self.records,
            fetch_records=partial(self.remotes.fetch_records, hosts=self.hosts),
            pending=self.pending,
            starting=Starting(self.bmcs.start, self.health, self.planner.workers),
            clock=clock.unix,
            patience=settings.ironic_patience,
        )
        self.snapshots = Snapshots(
            database=database,
            fleet=self.fleet,
            hosts=self.hosts,
            bmcs=self.bmcs,
            operations=self.operations,
            tasks=self._tasks,
            clock=clock.unix,
        )
        self.controller = self._controller()

    def _wire_api(self) -> None:
        settings = self._settings
        self.members = Members(settings.group, self.admins)
        api = create_app(self.controller, members=self.members)
        self.api = HttpServer(
            api,
            [self._listener],
            limits=CONTROL,
            identify=self.members.identify,
            authorize=self.members.authorize,
            http=PeerHttp,
            ws=PeerWebSocket,
        )

    def _controller(self) -> Controller:
        verifier = Verifier(
            hosts=self.hosts,
            bmcs=self.bmcs,
            authority=self.authority,
            consoles=self.consoles,
            build_probe=self.builds.probe,
            publish=self._publish,
            clock=clock.unix,
        )
        survey = Survey(
            database=self.database,
            planner=self.planner,
            hosts=self.hosts,
            default_uri=self._settings.default_uri,
        )
        orphans = Orphans(
            database=self.database, survey=survey, operations=self.operations, clock=clock.unix
        )
        return Controller(
            database=self.database,
            files=self.files,
            library=self.library,
            hosts=self.hosts,
            fleet=self.fleet,
            nodes=self.nodes,
            planner=self.planner,
            work=self.work,
            verifier=verifier,
            operations=self.operations,
            survey=survey,
            orphans=orphans,
            recovery=self._recovery(survey),
            snapshots=self.snapshots,
            services=self._services(),
            exports=self._exports(),
            labs=self._labs(),
            consoles=self.consoles,
            clock=clock.unix,
            stop=self._ending.set,
            log_file=self._settings.log_file,
            started=clock.unix(),
            settings=self._settings.digests,
        )

    def _recovery(self, survey: Survey) -> Recovery:
        return Recovery(
            database=self.database,
            cipher=self.cipher,
            survey=survey,
            operations=self.operations,
            hosts=self.hosts,
            fleet=self.fleet,
            enrolment=self.planner.enrolment,
            logins=self.logins,
            clock=clock.unix,
        )

    def _services(self) -> Services:
        return Services(
            database=self.database,
            planner=self.planner,
            fleet=self.fleet,
            nodes=self.nodes,
            checks=self.health,
        )

    def _labs(self) -> Labs:
        return Labs(
            self.board,
            self.people,
            self.planner.workers,
            self._lab_clock,
            self.consoles,
            self.registered_consoles,
            self.nodes.console_log,
            self.inventories,
            self.operations,
        )

    def _racks(self) -> Racks:
        work = self._settings.state / "installers"
        shutil.rmtree(work, ignore_errors=True)  # what a daemon that was killed was making
        return Racks(
            admins=self.admins,
            kept=self.planner.clusters.kept,
            clusters=lambda: self.controller,
            power=self.nodes.power,
            start=self.nodes.start,
            operations=self.operations,
            machines=RegisteredBmcs(self.bmc_reach),
            consoles=self.registered_consoles,
            database=self.database,
            cipher=self.cipher,
            workers=self.planner.workers,
            installers=Installers(self.files, self.builds.installer, work),
            logins=SetLogins(self.database, self._use_logins),
        )

    async def _use_logins(self, cluster: UUID, now: Sequence[Host]) -> None:
        await self.memory.use_logins(cluster, now)

    def _watch(self) -> Watch:
        return Watch(
            self.board,
            self.consoles,
            self._machine_of,
            self.registered_consoles,
            self.lab_consoles,
            self._lab_clock,
        )

    def _nodes(self) -> Nodes:
        return Nodes(
            database=self.database,
            cipher=self.cipher,
            hosts=self.hosts,
            fleet=self.fleet,
            bmcs=self.bmcs,
            consoles=self.consoles,
            media=self.media,
        )

    def _exports(self) -> Exports:
        return Exports(
            database=self.database,
            cipher=self.cipher,
            planner=self.planner,
            fleet=self.fleet,
            bmcs=self.bmcs,
        )

    async def __aenter__(self) -> Self:
        """Know all nodes, serve all BMCs, take up network boot, then answer."""
        self._end.callback(self.database.close)
        try:
            await self.lease.take()
        except BaseException:
            await self._end.aclose()
            raise
        self._end.push_async_callback(self.lease.give_back)
        self._end.callback(self.downloads.close)
        of_labs = (self.lab_records, self.lab_consoles, self.registered_consoles.workers)
        for workers in (self.planner.workers, *of_labs):
            self._end.callback(workers.close)
        self._end.callback(self.people.close)
        self._end.callback(self.clouds.close)  # after the tasks that call them
        self._end.callback(self.simulations.save)  # after all that changes machines
        self._end.push_async_callback(self._tasks.close)
        self._end.push_async_callback(self.tunnels.close)
        self._end.push_async_callback(self.agents.close)
        self._end.push_async_callback(self.hosts.close)
        self._tasks.start(self.lease.keep(), name="keep the lease")
        self._tasks.start(self.simulations.keep(), name="keep simulations")
        self._tasks.start(self.hosts.tidy(), name="close idle connections")
        self._tasks.start(self._heap.keep_tidy(), name="collect garbage")
        self._tasks.start(self.files.tidy(self._named_files), name="remove files no one names")
        self._settings_directories()
        interrupted = await self.database.call(journal.interrupt_running, now=clock.unix())
        await self.database.call(self._restore_logins)
        nodes = await self.memory.restore()
        await self._tidy_files()
        await self.bmcs.restore_events()
        failed = await self._restore_bmcs()
        self._end.push_async_callback(self.bmcs.close)
        await self.hosts.look_at_all(patience=FIRST_LOOK)
        await self.boot_http.open(LOOPBACK)
        await self.netboot.start()
        self._end.push_async_callback(self.netboot.close)
        self.consoles.start()
        self._end.push_async_callback(self.consoles.close)
        half_made = await self.snapshots.half_made()
        self._tasks.start(self.snapshots.mend(half_made), name="repair snapshots")
        self.host_boots.begin()
        self._ready = True
        await self.board.start()
        self._tasks.start(self.memory.read_rest(), name="read the rest of the cluster files")
        self.lab_watch = self._watch()
        self._tasks.start(self.lab_watch.keep(), name="watch consoles of labs")
        await self._begin_to_answer()
        open_calls = len(await self.database.call(journal.open_intents))
        self.controller.found = _found(nodes, [row.kind for row in interrupted], open_calls, failed)
        log.info("start-up found", what=self.controller.found)
        return self

    async def _begin_to_answer(self) -> None:
        await self.api.start()
        self._tasks.start(asyncio.to_thread(self.connections.prepare), name="import libvirt")
        self._end.callback(self.members.close)
        self._end.push_async_callback(self._stop_serving)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._end.aclose()

    async def _stop_serving(self) -> None:
        """Operations end while BMCs and hosts still answer: some power nodes off."""
        try:
            await self.api.close()
        finally:
            await self.operations.end()

    def _settings_directories(self) -> None:
        """virtlogd and dnsmasq's user look into these; what is secret has a mode of its own."""
        for name in ("consoles", "netboot"):
            directory = self._settings.state / name
            directory.mkdir(exist_ok=True, mode=0o711)
            restrict(directory, 0o711)

    def _restore_logins(self, connection: sqlalchemy.Connection) -> None:
        """Those of hosts that some cluster has; others were left by clusters that are gone."""
        named = {each.connection.login for each in stored.all_hosts(connection)} - {""}
        logins.keep(connection, named)
        self.logins.restore(logins.all_of_them(connection))

    async def _restore_bmcs(self) -> dict[str, str]:
        records = await self.database.call(bmc_rows.records)
        resources = [(Resource(key, bmc, node=key.name), tag) for key, bmc, tag in records]
        return await self.bmc_driver.restore(resources)

    def _superseded(self, reason: str) -> None:
        """Somebody else is in control: end, and do nothing on the way."""
        self.superseded = reason
        self._ending.set()

    def _serve_boot_scripts(self, address: str) -> None:
        """Guests of a cloud ask at this address."""
        self._tasks.start(self._serving_at(address), name=f"serve boot scripts at {address}")

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

    async def _serving_at(self, address: str) -> None:
        try:
            self.boot_http.refuse(address)
            await self.boot_http.open(address)
        except NospoonError as error:
            log.warning("boot scripts are not served", address=address, why=str(error))

    def _machine_event(self, event: MachineEvent) -> None:
        if event.smbios is not None:
            self.authority.call(event.uuid, event.smbios)
        self.bmcs.machine_event(event)
        self.consoles.machine_event(event)
        self.host_boots.note(event)

    def _connect(self, host: Host) -> Connection:
        return fenced(self.connections.connect(host), self.lease.require)

    def _boot_http_port(self) -> int:
        return self.boot_http.port

    async def _tidy_files(self) -> None:
        """What no cluster names was left by a daemon that ended."""
        rows = await self.database.call(stored.holdings)
        named = {digest for row in rows for digest in row.uploads.values()}
        named |= {sha256 for _, sha256 in await self.database.call(loaded_images.holders)}
        await asyncio.to_thread(self.files.begin, named)
        owned = defaultdict[int, set[str]](set)
        for row in rows:
            owned[row.owner].update(row.uploads.values())
            self.files.space.hold(row.owner, text_of(row.id), row.size)
        self.files.space.begin(owned)
        await self.library.begin()
        self.cloud_media.tidy(lambda machine: self.fleet.get(machine) is not None)

    async def _named_files(self) -> set[str]:
        return await self.database.read(stored.digests)

    def _machine_of(self, owner: OwnerId, reference: str) -> UUID | None:
        try:
            return self.fleet.find(owner, reference).uuid
        except NospoonError:
            return None

    def _node_left(self, machine: UUID) -> None:
        self.cloud_media.drop(machine)
        self.consoles.node_removed(machine)

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

    def _remote(self, host: Host) -> Remote:
        return self.remotes.use(host, self.hosts, self.authority, self.builds.grub)

    def _is_probed(self, machine: UUID) -> bool:
        return self.authority.is_probed(machine)

    async def _publish(self, *machines: UUID) -> None:
        await self.netboot.publish(*machines)
        await self.remotes.publish(*machines)

    def _is_own(self, address: str, port: int) -> bool:
        """Whether boot files or BMCs are served there: both know who asks by the address, and so by
        this machine's for what it is made to ask.
        """
        return self.boot_http.serves(address, port) or self.bmcs.answers_at(address, port)

    async def _fetch_record(self, machine: UUID) -> None:
        await self.remotes.fetch_records(machine, hosts=self.hosts)


def _opened(settings: Settings) -> Database:
    """The store. Its deployment's id is kept beside it, so that a new store is the same one."""
    kept = settings.state / "deployment"
    database = Database.open(
        settings.database, deployment=kept.read_text().strip() if kept.exists() else ""
    )
    kept.write_text(f"{database.deployment}\n")
    return database


def _found(nodes: int, interrupted: list[str], calls: int, failed: dict[str, str]) -> str:
    """What start-up found, in a sentence or two."""
    parts = [counted(nodes, "node")]
    if interrupted:
        kinds = ", ".join(interrupted)
        parts.append(
            f"{kinds} interrupted with {calls} calls of unknown outcome: run the same command again"
        )
    parts += [f"BMC of {node} is not served: {why}" for node, why in failed.items()]
    return "; ".join(parts)
