"""Whether a registered machine is one that a filter asks for: its attributes are compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nospoon.lab.compare import NUMERIC, TEXTUAL, Op, holds
from nospoon.lab.element import Element
from nospoon.lab.filter import Reason, runs_on
from nospoon.lab.grammar import MOST_DIGITS, ROWS, UNITS, Means, Row
from nospoon.model.lab import Registered

MOST_LISTED, MOST_SHOWN = 8, 60
"""Values that a reason lists, and characters of each."""
NO_DISKS = "no disk of it is known: name them in the file (`disks`), or take its inventory"
_OTHER_NAMES: Mapping[str, str] = {
    "host/hostname": "hostname",
    "host/host": "hostname",
    "system/name": "hostname",
    "host/group": "pool",
    "host/pool": "pool",
}
"""Elements of one meaning -> the attribute that they compare."""


def mismatches(requires: Element, machine: Registered, lab: str) -> tuple[Reason, ...]:
    """Why not, at each element that does not hold; () for a machine that matches. `requires`: one
    in which `grammar.wrong` finds nothing.
    """
    force = requires.attributes.get("force", "")
    if force:
        same = force in (machine.name, *machine.values.get("hostname", ()))
        return () if same else (Reason(requires, f"it is not {_short(force)}"),)
    return tuple(_Matcher(machine, lab).all_of(requires, "host"))


class _Matcher:
    def __init__(self, machine: Registered, lab: str) -> None:
        self._machine, self._lab = machine, lab

    def all_of(self, element: Element, group: str) -> Iterator[Reason]:
        for child in element.children:
            yield from self._of(child, group)

    def _of(self, element: Element, group: str) -> Iterator[Reason]:
        row = ROWS[group][element.name]
        match row.means:
            case Means.ALL:
                yield from self.all_of(element, row.within)
            case Means.ANY:
                parts = [list(self._of(child, row.within)) for child in element.children]
                if not parts or all(parts):
                    first = next((each for part in parts for each in part), None)
                    yield first or Reason(element, "an empty <or> matches nothing")
            case Means.NONE:
                if element.children and not list(self.all_of(element, row.within)):
                    yield Reason(element, "all of what is not wanted holds")
            case Means.DISK:
                yield from self._disk(element, row)
            case Means.ARCH:
                have = runs_on(self._machine.arch)
                yield from _texts(element, have)
            case _:
                yield from self._leaf(element, group, row)

    def _leaf(self, element: Element, group: str, row: Row) -> Iterator[Reason]:
        machine = self._machine
        match row.means:
            case Means.MEMORY:
                yield from _number(element, machine.memory, "MiB of memory")
            case Means.CPUS:
                yield from _number(element, machine.cpus, "CPUs")
            case Means.LAB:
                yield from _texts(element, (self._lab,))
            case Means.HYPERVISOR:
                yield from _texts(element, (machine.hypervisor,))
            case Means.TYPE:
                yield from _texts(element, ("Machine",))
            case _:
                yield from self._attribute(element, group, row)

    def _disk(self, element: Element, row: Row) -> Iterator[Reason]:
        """One disk with all of that."""
        sizes = self._machine.disks
        asked = [each for each in element.walk() if each is not element]
        if any(each.name == "size" for each in asked) and not any(
            _disk_holds(element, row.within, size) for size in sizes
        ):
            why = f"none of {len(sizes)} disks is such a one" if sizes else NO_DISKS
            yield Reason(element, why)
        elif not sizes:
            yield Reason(element, NO_DISKS)

    def _attribute(self, element: Element, group: str, row: Row) -> Iterator[Reason]:
        machine, name = self._machine, element.name
        if name == "key_value":
            have = machine.key_values.get(element.attributes.get("key", ""), ())
            yield from _values(element, have, number=False)
            return
        if name == "diskcount":
            yield from _number(element, len(machine.disks), "disks")
            return
        if name == "diskspace":
            yield from _number(element, sum(machine.disks), "bytes of disks")
            return
        key = _OTHER_NAMES.get(f"{group}/{name}") or (
            name if group == "host" else f"{group}/{name}"
        )
        have = machine.values.get(key, ())
        if key == "hostname":
            have = (machine.name, *have)
        yield from _values(element, have, number=row.number)


def _disk_holds(element: Element, group: str, size: int) -> bool:
    """Of size alone: other attributes of disks are not known."""
    match element.name:
        case "size":
            return not list(_number(element, size, "bytes"))
        case "or":
            return any(_disk_holds(each, group, size) for each in element.children)
        case "not":
            return not all(_disk_holds(each, group, size) for each in element.children)
        case "disk" | "and":
            return all(_disk_holds(each, group, size) for each in element.children)
    return False


def _number(element: Element, have: int, what: str) -> Iterator[Reason]:
    op = Op.read(element.attributes.get("op", "="))
    factor = UNITS[element.attributes.get("units", "bytes")]
    wanted = int(element.attributes["value"]) * factor
    if not NUMERIC[op](have, wanted):
        yield Reason(element, f"it has {have} {what}: expected {op} {wanted}")


def _texts(element: Element, have: tuple[str, ...]) -> Iterator[Reason]:
    op = Op.read(element.attributes.get("op", "="))
    wanted = element.attributes["value"]
    if not holds(op, have, wanted):
        yield Reason(
            element, f"its {element.name} is {_listed(have)}: expected {op} {_short(wanted)}"
        )


def _values(element: Element, have: tuple[str, ...], *, number: bool) -> Iterator[Reason]:
    """Attributes as the file has them; what it does not say of a machine equals nothing."""
    op = Op.read(element.attributes.get("op", "="))
    wanted = element.attributes.get("value", "")
    if op in TEXTUAL and not (number and op is not Op.LIKE):
        right = holds(op, have, wanted)
    else:
        compare = NUMERIC.get(op)
        pairs = [(_whole(each), _whole(wanted)) for each in have]
        right = compare is not None and any(
            compare(a, b) for a, b in pairs if a is not None and b is not None
        )
        right = right or (op is Op.UNEQUAL and not have)
    if not right:
        yield Reason(
            element, f"its {element.name} is {_listed(have)}: expected {op} {_short(wanted)}"
        )


def _whole(text: str) -> int | None:
    whole = text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS
    return int(text) if whole else None


def _listed(have: tuple[str, ...]) -> str:
    shown = [_short(each) for each in have[:MOST_LISTED]]
    if len(have) > MOST_LISTED:
        shown.append(f"{len(have) - MOST_LISTED} others")
    return " or ".join(shown) or "not known"


def _short(text: str) -> str:
    """A reason is kept for each machine and recipe."""
    return repr(text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…")
