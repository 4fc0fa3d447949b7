"""A host with an engine: what it has, and its commands."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import cache
from importlib import resources
from io import StringIO
from urllib.parse import urlencode

import msgspec

from nospoon.errors import MissingTool, ProviderError
from nospoon.providers.containers.host import ContainerHost
from nospoon.providers.containers.records import Seen
from nospoon.providers.containers.scripts import RUN_PYTHON
from nospoon.runtime.process import Finished, printed_by, said_by
from nospoon.runtime.runner import Runner

PACKAGE = "nospoon.providers.docker"
MODULES = (
    "wire", "processes", "confinement", "engines", "shown", "podman", "waiting", "space", "roots",
    "moby", "nics", "reboots", "record", "running", "main",
)  # fmt: skip
"""Of the program, each after those that it imports."""
LOAD = """
import sys, types
for name, text in @texts@.items():
    module = sys.modules[name] = types.ModuleType(name)
    setattr(sys.modules.setdefault(name.rpartition(".")[0], types.ModuleType("")),
        name.rpartition(".")[2], module)
    exec(compile(text, name, "exec"), module.__dict__)
module.main(sys.argv[1:])
"""
LABEL = "nospoon.root"
"""As `roots` has it."""
INSTALL = (
    "Install Podman there, and start its service: `apt install podman`, `systemctl enable --now "
    "podman.socket`. Or start Docker Engine: `systemctl start docker`."
)


class DockerFacts(msgspec.Struct, frozen=True):
    """What a host has. `cli`: the engine's command; `memory` in bytes; `directory`: of the engine's
    images and roots; `driver`: by which it stacks them; `limits_roots`: whether that has a place
    for what a container writes, as `overlay` has; `violation`: why its containers would not be
    isolated, "" where they are, and `hint`: how to change that.
    """

    socket: str
    cli: str
    cpus: int
    memory: int
    name: str
    directory: str
    driver: str
    limits_roots: bool
    overlay: str
    violation: str
    hint: str
    lacks: tuple[str, ...]

    @property
    def unlimited_roots(self) -> str:
        """As `Capabilities` has it."""
        if self.limits_roots:
            return ""
        return f"the driver of its engine is {self.driver!r}, and not {self.overlay!r}"


class _Listed(msgspec.Struct, frozen=True):
    """Of what an engine lists: an image or a container."""

    labels: dict[str, str] | None = msgspec.field(name="Labels", default=None)


_FACTS = msgspec.json.Decoder(DockerFacts)
_LISTED = msgspec.json.Decoder(list[_Listed])


@cache
def text_of(name: str) -> str:
    """The text of a program of this package that is one module."""
    return resources.files(PACKAGE).joinpath(f"{name}.py").read_text()


@cache
def program() -> str:
    """The text of the program that is several: it has them where imports look first."""
    files = resources.files(f"{PACKAGE}.program")
    texts = {
        f"{PACKAGE}.program.{name}": files.joinpath(f"{name}.py").read_text() for name in MODULES
    }
    return LOAD.replace("@texts@", repr(texts))


def _python(text: str, *words: str) -> list[str]:
    return ["sh", "-c", RUN_PYTHON, text, *words]


class DockerHost(ContainerHost):
    """Runs the program there. `socket`: the engine's, "" for where engines listen."""

    def __init__(self, name: str, runner: Runner, root: str, socket: str) -> None:
        self._socket = socket
        query = urlencode({"all": "1", "filters": f'{{"label":["{LABEL}={root}"]}}'})
        super().__init__(name, runner, root, _python(text_of("observation"), root, socket, query))
        self._facts: DockerFacts | None = None
        self._asking = asyncio.Lock()

    def words(self, command: str, *words: str) -> list[str]:
        """The command line of a command of the program."""
        return _python(program(), self._socket, command, *words)

    def parsed(self, text: str) -> Seen:
        """With the images and roots that the engine lists, by the paths of their records, and the
        files of other volumes.
        """
        lines = [line for line in StringIO(text) if line.startswith("listed ")]
        try:
            found = [
                (each.labels or {}).get(f"{LABEL}.path", "")
                for line in lines
                for each in _LISTED.decode(line.split(" ", 2)[2])
            ]
        except (msgspec.MsgspecError, IndexError, RecursionError) as error:
            what = "what it has is not in its engine's answer as Docker's API has it"
            raise ProviderError(f"host {self.name}: {what}") from error
        seen = super().parsed(text)
        data = {
            path: size
            for path, size in seen.sizes.items()
            if (each := seen.records.get(f"{path}.json")) and each.volume and not each.volume.image
        }
        return replace(seen, sizes={**data, **dict.fromkeys(found, 1)})

    async def ask(
        self,
        command: str,
        *words: str,
        stdin: bytes | None = None,
        check: bool = True,
        looks: bool = False,
    ) -> Finished:
        """Raises `ProviderError` with what it said where it fails. `looks`: it changes nothing."""
        return await self.run(self.words(command, *words), stdin=stdin, check=check, looks=looks)

    async def facts(self, *, again: bool = False) -> DockerFacts:
        """Asked once, as long as nothing is missing. `again`: the engine may not run any more."""
        async with self._asking:
            if again or self._facts is None or violations(self.name, self._facts) is not None:
                done = await self.ask("facts", check=False, looks=True)
                if done.status != 0:
                    raise ProviderError(f"host {self.name}: {said_by(done)}", hint=INSTALL)
                try:
                    self._facts = _FACTS.decode(printed_by(done))
                except (msgspec.MsgspecError, RecursionError) as error:
                    what = "what its engine says of itself is not as Docker's API has it"
                    raise ProviderError(f"host {self.name}: {what}") from error
            return self._facts

    async def check(self) -> None:
        """Raises `ProviderError` where the engine cannot make system containers."""
        why = violations(self.name, await self.facts(again=True))
        if why is not None:
            raise why


def violations(name: str, facts: DockerFacts) -> ProviderError | None:
    """Why a host makes no containers, None where it does."""
    if facts.lacks:
        what = facts.lacks[0]
        return MissingTool(
            f"host {name} has no {what}, which containers need",
            hint="Install the packages iproute2, util-linux and e2fsprogs there.",
        )
    if facts.violation:
        return ProviderError(f"host {name} {facts.violation}", hint=facts.hint)
    return None
