"""Nodes and their BMCs: what is known of each, and what is done to one of them.

Answers come from what the fleet and the BMC service know. Callers see what is theirs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace

from nospoon.bmc.faults import ABOUT, Fault
from nospoon.bmc.runtime import Runtime
from nospoon.control.content.media import Media
from nospoon.control.fleet.fleet import Fleet, Member
from nospoon.control.fleet.hosts import Hosts
from nospoon.control.fleet.owned import require_owned
from nospoon.control.operations.memory import record_group
from nospoon.control.planning import status as shown
from nospoon.errors import NotFound, UsageError
from nospoon.model.boot import ROOT_ALONE, BootDevice, BootMode, BootOverride, OverrideEnabled
from nospoon.model.machine import Outcome, PowerCommand, PowerState
from nospoon.model.principal import Principal
from nospoon.model.rest.clusters import NodeStatus, PortgroupStatus
from nospoon.model.rest.nodes import (
    BmcAccess,
    BootSetting,
    InjectedFault,
    MediaSetting,
    NodeDetails,
    NodeSummary,
    PowerResult,
)
from nospoon.plan.identity import snmp_community
from nospoon.runtime.paced import paced
from nospoon.runtime.turns import Turns
from nospoon.services.bmcs.served import Served
from nospoon.services.bmcs.service import BmcService
from nospoon.services.consoles.service import Attached, ConsoleService
from nospoon.store import nodes as node_rows
from nospoon.store.crypt import Cipher
from nospoon.store.database import Database
from nospoon.store.nodes import Account

AS_FILED = "as configured"
CONTINUED = "done: it was paused or saved, and continues without a boot"
NO_EFFECT = {
    PowerCommand.ON: "already on, nothing changed; `cycle` or `reset` boots again",
    PowerCommand.OFF: "already off, nothing changed",
    PowerCommand.SOFT: "already off, nothing changed",
}
"""What is shown for a command that has no effect (IPMI and Redfish accept it as well)."""


def result_shown(command: PowerCommand, result: str) -> str:
    """`result`: as `BmcService.power` has it."""
    match result:
        case Outcome.CONTINUED:
            return CONTINUED
        case Outcome.UNCHANGED:
            return NO_EFFECT.get(command, "done")
    return result


@dataclass(frozen=True, slots=True)
class Nodes:
    """All parts are handed in by the composition root."""

    database: Database
    cipher: Cipher
    hosts: Hosts
    fleet: Fleet
    bmcs: BmcService
    consoles: ConsoleService
    media: Media
    turns: Turns = field(default_factory=Turns)

    async def rows(self, caller: Principal, cluster: str) -> list[NodeSummary]:
        """A row a node. Raises `NotFound` for a cluster that is not the caller's. One list of each
        user at a time, as of BMCs.
        """
        async with self.turns.of("nodes", str(caller.uid)):
            if cluster:
                await require_owned(self.database, owner=caller.uid, name=cluster)
            return [
                NodeSummary(**self._about(member))
                async for member in paced(self.fleet.of(caller.uid, cluster))
            ]

    async def show(self, caller: Principal, reference: str) -> NodeDetails:
        """Everything of one node, without its password."""
        member = self.fleet.find(caller.uid, reference)
        served = self.bmcs.status(member.uuid)
        commands = served.aggregate.power_commands if served is not None else ()
        return shown.details(self._about(member), member.machine, member.host.name, commands)

    async def bmc_rows(self, caller: Principal, cluster: str) -> list[BmcAccess]:
        """A row a BMC, with credentials: for its owner only. Raises `NotFound` as `rows` does. One
        list of each user at a time: they may be long.
        """
        async with self.turns.of("bmcs", str(caller.uid)):
            if cluster:
                await require_owned(self.database, owner=caller.uid, name=cluster)
            known = await self.database.read(node_rows.accounts, owner=caller.uid, cluster=cluster)
            rows, slice_ = [], self.bmcs.slices.begin()
            for member in self.fleet.of(caller.uid, cluster):
                await slice_.rest()
                if member.uuid in known:  # else it came or went meanwhile
                    rows.append(self._with_account(member, known[member.uuid]))
            return rows

    def _with_account(self, member: Member, account: Account) -> BmcAccess:
        return BmcAccess(
            **self._about(member),
            username=account.username,
            password=self.cipher.decrypt(account.password),
            k_g=self.cipher.decrypt(account.k_g) if account.k_g else "",
            pdu_secret=self._pdu_secret(member),
            pdu_community=self._pdu_community(member),
        )

    async def power(self, caller: Principal, reference: str, command: PowerCommand) -> PowerResult:
        """A chassis command through the node's BMC."""
        member = self.fleet.find(caller.uid, reference)
        result = await self.bmcs.power(member.uuid, command)
        return PowerResult(member.path, result_shown(command, result))

    async def start(self, caller: Principal, reference: str) -> str:
        """Power a node on and wait until that is over, though not for ever; why it failed, "" where
        it did not.
        """
        return await self.bmcs.start(self.fleet.find(caller.uid, reference).uuid)

    async def fault(
        self, caller: Principal, reference: str, fault: Fault, seconds: float | None
    ) -> None:
        """From now on, for so many seconds or until cleared, this goes wrong with a node's BMC."""
        member = self.fleet.find(caller.uid, reference)
        until = self.bmcs.now + seconds if seconds is not None else None
        self.bmcs.set_fault(member.uuid, replace(fault, until=until))

    async def faults(self, caller: Principal, reference: str) -> list[InjectedFault]:
        """A row for each fault on demand of a node."""
        member, now = self.fleet.find(caller.uid, reference), self.bmcs.now
        return [
            InjectedFault(str(each.kind), each.text(now), ABOUT[each.kind])
            for each in self.bmcs.faults(member.uuid)
        ]

    async def clear_faults(self, caller: Principal, reference: str) -> None:
        """All is well again with a node's BMC."""
        self.bmcs.clear_faults(self.fleet.find(caller.uid, reference).uuid)

    async def boot(
        self,
        caller: Principal,
        reference: str,
        *,
        target: BootDevice | None,
        enabled: OverrideEnabled,
        mode: BootMode | None,
    ) -> BootSetting:
        """Set the boot override that the node's BMC holds."""
        member = self.fleet.find(caller.uid, reference)
        if member.machine.boots_root and target not in ROOT_ALONE:
            raise UsageError(
                f"node {member.path} is a {member.machine.kind} that boots its root, and nothing "
                f"else: expected disk or none, got {target}"
            )
        wanted = BootOverride(target, enabled, mode) if target is not None else BootOverride()
        await self.bmcs.set_override(member.uuid, wanted)
        return BootSetting(member.path, self._about(member)["boot"])

    async def insert(
        self,
        caller: Principal,
        reference: str,
        url: str,
        *,
        username: str,
        password: str,
        verify: bool,
    ) -> MediaSetting:
        """Fetch an image and put it into the node's CD drive."""
        member = self.fleet.find(caller.uid, reference)
        await self.media.insert(
            member.uuid, url, username=username, password=password, verify=verify
        )
        return MediaSetting(member.path, url)

    async def insert_uploaded(
        self, caller: Principal, reference: str, sha256: str, name: str
    ) -> MediaSetting:
        """Put an uploaded image into the node's CD drive."""
        member = self.fleet.find(caller.uid, reference)
        await self.media.insert_uploaded(member.uuid, sha256, name, owner=caller.uid)
        return MediaSetting(member.path, name)

    async def eject(self, caller: Principal, reference: str) -> MediaSetting:
        """Empty the node's CD drive."""
        member = self.fleet.find(caller.uid, reference)
        await self.media.eject(member.uuid)
        return MediaSetting(member.path, "")

    async def console(self, caller: Principal, reference: str) -> Attached:
        """Attach to a node's console."""
        member = self.fleet.find(caller.uid, reference)
        return await self.consoles.attach(member.uuid, user=caller.uid)

    async def console_log(
        self, caller: Principal, reference: str, *, follow: bool
    ) -> AsyncIterator[bytes]:
        """The record of a node's console; of CLUSTER/NODE also after `down`, until its purge."""
        try:
            machine = self.fleet.find(caller.uid, reference).uuid
        except NotFound:
            follow = False  # nothing more comes
            cluster, _, node = reference.partition("/")
            kept = await self.consoles.kept(
                record_group(caller.uid, cluster), node, user=caller.uid
            )
            if kept is None:
                raise
            machine = kept
        return self.consoles.read(machine, follow=follow, user=caller.uid)

    def state(
        self,
        node: str,
        member: Member | None,
        state: str,
        *drift: str,
        portgroups: Sequence[PortgroupStatus] | None = None,
        floating_ips: Sequence[str] | None = None,
    ) -> NodeStatus:
        """A row of `status`; `member` is None for a node that is not remembered."""
        if member is None:
            return NodeStatus(
                node, "", state, "", "", "", _joined(*drift), portgroups, floating_ips
            )
        served = self.bmcs.status(member.uuid)
        return NodeStatus(
            node=node,
            host=member.host.name,
            state=state,
            power=str(self.power_of(member)),
            boot=_boot(served.aggregate.runtime) if served is not None else AS_FILED,
            bmc=served.bmc.ipmi or shown.redfish_of(served.bmc) if served is not None else "",
            drift=_joined(self._fault_of(served), *drift),
            portgroups=portgroups,
            floating_ips=floating_ips,
        )

    def power_of(self, member: Member) -> PowerState:
        """As it was seen last."""
        last = self.hosts.last(member.uuid)
        return last.power if last is not None else PowerState.UNKNOWN

    def _fault_of(self, served: Served | None) -> str:
        """What is wrong with a node's power, and what shall be wrong."""
        if served is None:
            return ""
        if not served.faults:
            return served.power_fault
        now = self.bmcs.now
        demanded = (f"injected: {f.text(now)}" for f in served.faults.at(now))
        return _joined(served.power_fault, *demanded)

    def _pdu_secret(self, member: Member) -> str:
        served = self.bmcs.status(member.uuid)
        return served.config.pdu_secret if served is not None else ""

    def _pdu_community(self, member: Member) -> str:
        served = self.bmcs.status(member.uuid)
        if served is None or served.bmc.outlet is None or not served.bmc.outlet.v2c:
            return ""
        return snmp_community(served.config.pdu_secret)

    def _about(self, member: Member) -> dict[str, str]:
        """Its `NodeSummary`, by field."""
        served = self.bmcs.status(member.uuid)
        return {
            "node": member.node,
            "cluster": member.cluster,
            "host": member.host.name,
            "power": str(self.power_of(member)),
            "fault": self._fault_of(served),
            "boot": _boot(served.aggregate.runtime) if served is not None else AS_FILED,
            "media": served.aggregate.runtime.media if served is not None else "",
            **(shown.endpoints(served.bmc) if served is not None else shown.NOWHERE),
            "uuid": str(member.uuid),
        }


def _boot(runtime: Runtime) -> str:
    """What a BMC's clients set, which goes before the file."""
    override = runtime.override
    if override.active:
        return f"{override.target} ({override.enabled})"
    return f"{', '.join(runtime.boot_order)} (BootOrder)" if runtime.boot_order else AS_FILED


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
