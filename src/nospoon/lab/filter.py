"""Which flavors a filter leaves, and why not others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice

from nospoon.lab.compare import NUMERIC, Op, holds
from nospoon.lab.element import Element
from nospoon.lab.grammar import ROWS, UNITS, Means, Row
from nospoon.model.host_facts import SizeOffered
from nospoon.model.lab import Disks
from nospoon.model.sizes import size as in_words

MIB, GIB = 1 << 20, 1 << 30
MOST_LISTED, MOST_SHOWN = 8, 60
"""Values that a reason lists, and characters of each."""
MOST_SIZES = 48
"""Sizes of disks that are tried for a filter."""
OTHER_DISK = "\0"
"""Between the id of a flavor and the disk that it has in place of its own."""
MOST_REASONS = 20
"""Of one filter."""
USUAL_ARCH = "x86_64"
ALSO_RUNS = {USUAL_ARCH: (USUAL_ARCH, "i386")}
"""What machines of an architecture run, where that is more than it."""
TYPES = ("Machine",)
OF_DISKS = frozenset({"disk", "diskspace", "diskcount"})
NO_DISKS = "dynamic machines have the disk of their flavor, which cannot be chosen here"


class Answer(StrEnum):
    """About dynamic machines."""

    POSSIBLE = "possible"
    NO_FLAVOR = "no-flavor"  # they could be asked for that, but no flavor has it
    PRECLUDED = "precluded"  # they cannot be asked for that


@dataclass(frozen=True, slots=True)
class Offer:
    """What a lab offers. `lab`: its name, as `labcontroller` compares it. `minimum_disk` in bytes:
    smaller flavors install nothing. `largest_disk`: of those that are made as asked for.
    """

    lab: str
    flavors: tuple[SizeOffered, ...]
    disks: Disks = Disks.PRECLUDE
    minimum_disk: int = 10 * GIB
    hypervisor: str = "KVM"
    largest_disk: int = 100 * GIB

    @property
    def arches(self) -> tuple[str, ...]:
        """What its machines run."""
        of_flavors = dict.fromkeys(each.arch for each in self.flavors) or {USUAL_ARCH: None}
        return tuple(name for arch in of_flavors for name in runs_on(arch))

    @property
    def usable(self) -> tuple[SizeOffered, ...]:
        """The smallest first: by memory, disk, id."""
        large = (each for each in self.flavors if each.disk >= self.minimum_disk)
        return tuple(sorted(large, key=lambda each: (each.memory, each.disk, each.id)))


@dataclass(frozen=True, slots=True)
class Reason:
    """Why not, at an element."""

    at: Element
    why: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """`flavors`: those that match, the smallest first; `chosen` is it. `reasons`: why there is
    none.
    """

    answer: Answer
    flavors: tuple[SizeOffered, ...] = ()
    reasons: tuple[Reason, ...] = ()

    @property
    def chosen(self) -> SizeOffered | None:
        return self.flavors[0] if self.flavors else None

    @classmethod
    def none(cls, at: Element, why: str) -> Verdict:
        """No dynamic machine, whatever the filter is."""
        return cls(Answer.PRECLUDED, reasons=(Reason(at, why),))


@dataclass(frozen=True, slots=True)
class _Left:
    """Of one element: whether such a thing may be asked for, the ids of flavors that it leaves, and
    why others are not among them.
    """

    capable: bool
    ids: frozenset[str]
    reasons: tuple[Reason, ...] = ()


def runs_on(arch: str) -> tuple[str, ...]:
    """Architectures, as distributions name them, that machines of one run."""
    return ALSO_RUNS.get(arch, (arch,))


def judge(requires: Element, offer: Offer) -> Verdict:
    """The answer to a filter in which `grammar.wrong` finds nothing."""
    force = requires.attributes.get("force", "")
    if force:
        why = f"force={force[:MOST_SHOWN]!r} names one machine, which is not dynamic"
        return Verdict(Answer.PRECLUDED, reasons=(Reason(requires, why),))
    if offer.disks is Disks.ASKED:
        offer = replace(offer, flavors=(*offer.flavors, *_other_disks(requires, offer)))
    left = _Judge(offer).all_of(requires, "host")
    if not left.capable:
        return Verdict(Answer.PRECLUDED, reasons=left.reasons)
    flavors = [each for each in offer.usable if each.id in left.ids]
    if flavors:
        return Verdict(Answer.POSSIBLE, _each_once(flavors))
    reasons = left.reasons or (Reason(requires, _nothing_usable(offer)),)
    return Verdict(Answer.NO_FLAVOR, reasons=reasons)


def sizes_tried(requires: Element) -> list[int]:
    """Bytes of disks, of which one may be what a filter asks for: those around each size in it, in
    whole GiB.
    """
    wanted = set[int]()
    for element in requires.walk():
        if element.name == "size" and len(wanted) < MOST_SIZES:
            value = element.attributes.get("value", "")
            factor = UNITS.get(element.attributes.get("units", "bytes"), 1)
            whole = int(value) * factor // GIB * GIB if value.isdecimal() else 0
            wanted |= {whole - GIB, whole, whole + GIB}
    return sorted(wanted)


def _other_disks(requires: Element, offer: Offer) -> Iterator[SizeOffered]:
    """Flavors with disks of other sizes."""
    wanted = sizes_tried(requires)
    for each in offer.flavors:
        for size in wanted:
            if offer.minimum_disk <= size <= offer.largest_disk and size != each.disk:
                yield replace(each, id=f"{each.id}{OTHER_DISK}{size:020}", disk=size)


def _each_once(flavors: Iterable[SizeOffered]) -> tuple[SizeOffered, ...]:
    """With its own disk where that will do, else the smallest."""
    found: dict[str, SizeOffered] = {}
    for each in flavors:
        flavor, _, other = each.id.partition(OTHER_DISK)
        if flavor not in found or not other:
            found[flavor] = each
    return tuple(found.values())


def _nothing_usable(offer: Offer) -> str:
    least = in_words(offer.minimum_disk)
    return f"none of {len(offer.flavors)} flavors has a disk of {least}, the least of this lab"


_NUMBERS: Mapping[Means, tuple[Callable[[SizeOffered], int], str]] = {
    Means.MEMORY: (lambda each: each.memory // MIB, "MiB of memory"),
    Means.CPUS: (lambda each: each.cpus, "CPUs"),
    Means.SIZE: (lambda each: each.disk, "bytes of disk"),
}


class _Judge:
    def __init__(self, offer: Offer) -> None:
        self._offer, self._usable = offer, offer.usable
        self._every = frozenset(each.id for each in self._usable)

    def all_of(self, element: Element, group: str) -> _Left:
        parts = [self._of(child, group) for child in element.children]
        ids = self._every.intersection(*(each.ids for each in parts))
        capable = all(each.capable for each in parts)
        reasons = _together(each for each in parts if not each.ids or not each.capable)
        if capable and not ids and not reasons and self._every:
            reasons = (Reason(element, self._apart(element, parts)),)
        return _Left(capable, ids, reasons)

    def _apart(self, element: Element, parts: Sequence[_Left]) -> str:
        names = (
            list(dict.fromkeys(flavor.name for flavor in self._usable if flavor.id in each.ids))
            for each in parts
        )
        leave = (
            f"<{child.name}> {_listed(each)}"
            for child, each in zip(element.children[:MOST_LISTED], names, strict=False)
        )
        return f"each of these has a flavor, but none has all: {'; '.join(leave)}"

    def _of(self, element: Element, group: str) -> _Left:
        row = ROWS[group][element.name]
        if row.means in _NUMBERS:
            return self._by_number(element, row, *_NUMBERS[row.means])
        match row.means:
            case Means.ALL:
                return self.all_of(element, row.within)
            case Means.ANY:
                return self._any_of(element, row.within)
            case Means.NONE:
                return self._none_of(element, row.within)
            case Means.DISK:
                return self._disk(element, row)
            case Means.LAB:
                # Machines of other labs are asked for there, so that it precludes nothing.
                return replace(self._by_text(element, (self._offer.lab,)), capable=True)
            case Means.HYPERVISOR:
                return self._by_text(element, (self._offer.hypervisor,))
            case Means.TYPE:
                return self._by_text(element, TYPES)
            case Means.ARCH:
                return self._by_arch(element)
        why = f"dynamic machines cannot be chosen by <{element.name}>"
        return _precluded(element, why)

    def _any_of(self, element: Element, group: str) -> _Left:
        parts = [self._of(child, group) for child in element.children]
        ids = frozenset[str]().union(*(each.ids for each in parts))
        reasons = _together(parts) or (Reason(element, "an empty <or> matches nothing"),)
        return _Left(any(each.capable for each in parts), ids, () if ids else reasons)

    def _none_of(self, element: Element, group: str) -> _Left:
        """What cannot be asked for is what such machines have not."""
        if not element.children:
            return _Left(capable=True, ids=self._every)
        of_disks = next((each for each in element.walk() if each.name in OF_DISKS), None)
        if of_disks is not None and self._offer.disks is Disks.PRECLUDE:
            return _precluded(of_disks, NO_DISKS)
        ids = self._every - self.all_of(element, group).ids
        reason = Reason(element, "each flavor matches what is not wanted")
        return _Left(capable=True, ids=ids, reasons=() if ids else (reason,))

    def _disk(self, element: Element, row: Row) -> _Left:
        if self._offer.disks is Disks.PRECLUDE:
            return _precluded(element, NO_DISKS)
        return self.all_of(element, row.within)

    def _by_number(
        self, element: Element, row: Row, have: Callable[[SizeOffered], int], what: str
    ) -> _Left:
        op = Op.read(element.attributes.get("op", "="))
        factor = UNITS[element.attributes.get("units", "bytes")]
        wanted = int(element.attributes["value"]) * factor
        ids = frozenset(each.id for each in self._usable if NUMERIC[op](have(each), wanted))
        if ids or not self._usable:
            return _Left(capable=True, ids=ids)
        found = sorted({have(each) for each in self._usable})
        why = f"no flavor has {op} {wanted} {what}: they have {_listed(found)}"
        if row.means is Means.SIZE and self._offer.disks is Disks.ASKED:
            why += f", and this lab makes disks of up to {in_words(self._offer.largest_disk)}"
        if "op" not in element.attributes:
            why += '. Without op it must be equal: write op=">="'
        return _Left(capable=True, ids=ids, reasons=(Reason(element, why),))

    def _by_arch(self, element: Element) -> _Left:
        op, wanted = Op.read(element.attributes.get("op", "=")), element.attributes["value"]
        fit = (each.id for each in self._usable if holds(op, runs_on(each.arch), wanted))
        if ids := frozenset(fit):
            return _Left(capable=True, ids=ids)
        return self._by_text(element, self._offer.arches)

    def _by_text(self, element: Element, have: Sequence[str]) -> _Left:
        """Whether all dynamic machines here are such, or none."""
        op = Op.read(element.attributes.get("op", "="))
        wanted = element.attributes["value"]
        if holds(op, have, wanted):
            return _Left(capable=True, ids=self._every)
        why = f"{element.name} of dynamic machines here is {' or '.join(have)}"
        return _precluded(element, f"{why}: expected {op} {wanted[:MOST_SHOWN]!r}")


def _precluded(element: Element, why: str) -> _Left:
    return _Left(capable=False, ids=frozenset(), reasons=(Reason(element, why),))


def _together(parts: Iterable[_Left]) -> tuple[Reason, ...]:
    return tuple(islice((reason for each in parts for reason in each.reasons), MOST_REASONS))


def _listed(values: Sequence[object]) -> str:
    if len(values) > MOST_LISTED:
        return f"{values[0]} to {values[-1]}"
    return ", ".join(map(str, values))
