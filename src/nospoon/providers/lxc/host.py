"""A host with liblxc: what it has, and its commands."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from nospoon.errors import MissingTool, ProviderError
from nospoon.providers.lxc import filters, scripts
from nospoon.providers.lxc.config import Cgroups, Ids
from nospoon.providers.lxc.records import Seen, parse
from nospoon.runtime.process import Finished, said_by
from nospoon.runtime.runner import LocalRunner, Runner

PIECE = 8 << 20
"""Bytes of an image that are sent to another host at a time."""
PACKAGES = "Install the packages lxc and uidmap there (`apt install lxc uidmap`)."
RESERVE = (
    "Reserve some for containers: `usermod --add-subuids 1000000-1065535 "
    "--add-subgids 1000000-1065535 root`."
)


@dataclass(frozen=True, slots=True)
class LxcFacts:
    """What a host has. `memory` in bytes; `lacks`: programs and files that are not there; `users`
    and `groups`: ranges of ids that are reserved for root there.
    """

    lacks: tuple[str, ...]
    users: tuple[Ids, ...]
    groups: tuple[Ids, ...]
    cgroups: Cgroups
    cpus: int
    memory: int
    name: str


@dataclass(slots=True)
class _Look:
    """One that is to be made, for all who share it."""

    seen: Seen | None = None
    failed: ProviderError | None = None


class LxcHost:
    """Runs commands there. `root`: the directory of pools; `idmap`: ids that containers have, 0 and
    0 for those that the host reserves.
    """

    def __init__(self, name: str, runner: Runner, root: str, idmap: tuple[int, int]) -> None:
        self.name, self.runner, self.root = name, runner, root
        self.is_here = isinstance(runner, LocalRunner)
        self._idmap = idmap
        self._facts: LxcFacts | None = None
        self._has_filters = False
        self._asking = asyncio.Lock()
        self._next: _Look | None = None
        self._busy = asyncio.Lock()

    async def facts(self) -> LxcFacts:
        """Asked once, as long as nothing is missing."""
        async with self._asking:
            if self._facts is None or self._facts.lacks or not self._facts.users:
                self._facts = parse_facts((await self.sh(scripts.FACTS)).stdout)
            return self._facts

    async def has_filters(self) -> bool:
        """Whether libvirt there can filter NICs; asked again as long as it cannot."""
        if not self._has_filters:
            self._has_filters = (await self.sh(filters.AVAILABLE, check=False)).status == 0
        return self._has_filters

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

    async def look(self) -> Seen:
        """What is there after this call. One look is made at a time, and all who ask before it
        begins share it: thousands of containers may be made, each of which asks a few times.
        """
        mine = self._next = self._next or _Look()
        async with self._busy:
            if mine.failed is not None:
                raise mine.failed
            if mine.seen is None:
                self._next = None  # who asks from now on gets another one
                try:
                    done = await self.run(["python3", "-I", "-S", "-c", scripts.LOOK, self.root])
                    mine.seen = await asyncio.to_thread(parse, done.stdout)
                except ProviderError as error:
                    mine.failed = error
                    raise
            return mine.seen

    async def sh(
        self, script: str, *words: str, stdin: bytes | None = None, check: bool = True
    ) -> Finished:
        """Run a script with the system's own tools, which a container's user can run, too, as it
        cannot a python3 of root's (pyenv). A failing one raises what it said last, without its
        text.
        """
        text = scripts.SYSTEM_FIRST + script
        return await self.run(["sh", "-ec", text, "sh", *words], stdin=stdin, check=check)

    async def run(
        self, argv: Sequence[str], *, stdin: bytes | None = None, check: bool = True
    ) -> Finished:
        """The same of any command."""
        done = await self.runner.run(argv, stdin=stdin, check=False)
        if check and done.status != 0:
            raise ProviderError(f"host {self.name}: {said_by(done) or done.status}")
        return done

    async def write(self, path: str, content: bytes) -> None:
        """In one step, for root alone."""
        await self.sh(scripts.WRITE, path, str(len(content)), stdin=content)

    async def copy(self, source: str, path: str, sha256: str) -> None:
        """The daemon's own file, to that path, which it has only when it is whole."""
        part = f"{path}.part"
        if self.is_here:
            await self.sh(scripts.COPY, source, part)
        else:
            await self.runner.run(["rm", "-f", "--", part])
            digest = hashlib.sha256()
            with await asyncio.to_thread(Path(source).open, "rb") as file:
                while piece := await asyncio.to_thread(file.read, PIECE):
                    digest.update(piece)
                    await self.sh(scripts.APPEND, part, stdin=piece)
        done = await self.sh(scripts.FINISH_IMAGE, path, sha256, check=False)
        if done.status != 0:
            raise ProviderError(
                f"host {self.name}: the copy of an image is damaged (sha256 {sha256[:16]}…)",
                hint="Run `nospoon up` again.",
            )

    def path(self, *parts: str) -> str:
        """Below the directory of pools."""
        return str(PurePosixPath(self.root, *parts))


def parse_facts(text: str) -> LxcFacts:
    """What `scripts.FACTS` wrote."""
    said: dict[str, list[list[str]]] = {}
    for line in text.splitlines():
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
        cpus=int(one("cpus") or 0),
        memory=int(one("memory") or 0) << 10,
        name=one("name"),
    )


def _within(wanted: Ids, there: Ids) -> bool:
    last = wanted.first + wanted.count
    return there.first <= wanted.first and last <= there.first + there.count
