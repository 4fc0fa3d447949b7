"""What commands of agents were given, and came to: so much of it is kept of all agents of a user.

Each agent keeps what its last commands were given, up to 8 MiB of one, and a user may have 20,000
agents. Where that is too much, agents to which nothing was said for longest keep their last command
alone, and then no more of that than what Ironic reads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol
from uuid import UUID

MOST = 256 << 20
"""Bytes of all agents of one user, about."""


STEPS = 4096
"""Agents that forget for one command, in some milliseconds."""


class Keeping(Protocol):
    """An agent."""

    @property
    def held(self) -> int: ...
    def forget_before(self) -> None: ...
    def forget_last(self) -> None: ...


@dataclass(slots=True)
class _OfOwner:
    """Agents that have more than their last command, and those that do not, each in the order in
    which they were given that.
    """

    whole: dict[UUID, Keeping] = field(default_factory=dict)
    last: dict[UUID, Keeping] = field(default_factory=dict)
    held: dict[UUID, int] = field(default_factory=dict)
    total: int = 0

    def count(self, machine: UUID, amount: int) -> None:
        self.total += amount - self.held.pop(machine, 0)
        if amount:
            self.held[machine] = amount

    def forget(self, amount: int, *, but: UUID) -> None:
        """Until so many bytes more have room. `but`: whose come."""
        self._forget(self.whole, lambda each: each.forget_before(), amount, but)
        self._forget(self.last, lambda each: each.forget_last(), amount, but)

    def _forget(
        self,
        of: dict[UUID, Keeping],
        step: Callable[[Keeping], None],
        amount: int,
        but: UUID,
    ) -> None:
        if self.total + amount <= MOST:
            return
        for machine in [each for each in islice(of, STEPS) if each != but]:
            agent = of.pop(machine)
            step(agent)
            self.count(machine, agent.held)
            self.last[machine] = agent
            if self.total + amount <= MOST:
                return


class Kept:
    """Of all agents."""

    def __init__(self) -> None:
        self._of = defaultdict[int, _OfOwner](_OfOwner)

    def has_room(self, owner: int, machine: UUID, amount: int) -> bool:
        """Whether so many bytes more may come to an agent, when others have forgotten what they
        can.
        """
        found = self._of.get(owner, _OfOwner())
        found.forget(amount, but=machine)
        return found.total + amount <= MOST

    def put(self, owner: int, machine: UUID, agent: Keeping) -> None:
        """A command came to it."""
        found = self._of[owner]
        for each in (found.whole, found.last):
            each.pop(machine, None)
        found.whole[machine] = agent
        found.count(machine, agent.held)

    def drop(self, owner: int, machine: UUID) -> None:
        """It is no more."""
        found = self._of[owner]
        for each in (found.whole, found.last):
            each.pop(machine, None)
        found.count(machine, 0)
        if not found.whole and not found.last:
            del self._of[owner]
