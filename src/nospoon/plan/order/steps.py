"""A plan as a value: what is to happen to which resource, and why."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from nospoon.model.resources.keys import Key
from nospoon.model.resources.resource import Observed, Resource, is_adopted
from nospoon.model.rest.plans import FieldChange, Remembered
from nospoon.plan.order.kinds import whose


class Action(StrEnum):
    """What happens to a resource; `sign` is how it is printed."""

    CREATE = "create"
    CHANGE = "change"
    REPLACE = "replace"
    DELETE = "delete"

    @property
    def sign(self) -> str:
        return {"create": "+", "change": "~", "replace": "-/+", "delete": "-"}[self.value]


@dataclass(frozen=True, slots=True)
class Step:
    """One resource's part of a plan. `at_power_off`: takes effect when its machine stops.

    What is replaced on another host than it was found on moves: `observed` has a key of its own.
    """

    action: Action
    key: Key
    why: str
    desired: Resource | None = None
    observed: Observed | None = None
    changes: tuple[FieldChange, ...] = ()
    at_power_off: bool = False

    @property
    def node(self) -> str:
        """Whose it is, "" where it is no node's."""
        return self.desired.node if self.desired is not None else whose(self.key)

    @property
    def adopts(self) -> bool:
        """Whether it is about a machine that someone else made: it is claimed, or released."""
        of_whom = self.desired if self.desired is not None else self.observed
        return of_whom is not None and is_adopted(of_whom.shape)

    @property
    def verb(self) -> str:
        """What happens, in a word."""
        if not self.adopts:
            return str(self.action)
        return {Action.CREATE: "claim", Action.DELETE: "release"}.get(self.action, self.action)

    @property
    def removes(self) -> Key:
        """What its removing half is about."""
        return self.observed.key if self.observed is not None else self.key

    @property
    def moves_from(self) -> str:
        """The place that it leaves, "" when it stays where it is."""
        return self.removes.place if self.removes != self.key else ""


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in the order of the file (deletions, and what is deployed again, last); `notes` are
    warnings for the reader.

    `later`: deletions that wait until a machine is powered off; the first plan after that has them.
    `holding`: services that keep an address for a machine until then, and give it up likewise.
    `remembered`: what the file says again that is made nowhere. `remembers`: its text is not that
    which is known, if only by a comment.
    `starts`: VMs and containers of an `up` that did not end, which are started.
    `returns`: VMs and containers that get a root which they had before.
    `generation`: of the cluster when it was planned; 0 before it is remembered.
    """

    cluster: str
    cluster_id: UUID
    steps: tuple[Step, ...]
    unchanged: int = 0
    notes: tuple[str, ...] = ()
    remembers: bool = False
    generation: int = 0
    later: tuple[Step, ...] = ()
    holding: tuple[Key, ...] = ()
    remembered: tuple[Remembered, ...] = ()
    starts: tuple[str, ...] = ()
    returns: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        return not self.steps

    @property
    def counts(self) -> dict[str, int]:
        """By what happens; machines of others are counted where there are some."""
        counted = Counter(step.verb for step in self.steps)
        return {**{str(action): counted[action] for action in Action}, **counted}

    def undone(self, again: Plan) -> list[Step]:
        """Steps of a plan that was made after this one was carried out, but for those by machines
        that were powered off meanwhile and let go.
        """
        later = {step.key for step in self.later}
        return [
            step
            for step in again.steps
            if step.key not in later and not (step.key in self.holding and step.changes)
        ]

    @property
    def fingerprint(self) -> str:
        """Equal for equal plans: what was agreed on is what is carried out, or nothing is."""
        digest = hashlib.sha256(self.cluster_id.bytes + str(self.generation).encode())
        for step in self.steps:
            observed = step.observed.shape if step.observed is not None else None
            desired = step.desired.shape if step.desired is not None else None
            digest.update(
                f"{step.action}|{step.removes}|{step.key}|{desired!r}|{observed!r}\n".encode()
            )
        return digest.hexdigest()
