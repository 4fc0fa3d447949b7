"""Where in its file stands what a plan was refused for.

Reasons of refused plans begin with what they are about: `node NAME`, `nodes NAME, …`,
`nodes: adopt MACHINE`, `network NAME`, `host NAME`, `bmc.KEY`, or `cannot serve` for the addresses
of BMCs. The place is that of the override or group that makes a node, of what it adopts, of a
network's or host's name, and of the value of `bmc`. Reasons about anything else, or about what is
in no file but a default, stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from nospoon.clusterfile.document import Document, Path, Value, as_sequence
from nospoon.clusterfile.expand import expand
from nospoon.clusterfile.sections import Sections, read_sections
from nospoon.clusterfile.service_instances import read_instances, written_path
from nospoon.errors import Problem, SpecError

_ABOUT = re.compile(r"(node|network|host)s? ([a-z0-9-]+)|(bmc)\.([a-z0-9_.]+)|cannot serve ")
_ADOPT = "nodes: adopt "
_PLACED = re.compile(r"[^\s:]*:\d+:\d+: ")


def placed(reasons: Sequence[str], text: str, file: str) -> list[str]:
    """Each reason behind FILE:LINE:COLUMN. Reasons that have a place already keep theirs."""
    try:
        document = Document(text, file)
    except SpecError:  # of an earlier version, which alone understood it
        return list(reasons)
    places = _Places(document)
    return [places.before(reason) for reason in reasons]


class _Places:
    """The groups of nodes are read only where a node is asked for: they may be many."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._sections: Sections | None = None
        self._groups: dict[str, int] = {}
        self._adopting: dict[object, int] = {}

    def before(self, reason: str) -> str:
        if reason.startswith(f"{self._document.file}:") and _PLACED.match(reason):
            return reason
        about = _ABOUT.match(reason)
        path = self._path(about) if about is not None else self._adoption(reason)
        if not path or not self._document.has(path):
            return reason
        line, column = self._document.locate(path, at_key=path[0] in ("networks", "hosts"))
        return str(Problem(self._document.file, line, column, "", reason))

    def _path(self, about: re.Match[str]) -> Path:
        what, name, _, key = about.groups()
        if what == "node":
            return self._node(name)
        if what is not None:
            return (f"{what}s", name)
        return ("bmc", *(key.rstrip(".").split(".") if key else ()))

    def _adoption(self, reason: str) -> Path:
        """Of the longest name that fits: those of machines may have colons."""
        if not reason.startswith(_ADOPT):
            return ()
        if not self._adopting:
            groups = as_sequence(_mapping(self._document.value).get("nodes"))
            for index, group in enumerate(groups):
                adopt = _mapping(group).get("adopt")
                names = _mapping(adopt).values() or (adopt,)
                self._adopting |= {name: index for name in names if isinstance(name, str)}
        said = reason.removeprefix(_ADOPT).split(": ")
        for words in range(len(said) - 1, 0, -1):
            index = self._adopting.get(": ".join(said[:words]), -1)
            if index >= 0:
                return ("nodes", index, "adopt")
        return ()

    def _node(self, name: str) -> Path:
        if self._sections is None:
            self._sections = read_sections(self._document)
            read_instances(self._document, self._sections)
            made = expand(self._sections, default_network="")
            pairs = zip(made.nodes, made.groups, strict=True)
            self._groups = {node.name: index for node, index in pairs}
        index = self._groups.get(name)
        if index is None:
            return ()
        group = written_path(self._sections, ("nodes", index))
        own = (*group, "overrides", name)
        return own if self._document.has(own) else group


def _mapping(value: Value) -> Mapping[str, Value]:
    return value if isinstance(value, dict) else {}
