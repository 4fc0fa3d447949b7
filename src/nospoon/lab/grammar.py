"""What a filter (`hostRequires`) may hold: one row for each element, by where it stands.

Beaker's schema, https://beaker-project.org/docs/user-guide/job-xml.html; the kinds say which of
them a dynamic machine can be asked for, as the design of dynamic virtualization has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from nospoon.lab.compare import NUMERIC, TEXTUAL, Op
from nospoon.lab.element import Element

UNITS: Mapping[str, int] = {
    "bytes": 1,
    "B": 1,
    **{f"{prefix}B": 1000**power for power, prefix in enumerate(("k", "M", "G", "T"), 1)},
    **{f"{prefix}iB": 1024**power for power, prefix in enumerate(("K", "M", "G", "T"), 1)},
    "KB": 1000,
}
"""Bytes of each unit of `size` and `diskspace`."""
MOST_DIGITS = 18
"""Of a number, which is less than 2**63 so."""


class Means(Enum):
    """What an element asks for."""

    ALL = auto()  # all of what is in it
    ANY = auto()  # any of it
    NONE = auto()  # not that all of it holds
    DISK = auto()  # one disk with all of that
    MEMORY = auto()  # MiB
    CPUS = auto()
    SIZE = auto()  # of a disk, bytes
    ARCH = auto()
    LAB = auto()
    HYPERVISOR = auto()
    TYPE = auto()
    HARDWARE = auto()  # what no dynamic machine can be chosen by


@dataclass(frozen=True, slots=True)
class Row:
    """`within`: the group of rows of its children, "" where it has none. `number`: its value is
    one. `units`: what it may be given in, the first where it is not said.
    """

    means: Means
    within: str = ""
    number: bool = False
    units: tuple[str, ...] = ()


def _logic(within: str) -> dict[str, Row]:
    return {
        "and": Row(Means.ALL, within),
        "or": Row(Means.ANY, within),
        "not": Row(Means.NONE, within),
    }


def _hardware(*names: str, number: bool = False) -> dict[str, Row]:
    return {name: Row(Means.HARDWARE, number=number) for name in names}


_BYTES = tuple(UNITS)
ROWS: Mapping[str, Mapping[str, Row]] = {
    "host": {
        **_logic("host"),
        "system": Row(Means.ALL, "system"),
        "cpu": Row(Means.ALL, "cpu"),
        "disk": Row(Means.DISK, "disk"),
        "memory": Row(Means.MEMORY, number=True),
        "cpu_count": Row(Means.CPUS, number=True),
        "arch": Row(Means.ARCH),
        "labcontroller": Row(Means.LAB),
        "hostlabcontroller": Row(Means.LAB),
        "hypervisor": Row(Means.HYPERVISOR),
        "system_type": Row(Means.TYPE),
        **_hardware("numa_node_count", "diskcount", number=True),
        "diskspace": Row(Means.HARDWARE, number=True, units=_BYTES),
        **_hardware("host", "hostname", "auto_prov", "device", "group", "pool", "key_value"),
    },
    "system": {
        **_logic("system"),
        "memory": Row(Means.MEMORY, number=True),
        "arch": Row(Means.ARCH),
        "hypervisor": Row(Means.HYPERVISOR),
        "type": Row(Means.TYPE),
        "numanodes": Row(Means.HARDWARE, number=True),
        **_hardware(
            "name", "lender", "model", "vendor", "owner", "user", "loaned", "location", "powertype",
            "serial", "status", "added", "last_inventoried", "compatible_with_distro",
        ),
    },
    "cpu": {
        **_logic("cpu"),
        "processors": Row(Means.CPUS, number=True),
        "cores": Row(Means.CPUS, number=True),
        **_hardware("family", "model", "sockets", "stepping", number=True),
        **_hardware("speed", "hyper", "model_name", "vendor", "flag"),
    },
    "disk": {
        **_logic("disk"),
        "size": Row(Means.SIZE, number=True, units=_BYTES),
        "sector_size": Row(Means.HARDWARE, number=True, units=_BYTES),
        "phys_sector_size": Row(Means.HARDWARE, number=True, units=_BYTES),
        "model": Row(Means.HARDWARE),
    },
}  # fmt: skip
"""Group -> name -> row. `host`: what stands in `hostRequires` itself."""
BARE: Mapping[str, tuple[str, ...]] = {
    "device": (
        "type", "bus", "driver", "vendor_id", "device_id", "subsys_vendor_id", "subsys_device_id",
        "description",
    ),
    "key_value": ("key",),
    "compatible_with_distro": ("arch", "osmajor", "osminor"),
}  # fmt: skip
"""Those that need no `value` -> the attributes that they have besides."""


@dataclass(frozen=True, slots=True)
class Wrong:
    """What cannot be understood, at an element, and what to write."""

    at: Element
    message: str
    hint: str = ""


def wrong(requires: Element) -> Iterator[Wrong]:
    """All that is wrong in a filter. Nothing that is unknown is passed over."""
    yield from _of_attributes(requires, ("force",))
    if requires.attributes.get("force") and requires.children:
        inner = requires.children[0]
        yield Wrong(inner, f"expected nothing beside force, got <{inner.name}>")
    waiting = [(requires, "host")]
    while waiting:
        element, group = waiting.pop()
        for child in element.children:
            row = ROWS[group].get(child.name)
            if row is None or child.namespace:
                known = ", ".join(sorted(ROWS[group]))
                yield Wrong(child, f"unknown element <{child.name}>", f"Known here: {known}.")
            elif row.within:
                yield from _of_attributes(child, ())
                waiting.append((child, row.within))
            else:
                yield from _of_attributes(child, attributes(child.name, row))
                yield from _of_value(child, row)


def attributes(name: str, row: Row) -> tuple[str, ...]:
    """What an element without others in it may have."""
    return ("op", "value", *("units",) * bool(row.units), *BARE.get(name, ()))


def _of_attributes(element: Element, known: tuple[str, ...]) -> Iterator[Wrong]:
    """One that is misspelt would change what is asked for: without its `op`, a value is equal."""
    for name in (each for each in element.attributes if each not in known):
        hint = f"Known here: {', '.join(known)}." if known else "It has none."
        shown = name.rpartition(" ")[2][:40]
        yield Wrong(element, f"unknown attribute {shown!r} of <{element.name}>", hint)


def _of_value(element: Element, row: Row) -> Iterator[Wrong]:
    if element.children:
        inner = element.children[0]
        yield Wrong(inner, f"expected nothing in <{element.name}>, got <{inner.name}>")
    op = element.attributes.get("op", "=")
    if op not in ("==", *ops(row)):
        yield Wrong(element, f"op: expected one of {' '.join(ops(row))}, got {op[:40]!r}")
    if element.name in BARE:
        return
    value = element.attributes.get("value")
    if value is None:
        yield Wrong(element, f"expected a value of <{element.name}>", 'Write value="…".')
    elif row.number:
        yield from _of_number(element, value, row, like=op == Op.LIKE)


def ops(row: Row) -> tuple[Op, ...]:
    """Hardware may be compared in every way that the schema knows: no answer depends on it."""
    if row.means is Means.HARDWARE:
        return (*NUMERIC, Op.LIKE)
    return tuple(NUMERIC) if row.number else TEXTUAL


def _of_number(element: Element, value: str, row: Row, *, like: bool) -> Iterator[Wrong]:
    whole = value.isascii() and value.isdigit() and len(value) <= MOST_DIGITS
    if not (whole or like):
        unit = {Means.MEMORY: " of MiB", Means.CPUS: " of CPUs"}.get(row.means, "")
        yield Wrong(element, f"value: expected a whole number{unit}, got {value[:40]!r}")
    units = element.attributes.get("units")
    if row.units and units is not None and units not in row.units:
        known = ", ".join(row.units)
        yield Wrong(element, f"units: expected one of {known}, got {units[:40]!r}")
