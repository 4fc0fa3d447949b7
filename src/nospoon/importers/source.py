"""What is imported, and what becomes of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from nospoon.clusterfile.document import Document, Value
from nospoon.clusterfile.written import name_of
from nospoon.errors import SpecError, UsageError

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
