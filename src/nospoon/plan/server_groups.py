"""Rules of affinity on a host that is several computers: which server group each node is in.

A server of Nova is in one group at most, from when it is made until it goes
(https://docs.openstack.org/nova/latest/user/server-groups.html). So a group is of nodes that go
together, by whichever rules, or of those that one rule keeps apart; its name says all of it, that
another rule is another group, and its servers are made again.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from nospoon.model.affinity import Strictness
from nospoon.model.cluster import Cluster, Host, Node
from nospoon.model.host_facts import HostFacts
from nospoon.model.resources.groups import GroupPolicy, ServerGroup
from nospoon.plan.addresses.allocate import Allocations
from nospoon.plan.placement.demands import bound_together
from nospoon.plan.placement.room import Token

LONGEST = 60
"""Characters of what a name says of a rule."""
CUT = "~"
"""In names that do not say all of it: a part of its digest follows."""
_OTHERS = re.compile(r"[^A-Za-z0-9._/=-]")


@dataclass(frozen=True, slots=True)
class _Group:
    """`nodes`: their names, in the order of the file."""

    name: str
    shape: ServerGroup
    nodes: tuple[str, ...]


@dataclass(slots=True)
class Groups:
    """Those of one host. `of`: node -> name of its group; `shapes` by name; `refused`: node -> the
    names of groups of which it would be in several.
    """

    of: dict[str, str] = field(default_factory=dict)
    shapes: dict[str, ServerGroup] = field(default_factory=dict)
    refused: dict[str, Sequence[str]] = field(default_factory=dict)

    @property
    def largest(self) -> int:
        """How many nodes the largest one has."""
        counted = defaultdict[str, int](int)
        for name in self.of.values():
            counted[name] += 1
        return max(counted.values(), default=0)


def groups_on(host: Host, nodes: Iterable[Node]) -> Groups:
    """Of the nodes that a host has."""
    found = Groups()
    if not host.declares.has_groups:
        return found
    made = [
        each
        for each in nodes
        if each.adopted is None and (each.placement.affinity or each.placement.anti_affinity)
    ]
    options: dict[str, list[_Group]] = defaultdict(list)
    for group in (*_together(host, made), *_apart(host, made)):
        for name in group.nodes:
            options[name].append(group)
    for name, groups in options.items():
        # a group of one means nothing, and one of the same nodes means the same
        several = {each.nodes: each for each in groups if len(each.nodes) > 1}
        if len(several) > 1:
            found.refused[name] = [each.name for each in several.values()]
            continue
        chosen = next(iter(several.values()), groups[0])
        found.of[name] = chosen.name
        found.shapes[chosen.name] = chosen.shape
    return found


def against_groups(
    cluster: Cluster, allocations: Allocations, facts: Mapping[str, HostFacts]
) -> Iterator[str]:
    """Why nodes cannot be in the groups that rules put them in."""
    here: dict[str, list[Node]] = defaultdict(list)
    for node in cluster.nodes:
        here[allocations.hosts.get(node.name, "")].append(node)
    for host in cluster.hosts:
        by_groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
        found = groups_on(host, here[host.name])
        known = facts.get(host.name)
        counts = any(each.most for each in found.shapes.values())
        if counts and known is not None and not known.away and not known.counts_in_groups:
            yield (
                f"host {host.name}: Nova has no rules of server groups there, which came with "
                "microversion 2.64 (Rocky). Drop `per_compute_host` of the host."
            )
        for refused, names in found.refused.items():
            by_groups[tuple(names)].append(refused)
        for names, nodes in by_groups.items():
            more = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
            yield (
                f"node {nodes[0]}{more} on host {host.name}: rules of its `placement` put it into "
                f"the server groups {' and '.join(names)}, and Nova has a server in one at most. "
                "Leave one of these rules out."
            )


def _together(host: Host, nodes: Sequence[Node]) -> Iterator[_Group]:
    is_soft = host.connection.groups.strictness is Strictness.SOFT
    policy = GroupPolicy.SOFT_TOGETHER if is_soft else GroupPolicy.TOGETHER
    for each in bound_together(node for node in nodes if node.placement.affinity):
        tokens = [token for node in each for token in node.placement.together_with(node)]
        shape = ServerGroup(policy)
        yield _Group(_name(shape, min(tokens)), shape, tuple(node.name for node in each))


def _apart(host: Host, nodes: Sequence[Node]) -> Iterator[_Group]:
    rules = host.connection.groups
    if rules.strictness is Strictness.SOFT:
        shape = ServerGroup(GroupPolicy.SOFT_APART)
    else:
        shape = ServerGroup(GroupPolicy.APART, rules.per_host if rules.per_host > 1 else 0)
    by_token: dict[Token, list[str]] = defaultdict(list)
    for node in nodes:
        for token in node.placement.apart_from(node):
            by_token[token].append(node.name)
    for token, names in by_token.items():
        yield _Group(_name(shape, token), shape, tuple(names))


def _begin(shape: ServerGroup) -> str:
    return f"{shape.policy}.{shape.most}-" if shape.most else f"{shape.policy}-"


def _name(shape: ServerGroup, token: Token) -> str:
    key, value = token
    full = f"{key}={value}"
    shown = _OTHERS.sub("-", full)[:LONGEST]
    if shown != full:
        shown += CUT + sha256(full.encode()).hexdigest()[:8]
    return _begin(shape) + shown


def rule_of(name: str, shape: ServerGroup) -> Mapping[str, object] | None:
    """What a node in such a group has in a file, None where its name does not say all of it."""
    key, is_said, value = name.removeprefix(_begin(shape)).partition("=")
    if not name.startswith(_begin(shape)) or not is_said or CUT in name:
        return None
    rule = {"anti_affinity" if shape.policy.is_apart else "affinity": [key]}
    own: Mapping[str, object] = {"labels": {key: value}}
    if key == "flavor":
        own = {"flavor": value}
    return {**(own if value else {}), "placement": rule}
