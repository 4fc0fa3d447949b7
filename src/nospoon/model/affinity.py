"""How a cloud keeps rules of affinity among its compute hosts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Strictness(StrEnum):
    """What a cloud does with a server for which its rules of affinity leave no compute host."""

    STRICT = "strict"  # it is not made
    SOFT = "soft"  # it is made on another one


@dataclass(frozen=True, slots=True)
class GroupRules:
    """How rules of affinity hold on a host that is several computers. `per_host`: machines that are
    kept apart of which one computer may have so many.
    """

    strictness: Strictness = Strictness.STRICT
    per_host: int = 1


USUAL_RULES = GroupRules()
