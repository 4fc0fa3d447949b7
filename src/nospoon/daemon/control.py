"""What is made of the parts: operations, labs, and the controller and API before all of it."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from uuid import UUID

from nospoon.api.app import create_app
from nospoon.api.peer import Members, PeerHttp, PeerWebSocket
from nospoon.control.controller import Controller
from nospoon.control.labs.access import People
from nospoon.control.labs.bmcs import RegisteredBmcs
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
from nospoon.control.operations.restoring import Restoring
from nospoon.control.operations.services import Services
from nospoon.control.operations.snapshots import Snapshots
from nospoon.control.operations.starting import Starting
from nospoon.control.operations.verify import Verifier
from nospoon.control.operations.work import Work
from nospoon.control.planning.exports import Exports
from nospoon.daemon.labs import board_over
from nospoon.daemon.parts import Parts
from nospoon.model.cluster import Host
from nospoon.runtime import clock
from nospoon.runtime.http_limits import CONTROL
from nospoon.runtime.serve import HttpServer
from nospoon.runtime.workers import Workers
from nospoon.store import lab_notices


class Control:
    """What carries plans out; labs; the controller and the API before all of it."""

    def __init__(self, parts: Parts, listener: socket.socket, *, stop: Callable[[], None]) -> None:
        """`listener`: of the API. `stop`: ends the daemon."""
        self.operations = Operations(
            parts.database, parts.tasks, clock.unix, after=parts.heap.settle
        )
        self.nodes = self._nodes(parts)
        self._wire_labs(parts)
        self._wire_work(parts)
        self.controller = self._controller(parts, stop)
        self._wire_api(parts, listener)

    def _wire_labs(self, parts: Parts) -> None:
        self.people = People(parts.admins)
        self.lab_records = Workers("records of labs", 1)
        self.lab_consoles = Workers("consoles of labs", 2)
        self.bmc_reach = replace(parts.reach, closed=parts.boot_http.serves)
        self.registered_consoles = RegisteredConsoles(
            records=parts.records,
            reach=self.bmc_reach,
            tasks=parts.tasks,
            workers=Workers("console logs of labs", 2),
            ended=parts.consoles.node_removed,
            lacking=parts.files.space.lacking,
        )
        racks = self._racks(parts)
        self.board = board_over(
            racks,
            Webhooks(
                parts.tasks,
                parts.reach,
                lambda ids: parts.database.call(lab_notices.remove, ids),
                has=lambda lab, hook: self.board.labs.has_webhook(lab, hook),  # noqa: PLW0108  (made here)
            ),
            tasks=parts.tasks,
            workers=self.lab_records,
            clock=parts.lab_clock,
        )
        self.inventories = Inventories(self.board, racks, parts.builds.probe, clock.unix)
        self.watch = Watch(
            self.board,
            parts.consoles,
            parts.machine_of,
            self.registered_consoles,
            self.lab_consoles,
            parts.lab_clock,
        )

    def _wire_work(self, parts: Parts) -> None:
        """What carries plans out, and what it remembers."""
        self.health = HealthChecks(parts.hosts, parts.reach)
        self.memory = Memory(
            database=parts.database,
            cipher=parts.cipher,
            files=parts.files,
            planner=parts.planner,
            fleet=parts.fleet,
            consoles=parts.consoles,
            publish=parts.publish,
            give=parts.certificates.give,
            labs=self.board.labs,
            clock=clock.unix,
        )
        self.restoring = Restoring(
            database=parts.database,
            files=parts.files,
            planner=parts.planner,
            fleet=parts.fleet,
            give=parts.certificates.give,
            labs=self.board.labs,
        )
        self.work = Work(
            database=parts.database,
            memory=self.memory,
            planner=parts.planner,
            hosts=parts.hosts,
            fleet=parts.fleet,
            records=parts.records,
            fetch_records=parts.remotes.fetch_records,
            pending=parts.pending,
            starting=Starting(parts.bmcs.start, self.health, parts.consoles, parts.planner.workers),
            clock=clock.unix,
            patience=parts.settings.ironic_patience,
        )
        self.snapshots = Snapshots(
            database=parts.database,
            fleet=parts.fleet,
            hosts=parts.hosts,
            bmcs=parts.bmcs,
            operations=self.operations,
            tasks=parts.tasks,
            clock=clock.unix,
        )

    def _wire_api(self, parts: Parts, listener: socket.socket) -> None:
        self.members = Members(parts.settings.group, parts.admins)
        self.app = create_app(self.controller, members=self.members)
        self.api = HttpServer(
            self.app,
            [listener],
            limits=CONTROL,
            identify=self.members.identify,
            authorize=self.members.authorize,
            http=PeerHttp,
            ws=PeerWebSocket,
        )

    def _controller(self, parts: Parts, stop: Callable[[], None]) -> Controller:
        verifier = Verifier(
            hosts=parts.hosts,
            bmcs=parts.bmcs,
            authority=parts.authority,
            consoles=parts.consoles,
            build_probe=parts.builds.probe,
            publish=parts.publish,
            clock=clock.unix,
        )
        survey = Survey(
            database=parts.database,
            planner=parts.planner,
            hosts=parts.hosts,
            default_uri=parts.settings.default_uri,
        )
        orphans = Orphans(
            database=parts.database, survey=survey, operations=self.operations, clock=clock.unix
        )
        return Controller(
            database=parts.database,
            files=parts.files,
            library=parts.library,
            hosts=parts.hosts,
            fleet=parts.fleet,
            nodes=self.nodes,
            planner=parts.planner,
            work=self.work,
            verifier=verifier,
            operations=self.operations,
            survey=survey,
            orphans=orphans,
            recovery=self._recovery(parts, survey),
            snapshots=self.snapshots,
            services=self._services(parts),
            exports=self._exports(parts),
            labs=self._labs(parts),
            consoles=parts.consoles,
            clock=clock.unix,
            stop=stop,
            log_file=parts.settings.log_file,
            started=clock.unix(),
            settings=parts.settings.digests,
        )

    def _recovery(self, parts: Parts, survey: Survey) -> Recovery:
        return Recovery(
            database=parts.database,
            cipher=parts.cipher,
            survey=survey,
            operations=self.operations,
            hosts=parts.hosts,
            fleet=parts.fleet,
            enrolment=parts.planner.enrolment,
            logins=parts.logins,
            clock=clock.unix,
        )

    def _services(self, parts: Parts) -> Services:
        return Services(
            database=parts.database,
            planner=parts.planner,
            fleet=parts.fleet,
            nodes=self.nodes,
            checks=self.health,
        )

    def _labs(self, parts: Parts) -> Labs:
        return Labs(
            self.board,
            self.people,
            parts.planner.workers,
            parts.lab_clock,
            parts.consoles,
            self.registered_consoles,
            self.nodes.console_log,
            self.inventories,
            self.operations,
        )

    def _racks(self, parts: Parts) -> Racks:
        work = parts.settings.state / "installers"
        shutil.rmtree(work, ignore_errors=True)  # what a daemon that was killed was making
        return Racks(
            admins=parts.admins,
            kept=parts.planner.clusters.kept,
            clusters=lambda: self.controller,
            power=self.nodes.power,
            start=self.nodes.start,
            operations=self.operations,
            machines=RegisteredBmcs(self.bmc_reach),
            consoles=self.registered_consoles,
            database=parts.database,
            cipher=parts.cipher,
            workers=parts.planner.workers,
            installers=Installers(parts.files, parts.builds.installer, work),
            logins=SetLogins(parts.database, self._use_logins),
        )

    async def _use_logins(self, cluster: UUID, now: Sequence[Host]) -> None:
        await self.memory.use_logins(cluster, now)

    def _nodes(self, parts: Parts) -> Nodes:
        return Nodes(
            database=parts.database,
            cipher=parts.cipher,
            hosts=parts.hosts,
            fleet=parts.fleet,
            bmcs=parts.bmcs,
            consoles=parts.consoles,
            media=parts.media,
        )

    def _exports(self, parts: Parts) -> Exports:
        return Exports(
            database=parts.database,
            cipher=parts.cipher,
            planner=parts.planner,
            fleet=parts.fleet,
            bmcs=parts.bmcs,
        )
