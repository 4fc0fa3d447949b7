"""Names that one section uses and another defines, and files that stand beside the cluster file.

Read from the plain values, so that a section with an error in it hides none of its references.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from nospoon.clusterfile.document import Path, Value, as_sequence
from nospoon.clusterfile.expand import Complaint
from nospoon.clusterfile.fields import MAX_SHOWN, wrong_in_url
from nospoon.clusterfile.hosts import place_named, places_of
from nospoon.clusterfile.section import shown
from nospoon.clusterfile.sections import Sections, did_you_mean
from nospoon.model.cloud_images import IN_CLOUD
from nospoon.model.images import KEPT, LOADED

LocalFile = Callable[[str], str]
"""Why a file beside the cluster file cannot be read, "" when it can."""

LocalPair = Callable[[str, str], tuple[str, str] | None]
"""Of a certificate and its key: which of both ("certificate", "key") is of no use, and why."""

MAX_HINTS = 10
"""Names of a file that nothing defines which are compared with those that there are."""

MAX_LISTED = 12
"""Flavors that a hint lists."""

URL = ("http://", "https://")
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
"""Beginning of a URL (RFC 3986 §3.1); what it begins is no path that anybody means."""


def references(sections: Sections) -> Iterator[Complaint]:
    """Every use of a name that nothing defines."""
    names, hints = sections.names, Hints()
    networks = names["networks"] or frozenset({"provision"})
    hosts = names["hosts"] or frozenset({"here"})
    hosts |= {place for each in sections.hosts.items() for place in places_of(*each)}
    for path, layer in layers(sections.raw):
        for nic_path, network in _networks_of(path, layer):
            yield from hints.refers(nic_path, network, networks, "network")
        yield from hints.refers((*path, "boot"), layer.get("boot"), names["boot"], "boot profile")
        host = layer.get("host")
        if not isinstance(host, str) or place_named(host, sections.hosts) not in hosts:
            yield from hints.refers((*path, "host"), host, hosts, "host")
    for name, section in sections.hosts.items():
        if section.openstack is not None and section.openstack.relay is not None:
            path = ("hosts", name, "openstack", "relay", "network")
            used = section.openstack.relay.network
            yield from hints.refers(path, used, networks, "network")
    for index, group in enumerate(as_sequence(sections.raw.get("nodes"))):
        if isinstance(group, dict):
            yield from _flavor(index, group.get("flavor"), names["flavors"], hints)
    for name, service in _mapping(sections.raw.get("services")).items():
        given = _mapping(service).get("flavor")
        yield from hints.refers(("services", name, "flavor"), given, names["flavors"], "flavor")
    for name, lab in sections.labs.items():
        yield from hints.refers(("labs", name, "host"), lab.host, hosts, "host")
        for index, flavor in enumerate(lab.flavors):
            path = ("labs", name, "flavors", index)
            yield from hints.refers(path, flavor, names["flavors"], "flavor")
    dynamic = next((name for name, lab in sections.labs.items() if lab.dynamic), None)
    if dynamic is not None and not names["flavors"]:
        hint = "Add `flavors: {small: {…}}`, or `dynamic: false` to the lab"
        yield Complaint(("labs", dynamic), "a lab with dynamic machines needs a flavor", hint)


def missing_files(sections: Sections, local_file: LocalFile) -> Iterator[Complaint]:
    """Every file that is named and cannot be read; each name once."""
    seen: set[str] = set()
    fetched = (*_images(sections.raw), *_boot_files(sections.raw))
    local = (
        (path, name)
        for path, name in fetched
        if not (SCHEME.match(name) or (path[-1] == "image" and name.startswith(LOADED)))
        if path[0] == "labs" or path[-1] != "image" or not name.startswith((KEPT, IN_CLOUD))
    )
    for path, name in (*local, *_pair(sections.raw)):
        if name in seen:
            continue
        seen.add(name)
        why = local_file(name)
        if why:
            yield Complaint(path, f"cannot read {name!r}: {why}")


def unusable_pair(sections: Sections, local_pair: LocalPair) -> Iterator[Complaint]:
    """A certificate and its key with which nothing can be served."""
    given = dict(_pair(sections.raw))
    if len(given) != len(_PAIR):
        return
    found = local_pair(*given.values())
    if found is not None:
        which, why = found
        path = ("bmc", "tls", which)
        yield Complaint(path, f"cannot serve with {given[path]!r}: {why}")


def wrong_urls(sections: Sections) -> Iterator[Complaint]:
    """Every URL of an image, its checksums, a kernel or a ramdisk that is none."""
    sums = (*_of_disks(sections.raw, "checksum"), *_of_distros(sections.raw, "checksum"))
    for path, name in (*_images(sections.raw), *sums, *_boot_files(sections.raw)):
        if name.startswith(URL):
            yield from _url(path, name)
        elif SCHEME.match(name):
            message = (
                f"expected a path, or a URL that begins with http:// or https://, got {shown(name)}"
            )
            yield Complaint(path, message)


def _url(path: Path, name: str) -> Iterator[Complaint]:
    wrong = wrong_in_url(name)
    if wrong:
        yield Complaint(path, f"expected a URL, got {name[:MAX_SHOWN]!r}: {wrong}")


def layers(raw: Mapping[str, Value]) -> Iterator[tuple[Path, Mapping[str, Value]]]:
    """Every mapping that describes hardware, with its path."""
    for name, flavor in _mapping(raw.get("flavors")).items():
        yield ("flavors", name), _mapping(flavor)
    for index, group in enumerate(as_sequence(raw.get("nodes"))):
        yield ("nodes", index), _mapping(group)
        for name, override in _mapping(_mapping(group).get("overrides")).items():
            yield ("nodes", index, "overrides", name), _mapping(override)
    for name, service in _mapping(raw.get("services")).items():
        yield ("services", name), _mapping(service)


def _networks_of(path: Path, layer: Mapping[str, Value]) -> Iterator[tuple[Path, Value]]:
    for key in ("nics", "networks"):
        nics = layer.get(key)
        if isinstance(nics, str):
            yield (*path, key), nics
        for index, nic in enumerate(as_sequence(nics)):
            network = nic.get("network") if isinstance(nic, dict) else nic
            yield (*path, key, index), network


def distros(raw: Mapping[str, Value]) -> Iterator[tuple[Path, Mapping[str, Value]]]:
    """Every mapping that describes what installs machines of a lab, with its path."""
    for lab, given in _mapping(raw.get("labs")).items():
        for name, distro in _mapping(_mapping(given).get("distros")).items():
            yield ("labs", lab, "distros", name), _mapping(distro)


def _images(raw: Mapping[str, Value]) -> Iterator[tuple[Path, str]]:
    yield from _of_disks(raw, "image")
    for path, layer in (*layers(raw), *distros(raw)):
        root = layer.get("image")
        if isinstance(root, str) and root:
            yield (*path, "image"), root


def _of_disks(raw: Mapping[str, Value], key: str) -> Iterator[tuple[Path, str]]:
    """What each disk says under this key."""
    for path, layer in layers(raw):
        for disks in ("disks", "volumes"):
            for index, disk in enumerate(as_sequence(layer.get(disks))):
                said = _mapping(disk).get(key)
                if isinstance(said, str) and said:
                    yield (*path, disks, index, key), said


def _of_distros(raw: Mapping[str, Value], key: str) -> Iterator[tuple[Path, str]]:
    for path, distro in distros(raw):
        said = distro.get(key)
        if isinstance(said, str) and said:
            yield (*path, key), said


def _boot_files(raw: Mapping[str, Value]) -> Iterator[tuple[Path, str]]:
    for name, profile in _mapping(raw.get("boot")).items():
        path, given = ("boot", name), _mapping(profile)
        initrd = given.get("initrd")
        listed = [(("initrd", i), each) for i, each in enumerate(as_sequence(initrd))]
        for place, each in ((("kernel",), given.get("kernel")), (("initrd",), initrd), *listed):
            if isinstance(each, str) and each:
                yield (*path, *place), each


_PAIR = ("certificate", "key")


def _pair(raw: Mapping[str, Value]) -> Iterator[tuple[Path, str]]:
    given = _mapping(_mapping(raw.get("bmc")).get("tls"))
    for name in _PAIR:
        value = given.get(name)
        if isinstance(value, str) and value:
            yield ("bmc", "tls", name), value


def _flavor(index: int, flavor: Value, known: frozenset[str], hints: Hints) -> Iterator[Complaint]:
    if flavor is not None:
        yield from hints.refers(("nodes", index, "flavor"), flavor, known, "flavor")
    elif len(known) > 1:
        some = sorted(known)[:MAX_LISTED]
        hint = f"Add `flavor:` with one of {', '.join(map(str, some))}"
        yield Complaint(("nodes", index), "several flavors, none chosen", hint)


@dataclass(slots=True)
class Hints:
    """What was meant by names that nothing defines, for the first `MAX_HINTS` of a file."""

    left: int = MAX_HINTS

    def refers(
        self, path: Path, name: Value, known: Iterable[str], what: str
    ) -> Iterator[Complaint]:
        """Anything but text is refused where sections are read."""
        if isinstance(name, str) and name not in known:
            hint = did_you_mean(name, known) if self.left else ""
            self.left = max(0, self.left - 1)
            yield Complaint(path, f"no {what} named {shown(name)}", hint)


def _mapping(value: Value) -> Mapping[str, Value]:
    return value if isinstance(value, dict) else {}
