"""Whose a resource is: the tag that is written on everything made."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

MOST_GENERATION, MOST_UID = 1 << 31, 1 << 32
"""PostgreSQL's integers, and user ids (credentials(7))."""
MOST_TAGGED = 255
"""Characters of each text of a tag."""


@dataclass(frozen=True, slots=True)
class OwnerTag:
    """Written on everything made. `token` names the action that made it, for a safe retry.

    `name` and `uid`: the cluster's, and its owner's; "" and None on what earlier versions made.
    `note`: what `nospoon.plan.addresses.notes` says of a machine.
    """

    deployment: str
    cluster: UUID
    generation: int = 0
    token: str = ""
    name: str = ""
    uid: int | None = None
    note: str = ""

    def is_plausible(self, name: str) -> bool:
        """Whether nospoon can have written it, on a thing with this name. What others wrote may be
        what no store takes, and no answer of the API: one such tag would keep `orphans` and
        `recover` from all others.
        """
        numbers = 0 <= self.generation < MOST_GENERATION and 0 <= (self.uid or 0) < MOST_UID
        texts = (self.deployment, self.token, self.name, name)
        return numbers and all(len(each) <= MOST_TAGGED and each.isprintable() for each in texts)
