"""Who may use what: administrators everything, members what `Grants` says.

The list is read each time it is needed, so that a change holds at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice

from nospoon.clusterfile.document import Document
from nospoon.control.fleet.recent_hosts import RecentHosts
from nospoon.control.request import Request
from nospoon.errors import Forbidden, HostUnreachable, PlanRefused
from nospoon.model.cluster import Cluster, Host
from nospoon.model.grants import DEFAULTS, Grants
from nospoon.model.host_facts import Adoptable
from nospoon.model.principal import Administrators, OwnerId, Principal
from nospoon.model.resources.machines import Machine
from nospoon.plan.access import Violation, unlisted, violations
from nospoon.runtime.workers import Workers

MAX_SHOWN = 200
"""Things that a member may not have which one answer lists."""
SYSTEM = Host("here")
"""This machine's own libvirtd, under any name."""


async def nothing(uid: OwnerId) -> bool:  # noqa: ARG001  (for every user)
    """No user manages machines by other rules than the list's."""
    return False


@dataclass(frozen=True, slots=True)
class Access:
    """`admins`: users without limits. `read`: the list; raises `Forbidden` for a file that is
    not to be trusted. `file`: its path, for messages. `manages`: whether libvirt's own rules let a
    user manage the machines of this machine's libvirtd; raises `HostUnreachable` where that is not
    known.
    """

    admins: Administrators
    read: Callable[[], Grants] = lambda: DEFAULTS
    file: str = "/etc/nospoon/grants.yaml"
    manages: Callable[[OwnerId], Awaitable[bool]] = nothing
    recent: RecentHosts = field(default_factory=RecentHosts)

    def principal(self, owner: OwnerId) -> Principal:
        """The owner of something that is stored, with the rights of today."""
        return self.admins.principal(owner)

    async def check_file(self, request: Request, cluster: Cluster, workers: Workers) -> None:
        """Raises `PlanRefused` with everything in a file that its owner may not have, `Conflict`
        for hosts under more and more names.
        """
        if request.caller.admin:
            return
        user = request.caller.uid
        found = await workers.run(user, _first_of, cluster, self.read())
        if found:
            raise PlanRefused(await workers.run(user, self._placed, request, found))
        self.recent.ask(user, cluster.hosts)

    def _placed(self, request: Request, found: Sequence[Violation]) -> list[str]:
        """Run it in a thread: the file may be a long one."""
        if request.cluster is not None:
            return [f"{each.message}. {each.fix or self._fix}" for each in found]
        document = Document(request.text, request.file)
        return [
            str(document.problem(each.path, each.message, each.fix or self._fix)) for each in found
        ]

    def check_hosts(self, caller: Principal, hosts: Iterable[Host]) -> None:
        """Raises `PlanRefused` for hosts, remembered from earlier, that a user may not use."""
        reasons = [f"{why}. {self._fix}" for host in hosts if (why := self.why_not(caller, host))]
        if reasons:
            raise PlanRefused(reasons)

    def why_not(self, caller: Principal, host: Host) -> str:
        """Why a user's machines on a host are not reached, "" where they are."""
        if caller.admin:
            return ""
        try:
            why = self.read().why_not_host(host)
        except Forbidden as error:
            why = str(error)
        return unlisted(host, why) if why else ""

    async def reached(
        self, members: Iterable[tuple[OwnerId, Host, Machine]]
    ) -> Callable[[OwnerId, Host, Machine], str]:
        """Judges these machines by the list as it is now: why one of a user is not reached, ""
        where it is. One that was adopted has to be listed still, or its user's by libvirt's rules.
        """
        hosts: dict[tuple[OwnerId, Host], str] = {}
        listed = cache(self._listed)
        adopters = {
            uid
            for uid, host, machine in members
            if machine.adopted and uid not in self.admins and host.server == SYSTEM.server
        }
        asked = list(adopters)  # at once: a user may have the question take its longest time
        answers = await asyncio.gather(*map(self._may_manage, asked))
        refused = {uid for uid, may in zip(asked, answers, strict=True) if not may}

        def why(uid: OwnerId, host: Host, machine: Machine) -> str:
            if (uid, host) not in hosts:
                hosts[uid, host] = self.why_not(self.principal(uid), host)
            if hosts[uid, host] or not machine.adopted or uid in self.admins:
                return hosts[uid, host]
            if _is_own(host) or listed().has_machine(machine.adopted):
                return ""
            if host.server == SYSTEM.server and uid not in refused:
                return ""
            return f"machine {machine.adopted} on host {host.name} is not listed for members"

        return why

    def _listed(self) -> Grants:
        """The list, or what holds without one where it is not to be trusted."""
        try:
            return self.read()
        except Forbidden:
            return DEFAULTS

    async def _may_manage(self, uid: OwnerId) -> bool:
        """False while libvirtd does not run."""
        try:
            return await self.manages(uid)
        except HostUnreachable:
            return False

    async def adoptable(
        self, caller: Principal, host: Host, machines: tuple[Adoptable, ...] | None
    ) -> tuple[Adoptable, ...] | None:
        """Those of a host's machines that a user may adopt: all that libvirt lets this user manage
        or that the user's own login at a cloud reaches, else those that are listed. Others are not
        shown, nor what nospoon made for other users.
        """
        if machines is None or caller.admin:
            return machines
        if host.server == SYSTEM.server and await self.manages(caller.uid):
            return machines
        seen = (each for each in machines if not each.made or _is_of(each, caller.uid))
        if _is_own(host):
            return tuple(seen)
        grants = self.read()
        return tuple(each for each in seen if grants.has_machine(each.name))

    def unseen(self, caller: Principal) -> str:
        """What is said of a machine that a user cannot see."""
        return "" if caller.admin else f"{self._fix} under `machines`, if it is there."

    @property
    def _fix(self) -> str:
        return f"Ask an administrator to list it in {self.file}"


def _is_own(host: Host) -> bool:
    """Whether all that is on a host is for its user to decide."""
    return bool(host.connection.login) or not host.declares.is_real


def _is_of(machine: Adoptable, uid: OwnerId) -> bool:
    return machine.tag is not None and machine.tag.uid == uid


def _first_of(cluster: Cluster, grants: Grants) -> list[Violation]:
    """Of 20,000 nodes, each of which may have a BMC at an address of its own."""
    return list(islice(violations(cluster, grants), MAX_SHOWN))
