"""A host with liblxc: what it has, and its commands."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from nospoon.errors import MissingTool, ProviderError
from nospoon.providers.containers.host import ContainerHost
from nospoon.providers.containers.scripts import RUN_PYTHON
from nospoon.providers.lxc import scripts
from nospoon.providers.lxc.config import Cgroups, Ids
from nospoon.runtime.process import printed_by
from nospoon.runtime.runner import Runner

PACKAGES = "Install the packages lxc and uidmap there (`apt install lxc uidmap`)."
RESERVE = (
    "Reserve some for containers: `usermod --add-subuids 1000000-1065535 "
    "--add-subgids 1000000-1065535 root`."
)


@dataclass(frozen=True, slots=True)
class LxcFacts:
    """What a host has. `memory` in bytes; `lacks`: programs and files that are not there; `users`
    and `groups`: ranges of ids that are reserved for root there; `apparmor`: whether its kernel has
    that, and liblxc can make profiles.
    """

    lacks: tuple[str, ...]
    users: tuple[Ids, ...]
    groups: tuple[Ids, ...]
    cgroups: Cgroups
    apparmor: bool
    cpus: int
    memory: int
    name: str


class LxcHost(ContainerHost):
    """Runs commands there. `root`: the directory of pools; `idmap`: ids that containers have, 0 and
    0 for those that the host reserves; `new_privileges`: of programs in them.
    """

    def __init__(
        self,
        name: str,
        runner: Runner,
        root: str,
        idmap: tuple[int, int],
        *,
        new_privileges: bool = False,
    ) -> None:
        observation = ["sh", "-c", RUN_PYTHON, scripts.LOOK, root]
        super().__init__(name, runner, root, observation)
        self._idmap, self.new_privileges = idmap, new_privileges
        self._facts: LxcFacts | None = None
        self._asking = asyncio.Lock()

    async def facts(self, *, again: bool = False) -> LxcFacts:
        """Asked once, as long as nothing is missing. `again`: the host may be offline by now."""
        async with self._asking:
            if again or self._facts is None or self._facts.lacks or not self._facts.users:
                done = await self.sh(scripts.FACTS)
                try:
                    self._facts = parse_facts(printed_by(done))
                except ValueError as error:
                    what = "what it says of itself is not as nospoon asks for it"
                    raise ProviderError(f"host {self.name}: {what}") from error
            return self._facts

    async def ids(self) -> Ids:
        """Raises `MissingTool` where liblxc is not there, `ProviderError` where the host reserves
        no ids: another user could be given them.
        """
        facts = await self.facts()
        if facts.lacks:
            raise MissingTool(
                f"host {self.name} has no {facts.lacks[0]}, which containers need", hint=PACKAGES
            )
        wanted = Ids(*self._idmap)
        if not wanted.count:
            both = [each for each in facts.users if each in facts.groups]
            if not both:
                raise ProviderError(
                    f"host {self.name} reserves no ids for root in /etc/subuid and /etc/subgid",
                    hint=RESERVE,
                )
            return both[0]
        for name, ranges in (("subuid", facts.users), ("subgid", facts.groups)):
            if not any(_within(wanted, each) for each in ranges):
                raise ProviderError(
                    f"host {self.name}: `idmap` {wanted.first}:{wanted.count} is not reserved for "
                    f"root in /etc/{name}",
                    hint=f"Add the line `root:{wanted.first}:{wanted.count}` there.",
                )
        return wanted


def parse_facts(text: str) -> LxcFacts:
    """What `scripts.FACTS` wrote. Raises `ValueError` for anything else."""
    said: dict[str, list[list[str]]] = {}
    for line in filter(str.strip, text.splitlines()):
        word, *values = line.split()
        said.setdefault(word, []).append(values)

    def one(word: str) -> str:
        return next((values[0] for values in said.get(word, ()) if values), "")

    def ids(kind: str) -> tuple[Ids, ...]:
        return tuple(
            Ids(int(first), int(count))
            for which, first, count in said.get("ids", ())
            if which == kind
        )

    unified = "cgroup2" in said
    controllers = said.get("cgroup2" if unified else "cgroup", ())
    return LxcFacts(
        lacks=tuple(name for (name,) in said.get("lacks", ())),
        users=ids("u"),
        groups=ids("g"),
        cgroups=Cgroups(unified, frozenset(name for (name,) in controllers)),
        apparmor="apparmor" in said,
        cpus=int(one("cpus") or 0),
        memory=int(one("memory") or 0) << 10,
        name=one("name"),
    )


def _within(wanted: Ids, there: Ids) -> bool:
    last = wanted.first + wanted.count
    return there.first <= wanted.first and last <= there.first + there.count
