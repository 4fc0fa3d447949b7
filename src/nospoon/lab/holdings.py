"""What labs have and who has it: limits, registered machines, sets, and when their leases end.

The ground on which sets are placed (`placing`) and what happens to them is decided (`scheduler`).
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from nospoon.lab.assign import Free
from nospoon.lab.shortage import Shortages
from nospoon.lab.work import (
    RecipeSet,
    SetState,
)
from nospoon.model.lab import Inventory, Lab

MOST_DEADLINES = 10_000
"""After which those that are not any more are forgotten."""
WAITING = ""
"""In place of a set's id: a deadline of those that wait for capacity."""
GONE = Lab("gone")
"""In place of a lab whose file is gone: only removals are left of its sets."""


@dataclass(frozen=True, slots=True)
class MachineState:
    """Of a registered machine. `failures`: in a row. `broken`: why it is loaned to no one, "" for a
    machine that is. `reserved`: the person who has it without a recipe. `found`: its inventory.
    """

    failures: int = 0
    broken: str = ""
    reserved: str = ""
    found: Inventory | None = None

    @property
    def free(self) -> bool:
        return not self.broken and not self.reserved


class Holdings:
    """All labs and all sets that have not ended. `changed`: ids of sets, and (lab, machine), whose
    state must be stored before an effect is carried out.
    """

    def __init__(self) -> None:
        self.labs: dict[str, Lab] = {}
        self.sets: dict[str, RecipeSet] = {}
        self.machines: dict[tuple[str, str], MachineState] = {}
        self.drained: set[str] = set()
        self.changed: set[str] = set()
        self.changed_machines: set[tuple[str, str]] = set()
        self.probed: set[tuple[str, str]] = set()
        """Machines, by (lab, machine), whose inventory is taken now."""
        self.shortages = Shortages()
        self._free: dict[str, Free] = {}
        self._busy: dict[str, dict[str, str]] = {}
        self._idle_in: dict[str, frozenset[str]] = {}
        self._reserved: dict[str, Counter[str]] = {}
        self._holding: dict[str, set[str]] = {}
        self._owned: dict[str, Counter[str]] = {}
        self._fitting: defaultdict[str, dict[str, bool]] = defaultdict(dict)
        """Lab -> set -> whether it starts there once all leases are over, of those that could not
        when they were looked at. Files change labs, and people reserve and repair machines.
        """
        self._deadlines: list[tuple[float, str]] = []
        self._most_deadlines = MOST_DEADLINES

    def put_lab(self, key: str, lab: Lab) -> None:
        """A new lab, or one whose file changed: what is leased stays."""
        self.labs[key] = lab
        self.shortages.forget_lab(key)
        self._fitting.pop(key, None)
        self._idle_in.pop(key, None)
        self._reserved.pop(key, None)
        self._busy.setdefault(key, {})
        self._owned.setdefault(key, Counter())
        self._free[key] = Free.of(lab.limits)
        for each in self.holding(key):
            for run in each.runs:
                if run.size is not None:
                    self._free[key] = self._free[key].without(run.size)

    def drop_lab(self, key: str) -> None:
        """Its file is gone: `orphaned` finds the sets that it leaves."""
        self.labs.pop(key, None)
        self.shortages.forget_lab(key)
        self._fitting.pop(key, None)
        self._idle_in.pop(key, None)
        self._reserved.pop(key, None)

    @property
    def deadline(self) -> float | None:
        """When `expire` has something to do, at the earliest; Unix seconds."""
        return self._deadlines[0][0] if self._deadlines else None

    def holding(self, key: str) -> list[RecipeSet]:
        """Sets that have machines of a lab."""
        return [self.sets[each] for each in self._holding.get(key, ()) if each in self.sets]

    def holder(self, lab: str, machine: str) -> str:
        """Id of the set that has a registered machine, "" for none."""
        return self._busy.get(lab, {}).get(machine, "")

    def free(self, lab: str) -> Free:
        return self._free[lab]

    def has(self, key: str, owner: str) -> int:
        """Machines of a lab that an owner has, those that are reserved included."""
        if key not in self._reserved:
            machines = self.labs.get(key, GONE).machines
            self._reserved[key] = Counter(self.state_of(key, m.name).reserved for m in machines)
        return self._owned[key][owner] + self._reserved[key][owner]

    def reserve(self, lab: str, machine: str, owner: str) -> None:
        """Loaned to a person, without a recipe; "" gives it back."""
        self._set_machine(lab, machine, reserved=owner)

    def set_broken(self, lab: str, machine: str, why: str) -> None:
        """Not loaned any more; "": repaired."""
        self._set_machine(lab, machine, broken=why, failures=0)

    def probe(self, lab: str, machine: str) -> None:
        """No set gets it until `leave`."""
        self.probed.add((lab, machine))
        self._idle_in.pop(lab, None)

    def leave(self, lab: str, machine: str, found: Inventory | None) -> None:
        """Its inventory has been taken; None: in vain, and what was known stays."""
        self.probed.discard((lab, machine))
        self._idle_in.pop(lab, None)
        if found is not None:
            self._set_machine(lab, machine, found=found)

    def state_of(self, lab: str, machine: str) -> MachineState:
        return self.machines.get((lab, machine), MachineState())

    def _loanable(self, key: str) -> frozenset[str]:
        """Registered machines that sets get, once those that have them give them back."""
        machines = self.labs[key].machines
        return frozenset(m.name for m in machines if self.state_of(key, m.name).free)

    def _lab_of(self, found: RecipeSet) -> Lab:
        return self.labs.get(found.lab, GONE)

    def forget_ended(self, among: Iterable[str] | None = None) -> None:
        """Sets that ended, once they are stored."""
        for set_id in list(self.sets if among is None else among):
            if set_id in self.sets and self.sets[set_id].state is SetState.ENDED:
                del self.sets[set_id]

    def _save(self, found: RecipeSet) -> None:
        self.sets[found.id] = found
        self.changed.add(found.id)

    def _take(self, found: RecipeSet) -> None:
        self._holding.setdefault(found.lab, set()).add(found.id)
        self._idle_in.pop(found.lab, None)
        for run in found.runs:
            if run.size is not None and found.lab in self._free:
                self._free[found.lab] = self._free[found.lab].without(run.size)
            if run.machine:
                self._busy.setdefault(found.lab, {})[run.machine] = found.id
        self._owned.setdefault(found.lab, Counter())[found.owner] += granted(found)

    def _give_back(self, found: RecipeSet) -> None:
        self._holding[found.lab].discard(found.id)
        self._idle_in.pop(found.lab, None)
        for run in found.runs:
            if run.size is not None and found.lab in self._free:
                self._free[found.lab] = self._free[found.lab].plus(run.size)
            if run.machine:
                self._busy.get(found.lab, {}).pop(run.machine, None)
        self._owned[found.lab][found.owner] -= granted(found)
        self._owned[found.lab] += Counter()  # owners without any are not kept

    def _idle(self, key: str) -> frozenset[str]:
        """Registered machines that may be loaned now."""
        if key not in self._idle_in:
            busy = self._busy[key]
            self._idle_in[key] = frozenset(
                each.name
                for each in self.labs[key].machines
                if each.name not in busy
                and (key, each.name) not in self.probed
                and self.state_of(key, each.name).free
            )
        return self._idle_in[key]

    def _set_machine(self, lab: str, machine: str, **what: object) -> None:
        before = self.state_of(lab, machine)
        after = replace(before, **what)  # type: ignore[arg-type]  # fields by name
        if after != before:
            self.machines[lab, machine] = after
            if before.free != after.free:
                self._fitting.pop(lab, None)
            self._idle_in.pop(lab, None)
            self._reserved.pop(lab, None)
            self.changed_machines.add((lab, machine))

    def _count_failure(self, lab: str, machine: str, why: str) -> None:
        failures = self.state_of(lab, machine).failures + 1
        limit = self.labs[lab].failures if lab in self.labs else failures + 1
        broken = f"{failures} failures in a row; the last: {why}" if failures >= limit else ""
        self._set_machine(lab, machine, failures=failures, broken=broken)

    def _remember_deadlines(self, found: RecipeSet) -> None:
        for run in found.runs:
            if not run.over and run.expires:
                heapq.heappush(self._deadlines, (run.expires, found.id))
        if len(self._deadlines) > self._most_deadlines:
            self._forget_deadlines()

    def _forget_deadlines(self) -> None:
        """Those that are not any more: a client may extend a lease for ever."""
        self._deadlines = [each for each in self._deadlines if each[1] == WAITING]
        self._deadlines += [(each.not_before, each.id) for each in self.sets.values()
                           if each.state is SetState.QUEUED and each.not_before]  # fmt: skip
        self._deadlines += [
            (run.expires, each.id)
            for each in self.sets.values()
            for run in each.runs
            if run.expires and not run.over
        ]
        heapq.heapify(self._deadlines)
        self._most_deadlines = max(MOST_DEADLINES, 2 * len(self._deadlines))


def granted(found: RecipeSet) -> int:
    """Machines that it has."""
    return sum(run.size is not None or bool(run.machine) for run in found.runs)
