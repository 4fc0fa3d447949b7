"""What the program needs of an engine, whichever that is: how a container is created, prepared,
begun, seen and ended. Both engines have Docker's API, and each has a way of its own to have a
container's namespaces before anything of its image runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple, TypedDict

from nospoon.providers.docker.program.wire import EngineError, Wire

IDS = 65_536
"""Users of a container: Debian's and Fedora's highest is 65534."""
INIT = "/sbin/init"
ADDED = ("SYS_ADMIN", "SYS_BOOT", "SYS_PTRACE", "NET_ADMIN", "NET_RAW", "AUDIT_WRITE", "MKNOD")
"""Capabilities besides the engine's, in the container's own user namespace: systemd mounts and
reboots, networkd sets addresses.
"""


class Info(TypedDict, total=False):
    """What is read of what an engine says of itself. `MemTotal` in bytes."""

    DockerRootDir: str
    Driver: str
    MemTotal: int
    SecurityOptions: list[str] | None


class ContainerState(TypedDict):
    StartedAt: str
    Status: str
    Pid: int
    ExitCode: int


class Labeled(TypedDict):
    Labels: dict[str, str] | None


class Layers(TypedDict, total=False):
    """Directories: of what a container writes, and of what it does not, joined by colons."""

    UpperDir: str
    LowerDir: str


class GraphDriver(TypedDict):
    Name: str
    Data: Layers | None


class Container(TypedDict):
    """What is read of an engine's `inspect`."""

    Id: str
    State: ContainerState
    Config: Labeled
    GraphDriver: GraphDriver | None


class Limits(NamedTuple):
    """Of a container. `cpus`: CPU time of so many; `memory`: bytes, without swap."""

    cpus: int
    memory: int
    pids: int


class Engine(Wire, ABC):
    """`cli`: its command. `ended`: states of a container that has no process. `overlay`: name of
    the driver that has a directory of what a container writes. `changes`: to an image that it
    reads. `covers`: files of an image in whose place it makes empty ones.
    """

    cli: ClassVar[str]
    ended: ClassVar[tuple[str, ...]]
    overlay: ClassVar[str]
    changes: ClassVar[tuple[str, ...]]
    covers: ClassVar[tuple[str, ...]] = ()
    inspected: ClassVar[str] = "/containers/{}/json"
    imports: ClassVar[str] = "/images/create"

    def import_query(self, name: str) -> list[tuple[str, str]]:
        """Of `imports`, for an image of that name."""
        return [("fromSrc", "-"), ("repo", name)]

    def container(self, name: str) -> Container | None:
        """What it says of one, None where it is not there."""
        try:
            found: Container = self.get(self.inspected.format(name))
        except EngineError as error:
            if error.status == 404:
                return None
            raise
        return found

    @abstractmethod
    def violation(self, info: Info) -> tuple[str, str]:
        """Why its containers would not be isolated, and how to change that; ("", "") where they
        are. `info`: what it says of itself.
        """

    @abstractmethod
    def create(
        self, name: str, image: str, host: str, labels: dict[str, str], *, new_privileges: bool
    ) -> None:
        """One that has its root from then on. `host`: its name within."""

    @abstractmethod
    def prepare(self, name: str, limits: Limits) -> int:
        """Process that has the container's namespaces, control groups and limits, and in which
        nothing of its image has run. Raises `EngineError`.
        """

    @abstractmethod
    def begin(self, name: str, pid: int) -> None:
        """That process becomes the container's init."""

    @abstractmethod
    def end(self, name: str) -> None:
        """At once. It may end a moment later."""

    def missed_end(self, name: str) -> bool:
        """Whether its last run ended while the engine was away, so that the console of the next one
        is lost, and only that of the one after it works.
        """
        del name
        return False

    def pid(self, name: str) -> int:
        """Raises `EngineError` where it has none."""
        found = self.container(name)
        pid = int(found["State"]["Pid"]) if found is not None else 0
        if not pid:
            raise EngineError("the engine has made no process of it")
        return pid


def container_of(image: str, host: str, labels: dict[str, str]) -> dict[str, object]:
    """What is asked of each engine, but for its `HostConfig`."""
    return {
        "Image": image,
        "Cmd": [INIT],
        "Hostname": host,
        "Tty": True,
        "OpenStdin": True,
        "StopSignal": "SIGRTMIN+3",
        "Env": ["container=docker"],
        "Labels": labels,
    }
