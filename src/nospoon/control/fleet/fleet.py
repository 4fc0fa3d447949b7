"""Every node that is known, whose it is and where it is; found by name, by path or by UUID."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from operator import attrgetter
from typing import TypeVar
from uuid import UUID

from nospoon.clusterfile.nearest import nearest
from nospoon.control.fleet.authority import Authority, Bootable
from nospoon.control.fleet.hosts import Hosts
from nospoon.errors import NotFound, UsageError
from nospoon.model.cluster import Host
from nospoon.model.names import natural
from nospoon.model.principal import OwnerId
from nospoon.model.resources.machines import Machine
from nospoon.plan.addresses.macs import ports_of
from nospoon.plan.identity import pool_name
from nospoon.runtime.paced import paced
from nospoon.services.netboot.ports import ServedProfile

K = TypeVar("K")
C = TypeVar("C")
MOST_COMPARED = 1000
"""Nodes whose names are compared with one that no node has."""


@dataclass(frozen=True, slots=True)
class Member:
    """A node and its owner. `profile`: what it boots from the network. `order`: sorts nodes by
    cluster and name (node-2 before node-10), computed once, not for each list.
    """

    owner: OwnerId
    cluster: str
    cluster_id: UUID
    node: str
    host: Host
    machine: Machine
    profile: ServedProfile | None = None
    order: tuple[tuple[str | int, ...], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", (natural(self.cluster), natural(self.node)))

    @property
    def uuid(self) -> UUID:
        return self.machine.uuid

    @property
    def path(self) -> str:
        return f"{self.cluster}/{self.node}"


def called(member: Member | None, owner: OwnerId) -> str:
    """The cluster of another node, as this user may know it."""
    if member is None:
        return ""
    return f"your cluster {member.cluster}" if member.owner == owner else "another cluster"


class Fleet:
    """All members; what is put here is watched, and answered when it asks what to boot.

    `reshape`: tells its BMC, if there is one, how the machine is described now. `left`: is called
    with a machine that is no node any more.
    """

    def __init__(
        self,
        hosts: Hosts,
        authority: Authority,
        reshape: Callable[[Machine], None],
        *,
        left: Callable[[UUID], None] = lambda _: None,
    ) -> None:
        self._hosts, self._authority, self._reshape = hosts, authority, reshape
        self._left = left
        self._members: dict[UUID, Member] = {}
        self._named = defaultdict[int, defaultdict[str, set[UUID]]](lambda: defaultdict(set))
        """A user's nodes by name and by path: nodes of a lab's sets all have the same names."""
        self._plugged = defaultdict[str, Counter[int]](Counter)
        """Bridge -> owners of what is plugged into it, with how many NICs."""
        self._bridges = defaultdict[UUID, Counter[str]](Counter)
        """Cluster -> bridges that its nodes are plugged into, with how many NICs."""
        self._ports = dict[str, tuple[UUID, ...]]()
        """How names of ports begin -> the cluster of each node that has such."""
        self._pools = defaultdict[UUID, Counter[str]](Counter)
        """Cluster -> pools that its nodes have their disks in, with how many nodes."""
        self._owners = dict[UUID, OwnerId]()
        """Cluster that has nodes -> whose it is."""
        self._at = Counter[tuple[str, tuple[str, ...], UUID]]()
        """Nodes of a cluster at a host's name and place."""

    def __len__(self) -> int:
        return len(self._members)

    def put(self, member: Member, *, reached: bool = True) -> None:
        """`reached` false: its owner may not use it, so that nothing connects to its host."""
        self._unname(member.uuid)
        self._unplug(member.uuid)
        self._unplace(member.uuid)
        self._members[member.uuid] = member
        self._at[_place(member.host, member.cluster_id)] += 1
        self._owners[member.cluster_id] = member.owner
        self._pools[member.cluster_id][_pool(member)] += 1
        for bridge in _bridges(member):
            self._plugged[bridge][member.owner] += 1
            self._bridges[member.cluster_id][bridge] += 1
        if ports := ports_of(member.machine):
            self._ports[ports] = (*self._ports.get(ports, ()), member.cluster_id)
        for name in (member.node, member.path):
            self._named[member.owner][name].add(member.uuid)
        if reached:
            self._hosts.settle(member.uuid, member.host)
        self._authority.put(Bootable(member.machine, member.profile))
        self._reshape(member.machine)

    def serve(self, uuid: UUID, profile: ServedProfile | None) -> None:
        """From now on a node boots this from the network; nothing for one that is not known."""
        known = self._members.get(uuid)
        if known is not None:
            self._members[uuid] = replace(known, profile=profile)
            self._authority.put(Bootable(known.machine, profile))

    def all(self) -> list[Member]:
        return list(self._members.values())

    def reach(self, may_use: Callable[[Member], bool]) -> None:
        """Connect to the hosts of all nodes that their owners may use now, and to no others."""
        for member in self._members.values():
            if may_use(member):
                self._hosts.settle(member.uuid, member.host)
            else:
                self._hosts.forget(member.uuid)

    def _unname(self, uuid: UUID) -> None:
        known = self._members.get(uuid)
        if known is None:
            return
        names = self._named[known.owner]
        for name in (known.node, known.path):
            names[name].discard(uuid)
            if not names[name]:
                del names[name]

    def _unplug(self, uuid: UUID) -> None:
        known = self._members.get(uuid)
        if known is None:
            return
        for bridge in _bridges(known):
            _less(self._plugged, bridge, known.owner)
            _less(self._bridges, known.cluster_id, bridge)
        if ports := ports_of(known.machine):
            others = [*self._ports.pop(ports)]
            others.remove(known.cluster_id)
            if others:
                self._ports[ports] = tuple(others)

    def _unplace(self, uuid: UUID) -> None:
        known = self._members.get(uuid)
        if known is None:
            return
        place = _place(known.host, known.cluster_id)
        self._at[place] -= 1
        if not self._at[place]:
            del self._at[place]
        _less(self._pools, known.cluster_id, _pool(known))
        if known.cluster_id not in self._pools:
            self._owners.pop(known.cluster_id, None)

    def drop(self, uuid: UUID) -> None:
        self._unname(uuid)
        self._unplug(uuid)
        self._unplace(uuid)
        self._members.pop(uuid, None)
        self._hosts.forget(uuid)
        self._authority.remove(uuid)
        self._left(uuid)

    def get(self, uuid: UUID) -> Member | None:
        return self._members.get(uuid)

    def has_nodes(self, host: Host, cluster: UUID) -> bool:
        """Whether a cluster has nodes on a host, with this login at it."""
        return _place(host, cluster) in self._at

    def owner_of_cluster(self, cluster: UUID) -> OwnerId | None:
        """Whose nodes a cluster has, None for one that has none."""
        return self._owners.get(cluster)

    def owner_of(self, uuid: UUID) -> int:
        """Whose node a machine is; root's where it is none's any more."""
        found = self._members.get(uuid)
        return found.owner if found is not None else 0

    def has_mac(self, mac: str, *, but: UUID) -> Member | None:
        """A node of another cluster than this one with a NIC of this MAC."""
        found = (self._members.get(uuid) for uuid in self._authority.holders(mac))
        return next((each for each in found if each and each.cluster_id != but), None)

    def has_ports(self, ports: str, *, but: UUID) -> Member | None:
        """A node of another cluster than this one with ports whose names begin so."""
        if {*self._ports.get(ports, ())} <= {but}:
            return None
        others = (each for each in self._members.values() if each.cluster_id != but)
        return next((each for each in others if ports_of(each.machine) == ports), None)

    def bridges(self, *, but: UUID) -> frozenset[str]:
        """Those into which nodes of other clusters than this one are plugged."""
        others = (bridges for cluster, bridges in self._bridges.items() if cluster != but)
        return frozenset(chain.from_iterable(others))

    def owner_of_bridge(self, bridge: str) -> int | None:
        """Whose nodes are plugged into a bridge that nospoon made."""
        return next(iter(self._plugged.get(bridge, ())), None)

    def hosts_of_others(self, owner: OwnerId, names: Collection[str]) -> Iterator[Host]:
        """Those of other users' nodes that have one of these names, once for each cluster: what is
        looked at of each may be as long as a file.
        """
        found = set[tuple[UUID, str]]()
        for each in self._members.values():
            if each.owner == owner or each.host.name not in names:
                continue
            if (which := (each.cluster_id, each.host.name)) not in found:
                found.add(which)
                yield each.host

    def pools(self, *, but: UUID) -> frozenset[str]:
        """Those in which nodes of other clusters than this one have their disks."""
        others = (pools for cluster, pools in self._pools.items() if cluster != but)
        return frozenset(chain.from_iterable(others))

    def of(self, owner: OwnerId, cluster: str = "") -> list[Member]:
        """A user's nodes, all or of one cluster, by cluster and name (node-2 before node-10)."""
        return sorted(self._of(owner, cluster), key=attrgetter("order"))

    def _of(self, owner: OwnerId, cluster: str = "") -> list[Member]:
        return [
            m for m in self._members.values() if m.owner == owner and cluster in ("", m.cluster)
        ]

    async def by_node(self, owner: OwnerId, cluster: str) -> dict[str, Member]:
        """Those of a user's cluster, by the names of its nodes."""
        members = list(self._members.values())
        return {
            each.node: each
            async for each in paced(members)
            if each.owner == owner and each.cluster == cluster
        }

    def find(self, owner: OwnerId, reference: str) -> Member:
        """A user's node by name, cluster/name or UUID. Raises `NotFound` or `UsageError`."""
        known = {each: self._members[each] for each in self._named[owner].get(reference, ())}
        one = self._of_uuid(reference)
        if one is not None and one.owner == owner and str(one.uuid) == reference:
            known[one.uuid] = one
        found = list(known.values())
        if len(found) > 1:
            paths = ", ".join(sorted(member.path for member in found))
            raise UsageError(f"several nodes are named {reference!r}: {paths}")
        if not found:
            few = islice(self._of(owner), MOST_COMPARED)
            raise NotFound(f"no node {reference!r}", hint=_suggest(reference, few))
        return found[0]

    def _of_uuid(self, reference: str) -> Member | None:
        try:
            return self._members.get(UUID(reference))
        except ValueError:
            return None


def _less(counted: dict[K, Counter[C]], key: K, what: C) -> None:
    """One less of it; nothing is kept of what is not there any more."""
    here = counted[key]
    here[what] -= 1
    if not here[what]:
        del here[what]
    if not here:
        del counted[key]


def _bridges(member: Member) -> list[str]:
    """Into which nospoon plugged it: whoever made an adopted machine may have plugged it into the
    bridge of another cluster.
    """
    machine = member.machine
    return [] if machine.adopted else [nic.network for nic in machine.nics]


def _pool(member: Member) -> str:
    """Where its disks are on its host, "" where that has no pools."""
    has_pools = member.host.declares.has_pools
    return pool_name(member.cluster_id, member.cluster) if has_pools else ""


def _place(host: Host, cluster: UUID) -> tuple[str, tuple[str, ...], UUID]:
    return host.name, host.place, cluster


def _suggest(reference: str, members: Iterable[Member]) -> str:
    names = [name for member in members for name in (member.node, member.path)]
    near = nearest(reference, names)
    return f"Did you mean {near!r}?" if near else "`nospoon node list` shows yours."
