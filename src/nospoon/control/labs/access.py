"""Who may do what with a lab: its owner everything, others what its file says."""

from __future__ import annotations

import asyncio
import pwd
from dataclasses import dataclass, field

from nospoon.errors import Forbidden, NotFound
from nospoon.model.lab import Lab

EVERYONE = "*"
PATIENCE = 5.0
"""Seconds for which the system's database of users may take (nsswitch.conf(5))."""


@dataclass(frozen=True, slots=True)
class KnownLab:
    """A lab with the cluster that its file describes. `key`: unique on this daemon."""

    key: str
    uid: int
    cluster: str
    lab: Lab

    @property
    def shown(self) -> str:
        return f"{self.cluster}/{self.lab.name}"


@dataclass(frozen=True, slots=True)
class Person:
    """A caller. `name`: of the user, "" for one that the system does not know."""

    uid: int
    name: str
    admin: bool = False

    def may_use(self, known: KnownLab) -> bool:
        return self.may_operate(known) or _named(self, known.lab.users)

    def may_operate(self, known: KnownLab) -> bool:
        """Act for other owners, drain, and repair machines."""
        return self.owns(known) or _named(self, known.lab.operators)

    def owns(self, known: KnownLab) -> bool:
        return self.admin or self.uid == known.uid


def _named(person: Person, names: tuple[str, ...]) -> bool:
    return EVERYONE in names or bool(person.name and person.name in names)


@dataclass(slots=True)
class People:
    """Users by uid, as the system knows them."""

    admins: frozenset[int]
    _names: dict[int, str] = field(default_factory=dict)

    async def of(self, uid: int) -> Person:
        if uid not in self._names:
            try:
                async with asyncio.timeout(PATIENCE):
                    self._names[uid] = await asyncio.to_thread(_name_of, uid)
            except TimeoutError:
                return Person(uid, "", uid in self.admins)
        return Person(uid, self._names[uid], uid in self.admins)


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""


def find(labs: list[KnownLab], person: Person, name: str) -> KnownLab:
    """A lab by NAME or CLUSTER/NAME, of those that a person may use. Raises `NotFound` for none,
    and where several are called so.
    """
    seen = [each for each in labs if person.may_use(each)]
    found = [each for each in seen if name in (each.lab.name, each.shown, each.key)]
    own = [each for each in found if each.uid == person.uid]
    if len(own) == 1:
        return own[0]
    if len(found) == 1:
        return found[0]
    known = ", ".join(sorted(each.shown for each in seen)) or "none"
    what = f"several labs are called {name!r}" if found else f"no lab {name!r}"
    raise NotFound(what, hint=f"Labs that you may use: {known}.")


def require_operator(person: Person, known: KnownLab) -> None:
    if not person.may_operate(known):
        raise Forbidden(
            f"only operators of lab {known.shown} may do that",
            hint="Its owner adds users to `operators` of the lab, and brings its file up.",
        )
