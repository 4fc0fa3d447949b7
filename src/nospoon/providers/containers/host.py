"""A host of containers: its directory of pools, and commands there."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from nospoon.errors import ProviderError
from nospoon.providers.containers import filters, scripts
from nospoon.providers.containers.records import Seen, parse
from nospoon.runtime.process import Finished, printed_by, said_by
from nospoon.runtime.runner import LocalRunner, Runner, SshRunner, patient
from nospoon.runtime.shared import Shared

CHANGE_SECONDS = 900.0
"""For how long a command that changes something may run: it unpacks an image, or copies a volume's
first content. One that only looks has what the runner gives it.
"""
LONGEST_LOOK = 16 << 20
"""Characters of what is there, of some 5,000 containers: what decodes it holds up other threads."""
PIECE = 8 << 20
"""Bytes of an image that are sent to another host at a time."""


class ContainerHost:
    """Runs commands there. `root`: the directory of pools; `observation`: the command that writes
    what is there, as `records.parse` takes it.
    """

    def __init__(self, name: str, runner: Runner, root: str, observation: Sequence[str]) -> None:
        self.name, self.runner, self.root = name, runner, root
        self._patient = patient(runner, CHANGE_SECONDS)
        self.is_here = isinstance(runner, LocalRunner)
        self._observation = tuple(observation)
        self._has_filters = False
        self._looks = Shared(self._look)

    async def has_filters(self) -> bool:
        """Whether libvirt there can filter NICs; asked again as long as it cannot."""
        if not self._has_filters:
            self._has_filters = (
                await self.sh(filters.AVAILABLE, check=False, looks=True)
            ).status == 0
        return self._has_filters

    async def look(self) -> Seen:
        """What is there after this call. One look is made at a time, and all who ask before it
        begins share it: thousands of containers may be made, each of which asks a few times.
        """
        return await self._looks()

    async def _look(self) -> Seen:
        done = await self.run(self._observation, looks=True)
        return await asyncio.to_thread(self.parsed, printed_by(done, LONGEST_LOOK))

    def parsed(self, text: str) -> Seen:
        """What the command wrote."""
        return parse(text)

    async def sh(
        self,
        script: str,
        *words: str,
        stdin: bytes | None = None,
        check: bool = True,
        looks: bool = False,
    ) -> Finished:
        """Run a script with the system's own tools, which a container's user can run, too, as it
        cannot a python3 of root's (pyenv). A failing one raises what it said last, without its
        text.
        """
        text = scripts.SYSTEM_FIRST + script
        argv = ["sh", "-ec", text, "sh", *words]
        return await self.run(argv, stdin=stdin, check=check, looks=looks)

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | None = None,
        check: bool = True,
        looks: bool = False,
    ) -> Finished:
        """The same of any command. `looks`: it changes nothing."""
        runner = self.runner if looks else self._patient
        done = await runner.run(argv, stdin=stdin, check=False)
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

    def relative(self, path: str) -> str:
        """Of one below the directory of pools."""
        return str(PurePosixPath(path).relative_to(self.root))

    def here(self, argv: Sequence[str]) -> Sequence[str]:
        """The command of this machine that runs that one there."""
        return self.runner.command(argv) if isinstance(self.runner, SshRunner) else argv
