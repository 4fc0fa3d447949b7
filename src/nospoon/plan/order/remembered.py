"""What a file says again of which no resource is made: labels, boot profiles, rules for new nodes.

`up` takes it over as it begins: who boots from the network gets the new profile, `status` and the
exports tell the new labels. It is part of what the user asked for, so the plan tells it, line by
line, and `plan --detailed-exitcode` counts it, as Terraform counts changes of outputs.

With Ironic traits, portgroups and `pxe` of NICs are resources; without it they are told to those
who ask. How hosts are joined is said here, too, for it may be that there is nothing to join yet.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import islice

from nospoon.model.cluster import BootProfile, Cluster, Host, Node
from nospoon.model.lab import Lab, Registered
from nospoon.model.rest.plans import Remembered
from nospoon.plan.words import field_text, hidden, listed

Values = Mapping[str, object]
PARTS_OF_LABS = ("flavors", "distros", "machines", "webhooks")
UNSHOWN = ("password", "secret", "kickstart", "user_data")
"""Fields of these that are secret, or long."""
MOST_OF_PARTS = 100
"""Changes of parts of a lab that are shown."""
NONE, MIB = "none", 1 << 20
REMEMBERED, LIVE, NEW_NODES = "remembered", "live", "new nodes"


@dataclass(frozen=True, slots=True)
class Said:
    """A file: what it says, and the digests of the files that it names."""

    cluster: Cluster
    uploads: Mapping[str, str]

    def digest(self, file: str) -> str:
        """Of the content of a file that it names, short."""
        return self.uploads.get(file, "")[:12]


def remembered(before: Said, after: Said) -> tuple[Remembered, ...]:
    """What is said again of nodes, hosts, networks and profiles that both files name, and of
    profiles that come and go.
    """
    return (
        *_profiles(before, after),
        *_hosts(before, after),
        *_networks(before, after),
        *_nodes(before, after),
        *_labs(before, after),
    )


def _labs(before: Said, after: Said) -> Iterator[Remembered]:
    then, now = ({each.name: each for each in said.cluster.labs} for said in (before, after))
    for name in sorted(then.keys() | now.keys()):
        if name not in now:
            yield Remembered("-", f"lab {name}", "", "", LIVE)
        elif name not in then:
            yield Remembered("+", f"lab {name}", "", "", LIVE)
        elif then[name] != now[name]:
            yield from _of_lab(then[name], now[name])


def _of_lab(then: Lab, now: Lab) -> Iterator[Remembered]:
    for name in (each.name for each in fields(Lab)):
        before, after = getattr(then, name), getattr(now, name)
        if before == after:
            continue
        named = [_names(each) for each in (before, after) if isinstance(each, tuple)]
        if not named:
            texts = _lab_text(before), _lab_text(after)
            yield Remembered("~", f"{name} of lab {now.name}", *texts, LIVE)
        elif named[0] != named[1]:
            what = f"{name} of lab {now.name}"
            if Counter(named[0]) == Counter(named[1]):
                what = f"order of {what}"
            yield Remembered("~", what, *_only(*named), LIVE)
        if name in PARTS_OF_LABS:
            changes = _of_parts(before, after)
            shown = list(islice(changes, MOST_OF_PARTS))
            for part, old, new in shown:
                yield Remembered("~", f"{part} of {name} of lab {now.name}", old, new, LIVE)
            if more := sum(1 for _ in changes):
                yield Remembered("~", f"{more} more of {name} of lab {now.name}", "", "", LIVE)


def _of_parts(before: Sequence[object], after: Sequence[object]) -> Iterator[tuple[str, str, str]]:
    """Fields of parts that both have, by their names."""
    then = {_name(each): each for each in before}
    for part in after:
        if (name := _name(part)) in then:
            was, will = (_fields_of(each) for each in (then[name], part))
            for field, old, new in _differing(was, will):
                what = f"{field} of {hidden(name)}"
                if field in UNSHOWN:
                    yield what, _unshown(old, "one"), _unshown(new, "another")
                else:
                    yield what, old, new


def _unshown(text: str, one: str) -> str:
    return text if text == NONE else one


def _names(parts: Sequence[object]) -> list[str]:
    return [_name(each) for each in parts]


def _only(before: Sequence[str], after: Sequence[str]) -> tuple[str, str]:
    """Names, of long lists only those that the other has not."""
    both = hidden(listed(before)), hidden(listed(after))
    if both[0] == both[1]:
        lists = [n for n in before if n not in after], [n for n in after if n not in before]
        both = hidden(listed(lists[0])), hidden(listed(lists[1]))
    return both[0] or NONE, both[1] or NONE


def _name(part: object) -> str:
    return str(getattr(part, "name", None) or getattr(part, "url", part))


def _fields_of(part: object) -> dict[str, object]:
    if not is_dataclass(part) or isinstance(part, type):
        return {}
    if isinstance(part, Registered):
        part = replace(part, memory=part.memory * MIB)
    return {each.name: getattr(part, each.name) for each in fields(part)}


def _lab_text(value: object) -> str:
    if is_dataclass(value):
        given = ((each.name, getattr(value, each.name)) for each in fields(value))
        return ", ".join(f"{name} {amount}" for name, amount in given if amount)
    return str(value)


def _profiles(before: Said, after: Said) -> Iterator[Remembered]:
    then, now = ({each.name: each for each in said.cluster.profiles} for said in (before, after))
    for name in sorted(then.keys() | now.keys()):
        if name not in now:
            yield Remembered("-", f"boot profile {name}", "", "", LIVE)
        elif name not in then:
            yield Remembered("+", f"boot profile {name}", "", "", LIVE)
        else:
            was, will = _of_profile(then[name]), _of_profile(now[name])
            for file in sorted(_files(then[name]) & _files(now[name])):
                was[file], will[file] = before.digest(file), after.digest(file)
            for field, old, new in _differing(was, will):
                yield Remembered("~", f"{field} of boot profile {name}", old, new, LIVE)


def _files(profile: BootProfile) -> set[str]:
    return {profile.kernel, *profile.initrd} - {""}


def _of_profile(profile: BootProfile) -> dict[str, object]:
    return {
        "kernel": profile.kernel,
        "initrd": profile.initrd,
        "cmdline": profile.cmdline,
        "script": profile.script,
    }


def _hosts(before: Said, after: Said) -> Iterator[Remembered]:
    then = {host.name: host for host in before.cluster.hosts}
    for host in after.cluster.hosts:
        if host.name in then:
            for field, was, will in _differing(_of_host(then[host.name]), _of_host(host)):
                live = field.startswith(("address", host.connection.kind))  # its behaviour
                rule = LIVE if live else NEW_NODES
                yield Remembered("~", f"{field} of host {host.name}", was, will, rule)


def _of_host(host: Host) -> dict[str, object]:
    return {
        "address": host.address,
        "drained": host.drained,
        **_flat("overcommit", host.overcommit),
        **_flat(host.connection.kind, host.connection.behaviour),
    }


def _networks(before: Said, after: Said) -> Iterator[Remembered]:
    then = {each.name: {"overlay": each.overlay} for each in before.cluster.networks}
    for network in after.cluster.networks:
        if network.name in then:
            for field, was, will in _differing(then[network.name], {"overlay": network.overlay}):
                yield Remembered("~", f"{field} of network {network.name}", was, will, LIVE)


def _nodes(before: Said, after: Said) -> Iterator[Remembered]:
    """Nodes of which the same is said are told of together."""
    then = {node.name: node for node in before.cluster.nodes}
    of_ironic = after.cluster.ironic is None
    alike: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for node in after.cluster.nodes:
        if node.name in then:
            was, will = (_of_node(each, of_ironic=of_ironic) for each in (then[node.name], node))
            for difference in _differing(was, will):
                alike[difference].append(node.name)
    for (field, old, new), names in alike.items():
        whose = f"node{'s' if len(names) > 1 else ''} {listed(names)}"
        yield Remembered("~", f"{field} of {whose}", old, new, _rule(field))


def _of_node(node: Node, *, of_ironic: bool) -> dict[str, object]:
    """`of_ironic`: what Ironic would be told as well, where there is none."""
    return {
        "labels": dict(node.labels),
        "flavor": node.flavor,
        "boot profile": node.boot,
        **(_of_ironic(node) if of_ironic else {}),
        **_flat("placement", node.placement),
    }


def _of_ironic(node: Node) -> dict[str, object]:
    given = ((f"NIC {index}", nic.pxe) for index, nic in enumerate(node.nics))
    pxe = {name: "yes" if boots else "no" for name, boots in given if boots is not None}
    return {"traits": node.traits, "portgroups": _portgroups(node), "pxe": pxe}


def _portgroups(node: Node) -> dict[str, str]:
    """Each by its name: its settings, and the numbers of its NICs."""
    found = {}
    for each in node.portgroups:
        nics = [index for index, nic in enumerate(node.nics) if nic.portgroup == each.name]
        more = [each.address, *(f"{key}={value}" for key, value in each.properties)]
        more += [] if each.standalone_ports else ["no standalone ports"]
        found[each.name] = " ".join((each.mode, *filter(None, more), f"NICs {nics}"))
    return found


def _rule(field: str) -> str:
    if field.startswith("placement"):
        return NEW_NODES
    return LIVE if field in ("boot profile", "traits", "portgroups", "pxe") else REMEMBERED


def _flat(name: str, value: object) -> dict[str, object]:
    """A dataclass as `name.field`, and so on within."""
    if not is_dataclass(value) or isinstance(value, type):
        return {name: value}
    parts = ((f"{name}.{each.name}", getattr(value, each.name)) for each in fields(value))
    return {key: inner for part, of in parts for key, inner in _flat(part, of).items()}


def _differing(before: Values, after: Values) -> Iterator[tuple[str, str, str]]:
    """Fields that are not the same, with what was said and what is."""
    for name in dict.fromkeys((*before, *after)):
        was, will = before.get(name, ""), after.get(name, "")
        if was != will:
            yield hidden(name), hidden(field_text(name, was)), hidden(field_text(name, will))
