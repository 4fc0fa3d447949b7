"""A cluster file as it is written: values with a comment where a choice was made."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from nospoon.clusterfile.document import Document, Value
from nospoon.errors import SpecError, UsageError
from nospoon.model.visible import visible_line

_PLAIN = re.compile(r"[A-Za-z_][\w./+-]*( [\w./+-]+)*\Z")
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
_SCALARS = str | int | float | bool
S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Source:
    """What is imported. `inventory`: as `ansible-inventory --list` prints it. `state`: the text of
    Tenks's state.yml, "" without. `cloud`: in which Tenks's nodes are to be enrolled, "" for none;
    or which OVB used. `more`: environment files of OVB after this one. `roles`: those of its roles.
    `files`: of a directory, path within it -> text. `read`: the text of a file that FILE names;
    raises `UsageError`. `beside`: virtualbmc's directory, which served the same machines.
    `resolve`: the IP address of a name; raises `UsageError`. `in_its_place`: nospoon runs where the
    tool ran, and refuses what that refuses.
    """

    file: str
    text: str
    cluster: str
    inventory: Mapping[str, object] = field(default_factory=dict)
    state: str = ""
    cloud: str = ""
    more: Sequence[Source] = ()
    roles: Sequence[Source] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    read: Callable[[str], str] | None = None
    beside: Source | None = None
    resolve: Callable[[str], str] | None = None
    in_its_place: bool = False

    def address(self, text: str, where: str) -> str:
        """An IP address where the file names a host, which a cluster file does not."""
        return text if self.resolve is None else self.parsed(self.resolve, text, where)

    def mapping(self) -> dict[str, Value]:
        """The file as a mapping. Raises `SpecError`, `UsageError`."""
        return self._mapping(self.text)

    def state_mapping(self) -> dict[str, Value]:
        """The state as a mapping, empty without one. Raises `SpecError`, `UsageError`."""
        return self._mapping(self.state) if self.state else {}

    def _mapping(self, text: str) -> dict[str, Value]:
        document = Document(text, self.file)
        if document.problems:
            raise SpecError(document.problems)
        if not isinstance(document.value, dict):
            raise UsageError(f"{self.file}: expected a mapping")
        return document.value

    def whole(self, value: object, where: str) -> int:
        """A whole number, also where it is written as text. Raises `UsageError`."""
        if not re.fullmatch(r"[0-9]{1,20}", str(value)):
            raise UsageError(f"{self.file}: {where}: expected a whole number, got {value!r}")
        return int(str(value))

    def positive(self, value: object, where: str) -> int:
        """A whole number that is not 0. Raises `UsageError`."""
        number = self.whole(value, where)
        if not number:
            raise UsageError(f"{self.file}: {where}: expected at least 1, got {value!r}")
        return number

    def one_of(self, words: type[StrEnum], value: object, where: str) -> str:
        """One of the words of an enum. Raises `UsageError`."""
        if str(value) not in set(words):
            known = ", ".join(words)
            raise UsageError(f"{self.file}: {where}: expected one of {known}, got {value!r}")
        return str(value)

    def several(self, value: object, where: str) -> Sequence[Value]:
        """A list, empty where nothing is said. Raises `UsageError`."""
        if value is None or isinstance(value, list):
            return value or ()
        raise UsageError(f"{self.file}: {where}: expected a list, got {value!r}")

    def apart(self, names: Iterable[object], what: str) -> None:
        """Raises `UsageError` for names that `name_of` makes the same of."""
        alike: dict[str, list[str]] = {}
        for name in dict.fromkeys(str(each) for each in names):
            alike.setdefault(name_of(name), []).append(name)
        found = [f"{' and '.join(each)} ({ours})" for ours, each in alike.items() if len(each) > 1]
        if found:
            raise UsageError(
                f"{self.file}: {what}: one name in a cluster file for {'; '.join(found)}",
                hint="Cluster files know small letters, digits and -: rename one of them.",
            )

    def parsed(self, parse: Callable[[S], T], value: S, where: str) -> T:
        """What a cluster file takes there. Raises `UsageError` with the words of `parse`."""
        try:
            return parse(value)
        except (ValueError, UsageError) as error:
            raise UsageError(f"{self.file}: {where}: {error}") from error


@dataclass(frozen=True, slots=True)
class Imported:
    """A cluster file, and what of the source is not in it."""

    text: str
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Said:
    """A value and why it is so."""

    value: object
    why: str


def write(sections: Mapping[str, object], *, heading: Sequence[str]) -> str:
    """YAML with comments; mappings and lists of them in block style, the rest on one line. What is
    imported may be another user's: none of its text ends a comment.
    """
    lines = [f"# {visible_line(line)}".rstrip() for line in heading]
    for name, value in sections.items():
        if value not in ({}, []):
            lines += _block(name, value, 0)
    return "\n".join(lines) + "\n"


def _block(name: str, value: object, depth: int) -> Iterator[str]:
    indent = "  " * depth
    why = f"  # {visible_line(value.why)}" if isinstance(value, Said) else ""
    inner = value.value if isinstance(value, Said) else value
    if isinstance(inner, Mapping) and (depth == 0 or _said(inner)):
        yield f"{indent}{name}:{why}"
        for key, item in inner.items():
            yield from _block(_flow(key), item, depth + 1)
    elif isinstance(inner, list) and depth == 0:
        yield f"{indent}{name}:{why}"
        for item in inner:
            said = visible_line(item.why) if isinstance(item, Said) else ""
            plain = item.value if isinstance(item, Said) else item
            yield f"{indent}  - {_flow(plain)}" + (f"  # {said}" if said else "")
    else:
        yield f"{indent}{name}: {_flow(inner)}{why}"


def _said(value: object) -> bool:
    if isinstance(value, Mapping):
        return any(isinstance(item, Said) or _said(item) for item in value.values())
    return False


def _flow(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_flow(k)}: {_flow(item)}" for k, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_flow(item) for item in value) + "]"
    if isinstance(value, str):
        plain = _PLAIN.match(value) and value.lower() not in _WORDS
        return value if plain else json.dumps(value)
    return json.dumps(value)


def name_of(text: object) -> str:
    """A name that a cluster file takes, as near as can be (RFC 1123 §2.1)."""
    kept = re.sub(r"[^a-z0-9]+", "-", str(text).lower()).strip("-")
    return kept[:63] or "x"


def templates(value: object, where: str) -> Iterator[tuple[str, str]]:
    """(Place, text) of each text that Ansible is to fill in."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from templates(item, f"{where}.{key}" if where else str(key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from templates(item, f"{where}[{index}]")
    elif isinstance(value, str) and ("{{" in value or "{%" in value):
        yield where, value
