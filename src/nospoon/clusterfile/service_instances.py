"""Services that describe their own nodes, and those that are combined on one: as groups of nodes.

`keystone: {image: X, count: 2}` is short for a group of two containers `keystone-{n}` and a service
on them; `control: {combine: [keystone, glance], image: X}` for a group `control` and two services
on its node. All that comes later sees groups and services, and `written_path` is the way back to
what the file has (ADR 35).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain, islice

from nospoon.clusterfile.document import MAX_PROBLEMS, Document, Path, Value, as_sequence
from nospoon.clusterfile.expand import Complaint
from nospoon.clusterfile.hardware import DiskSection
from nospoon.clusterfile.node_groups import NodeGroupSection
from nospoon.clusterfile.sections import Sections, did_you_mean
from nospoon.clusterfile.services import OF_SERVICES, ServiceSection
from nospoon.model.node_kind import NodeKind

_TWICE = {
    "networks": ("nics", "They are the same: drop one of them"),
    "volumes": ("disks", "Write `disks: [{image: …, size: …}, …]`, or `image` and `volumes`"),
}
"""Words of services, what nodes have in their place, and what to do about both."""


def read_instances(document: Document, sections: Sections) -> None:
    """Adds the groups that services describe, and takes entries with `combine` out of the services.
    What is wrong with them is added to the problems, each at the key that is meant.
    """
    services, names = sections.services, sections.names["services"]
    said = {name: _said(sections, name) for name in names}
    together = {name: each.combine for name, each in services.items() if each.combine is not None}
    node_of: dict[str, str] = {}
    for name, members in together.items():
        for each in members:
            if each not in together:
                node_of.setdefault(each, name)
    mixed = (
        each for name in services for each in _mixed(name, services[name], said[name], node_of)
    )
    wrong = list(islice(chain(_combined(names, together, node_of), mixed), MAX_PROBLEMS))
    described = {name for name in names if said[name] or "combine" in _entry(sections, name)}
    sections.unread -= {("services", name) for name in names - described}
    index = len(as_sequence(sections.raw.get("nodes")))
    for name, section in services.items():
        if name not in described or name in node_of:
            continue
        group, complaints = _group(sections, name, section, said[name])
        wrong += complaints
        if ("services", name) in sections.unread or group is None or section.nodes is not None:
            sections.unread.add(("services", name))
            continue
        sections.groups[index], sections.instances[index] = group, name
        members = together.get(name, [name])
        sections.own |= {each: index for each in members if each not in together}
        index += 1
    sections.services = {name: each for name, each in services.items() if name not in together}
    sections.problems += [
        document.problem(each.path, each.message, each.hint, at_key=True) for each in wrong
    ]


def written_path(sections: Sections, path: Path) -> Path:
    """Where the file has what is at a path of such a group; other paths as they are."""
    if len(path) < 2 or path[0] != "nodes" or path[1] not in sections.instances:
        return path
    name = sections.instances[int(path[1])]
    given, entry = _entry(sections, name), ("services", name)
    match path[2:]:
        case ("name", *_):
            return entry
        case ("nics", *rest) if "networks" in given:
            return (*entry, "networks", *rest)
        case ("disks", 0, *_) if "disks" not in given:
            return (*entry, "image") if "image" in given else entry
        case ("disks", int(number), *rest) if "volumes" in given:
            return (*entry, "volumes", number - 1, *rest)
        case rest:
            return (*entry, *rest)


def _entry(sections: Sections, name: str) -> Mapping[str, Value]:
    services = sections.raw.get("services")
    given = services.get(name) if isinstance(services, dict) else None
    return given if isinstance(given, dict) else {}


def _said(sections: Sections, name: str) -> list[str]:
    """Keys by which an entry describes a node, as they stand in the file."""
    given = _entry(sections, name).items()
    known = ServiceSection.model_fields.keys() - OF_SERVICES
    return [key for key, value in given if key in known and value is not None]


def _combined(
    known: AbstractSet[str], together: Mapping[str, Sequence[str]], node_of: Mapping[str, str]
) -> Iterator[Complaint]:
    """Members that are none."""
    for name, members in together.items():
        for number, each in enumerate(members):
            path = ("services", name, "combine", number)
            if each == name:
                message = f"{name!r} is the node of the services, and none of them"
                yield Complaint(path, message, "Drop it, or give this entry another name")
            elif each not in known:
                yield Complaint(path, f"no service {each!r}", did_you_mean(each, known - {name}))
            elif each in together:
                message = f"{each!r} is a node of several services, and none itself"
                yield Complaint(path, message, f"Name the services: {', '.join(together[each])}")
            elif node_of[each] != name:
                message = f"service {each!r} is combined in {node_of[each]!r} already"
                yield Complaint(path, message, "A service is in one `combine`")
            elif each in members[:number]:
                yield Complaint(path, f"service {each!r} is named twice", "Drop one of them")


def _mixed(
    name: str, section: ServiceSection, said: Sequence[str], node_of: Mapping[str, str]
) -> Iterator[Complaint]:
    """Entries that say two things of which only one can hold."""
    path = ("services", name)
    if section.combine is not None:
        for key in sorted(OF_SERVICES & section.model_fields_set - {"combine"}):
            if getattr(section, key) is not None:
                message = f"an entry with `combine` describes a node, which has no `{key}`"
                hint = "Drop it" if key == "nodes" else "Write it at the services"
                yield Complaint((*path, key), message, hint)
    elif name in node_of:
        other = node_of[name]
        for key in (*said, *(["nodes"] if section.nodes is not None else ())):
            holds = "node it runs on" if key == "nodes" else f"`{key}` holds"
            message = f"service {name!r} is combined in {other!r}, whose {holds}"
            hint = "Drop `nodes`" if key == "nodes" else f"Write `{key}` there"
            yield Complaint((*path, key), message, f"{hint}, or take it out of that `combine`")
    elif said and section.nodes is not None:
        message = f"expected `nodes`, or a node of its own with `{said[0]}`, got both"
        hint = f"Drop `nodes`, or write `{said[0]}` at those nodes"
        yield Complaint((*path, said[0]), message, hint)
    for key, (usual, hint) in _TWICE.items():
        if key in said and usual in said:
            yield Complaint((*path, usual), f"expected {key} or {usual}, got both", hint)


def _group(
    sections: Sections, name: str, section: ServiceSection, said: Sequence[str]
) -> tuple[NodeGroupSection | None, list[Complaint]]:
    """The nodes that an entry describes."""
    path = ("services", name)
    flavor = sections.flavors.get(section.flavor or "")
    kind = section.kind or (flavor.kind if flavor is not None else None) or NodeKind.CONTAINER
    if kind is NodeKind.BAREMETAL:
        key = "kind" if section.kind is not None else "flavor"
        what = f"flavor {section.flavor!r}" if key == "flavor" else "this"
        message = f"services run on nodes of kind vm and container, and {what} is bare metal"
        return None, [Complaint((*path, key), message, f"Write another {key}")]
    values: dict[str, object] = {
        key: getattr(section, key) for key in said if key in NodeGroupSection.model_fields
    }
    values |= {"kind": kind, "flavor": section.flavor or ""}
    values["name"] = f"{name}-{{n}}" if section.count is not None else name
    if section.networks is not None:
        values["nics"] = section.networks
    if section.volumes is not None and section.disks is None:
        of_flavor = flavor.all_disks if flavor is not None else None
        root = [DiskSection(image=section.image)] if section.image else (of_flavor or [])[:1]
        if not root:
            message = "volumes come after a root, and the image of that is missing"
            hint = "Write `image: PATH` or `image: URL`"
            return None, [Complaint((*path, "volumes"), message, hint)]
        values |= {"image": None, "disks": [*root, *section.volumes]}
    return NodeGroupSection().model_copy(update=values), []
