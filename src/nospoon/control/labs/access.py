"""Who may do what with a lab: its owner everything, others what its file says."""

from __future__ import annotations

import asyncio
import pwd
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from nospoon.errors import Forbidden, NotFound
from nospoon.lab.work import RecipeSet
from nospoon.model.lab import Lab, Registered
from nospoon.model.principal import Administrators, OwnerId, Principal
from nospoon.runtime.clock import monotonic

EVERYONE = "*"
MOST_SHOWN = 20
"""Labs that a message lists."""
PATIENCE, KEPT, THREADS = 5.0, 10.0, 4
"""Seconds that the system's database of users may take, and for which its answer counts."""


@dataclass(frozen=True, slots=True)
class KnownLab:
    """A lab with the cluster that its file describes. `key`: unique on this daemon. `machines`: its
    registered ones by name, of which there may be thousands.
    """

    key: str
    owner: OwnerId
    cluster: str
    lab: Lab
    machines: Mapping[str, Registered] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_name = {each.name: each for each in self.lab.machines}
        object.__setattr__(self, "machines", by_name)  # it is frozen

    @property
    def shown(self) -> str:
        return f"{self.cluster}/{self.lab.name}"


@dataclass(frozen=True, slots=True)
class Person:
    """A caller. `name`: of the user, "" for one that the system does not know."""

    caller: Principal
    name: str

    def may_use(self, known: KnownLab) -> bool:
        return self.may_operate(known) or _named(self, known.lab.users)

    def may_operate(self, known: KnownLab) -> bool:
        """Act for other owners, drain, and repair machines."""
        return self.owns(known) or _named(self, known.lab.operators)

    def is_owner(self, found: RecipeSet) -> bool:
        """Whether a set's machines are for this user, who may do with it what its submitter may: as
        in Beaker, where a job submitted for a user is that user's.
        """
        return bool(self.name) and found.owner == self.name

    def owns(self, known: KnownLab) -> bool:
        return self.caller.owns(known.owner)


def _named(person: Person, names: tuple[str, ...]) -> bool:
    return EVERYONE in names or bool(person.name and person.name in names)


class People:
    """Users by uid, as the system knows them. Its database of users may be on another machine
    (nsswitch.conf(5)): it is asked in threads of its own, once for a user in `KEPT` seconds, and a
    user whose answer does not come has no name.
    """

    def __init__(self, admins: Administrators) -> None:
        self.admins = admins
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="names of users")
        self._known: dict[OwnerId, tuple[float, asyncio.Future[str]]] = {}

    async def of(self, caller: Principal) -> Person:
        uid = caller.uid
        now = monotonic()
        asked, answer = self._known.get(uid, (0.0, None))
        if answer is None or (answer.done() and now - asked > KEPT):
            for other, (then, found) in list(self._known.items()):
                if found.done() and now - then > KEPT:
                    del self._known[other]
            answer = asyncio.wrap_future(self._threads.submit(_name_of, uid))
            self._known[uid] = now, answer
        await asyncio.wait([answer], timeout=PATIENCE)  # it goes on for those who ask next
        return Person(caller, answer.result() if answer.done() else "")

    def close(self) -> None:
        """What runs is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _name_of(uid: OwnerId) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""


def find(labs: list[KnownLab], person: Person, name: str, *, admins: Administrators) -> KnownLab:
    """A lab by NAME or CLUSTER/NAME, of those that a person may use: an own one, else one of an
    administrator, else one of another user. Raises `NotFound` for none, and where several are
    called so.
    """
    seen = [each for each in labs if person.may_use(each)]
    found = [each for each in seen if name in (each.lab.name, each.shown, each.key)]
    for among in (
        [each for each in found if each.owner == person.caller.uid],
        [each for each in found if each.owner in admins],
        found,
    ):
        if len(among) == 1:
            return among[0]
        if among:
            break
    known = ", ".join(sorted(each.shown for each in seen)[:MOST_SHOWN]) or "none"
    what = f"several labs are called {name!r}" if found else f"no lab {name!r}"
    raise NotFound(what, hint=f"Labs that you may use: {known}.")


def trusted(labs: Iterable[KnownLab], person: Person, admins: Administrators) -> list[KnownLab]:
    """Labs for a request that names none: own ones, and those of administrators. Every user may
    make a lab and list others as its users; whoever has it can read what is installed there.
    """
    allowed = (each for each in labs if each.owner in admins or each.owner == person.caller.uid)
    return [each for each in allowed if person.may_use(each)]


def require_operator(person: Person, known: KnownLab) -> None:
    if not person.may_operate(known):
        raise Forbidden(
            f"only operators of lab {known.shown} may do that",
            hint="Its owner adds users to `operators` of the lab, and brings its file up.",
        )
