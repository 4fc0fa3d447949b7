"""Podman's service and Docker Engine on sockets of their own, and containers of busybox on them.

Each has its own storage, so that nothing of the machine's is touched. Its containers end with it,
and so do their mounts.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from tests.lxc.conftest import image_of, no_stranger, not_removed

from nospoon.model.cluster import Host
from nospoon.model.connections import Docker
from nospoon.providers.docker import DockerConnection
from nospoon.providers.docker.host import DockerFacts
from nospoon.runtime.runner import LocalRunner
from nospoon.testing.container_root import busybox_root
from nospoon.testing.racks import Bench, open_seed, remove_all
from nospoon.testing.trees import control_groups, remove_tree

PLACE = "here:docker"
REMAPPED = "dockremap"
"""The user whose ids containers of Docker Engine get."""


both_engines = pytest.mark.parametrize(
    "engine", ["podman", "docker"], indirect=True, scope="session"
)
docker_engine = pytest.mark.parametrize("engine", ["docker"], indirect=True, scope="session")
"""Of a test that has an `engine`: with each, or Docker's alone; Podman's alone without."""


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> Iterator[Path]:
    """The socket of a service."""
    which = {"podman": Service, "docker": DockerService}[getattr(request, "param", "podman")]
    with closing(which()) as made:
        yield made.socket


@contextlib.contextmanager
def service_of(*options: str) -> Iterator[Path]:
    """A service with these options of Podman's, and its socket."""
    with closing(Service(*options)) as made:
        yield made.socket


class Service:
    """Podman's, with storage of its own, and these options. `enter`: what runs it elsewhere."""

    def __init__(self, *options: str, enter: Sequence[str] = ()) -> None:
        if os.geteuid() != 0 or shutil.which("podman") is None or shutil.which("runc") is None:
            pytest.skip("needs root, Podman and runc")
        self.directory = Path(tempfile.mkdtemp(prefix="nospoon-podman-"))
        self.socket = self.directory / "podman.sock"
        (self.directory / "temporary").mkdir()
        self._podman = [
            *enter, "podman", "--runtime", "runc", "--root", str(self.directory / "root"),
            "--runroot", str(self.directory / "run"), "--tmpdir", str(self.directory / "tmp"),
            "--cgroup-manager", "cgroupfs", "--events-backend", "file", *options,
        ]  # fmt: skip
        self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        self.socket.unlink(missing_ok=True)
        with (self.directory / "log").open("w") as log:
            process = subprocess.Popen(
                [*self._podman, "system", "service", "--time=0", f"unix://{self.socket}"],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "TMPDIR": str(self.directory / "temporary")},
                cwd=self.directory,  # conmon writes a file `oom` there
            )
        until = time.monotonic() + 60
        while not self.socket.exists() and time.monotonic() < until:
            time.sleep(0.05)
        assert self.socket.exists(), (self.directory / "log").read_text()
        return process

    def reboot(self, place: Path, *processes: int) -> None:
        """That of its host: what runs ends, and with it mounts, also those of nospoon's at `place`,
        and what is in memory.
        """
        listed = [*self._podman, "ps", "-aq", "--no-trunc"]
        done = subprocess.run(listed, capture_output=True, text=True, check=True)
        self._process.kill()
        self._process.wait()
        for each in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        end_all(self.directory)
        for container in done.stdout.split():
            argv = ["runc", "delete", "--force", container]
            subprocess.run(argv, capture_output=True, check=True)
        for mounted in (*mounts_below(self.directory), *mounts_below(place)):
            subprocess.run(["umount", mounted], check=True)
        for name in ("run", "tmp"):
            remove_tree(self.directory / name)
        self._process = self._started()

    def close(self) -> None:
        subprocess.run([*self._podman, "rm", "-af", "-t", "0"], capture_output=True, check=False)
        self._process.terminate()
        self._process.wait(timeout=60)
        end_all(self.directory)
        overlay = str(self.directory / "root" / "overlay")
        subprocess.run(["umount", overlay], capture_output=True, check=False)
        remove_tree(self.directory)


class DockerService:
    """Docker Engine, with storage and ids of its own, and these options."""

    def __init__(self, *options: str) -> None:
        if os.geteuid() != 0 or shutil.which("dockerd") is None:
            pytest.skip("needs root and dockerd")
        if not Path("/etc/subuid").read_text().count(f"{REMAPPED}:"):
            pytest.skip(f"needs ids of {REMAPPED} in /etc/subuid")
        self.directory = Path(tempfile.mkdtemp(prefix="nospoon-docker-"))
        self.directory.chmod(0o711)  # containers' root passes through it
        self.socket = self.directory / "docker.sock"
        self._group = f"/{self.directory.name}"
        self._words = [
            "dockerd", "--host", f"unix://{self.socket}", "--data-root", f"{self.directory}/data",
            "--exec-root", f"{self.directory}/exec", "--pidfile", f"{self.directory}/pid",
            "--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false",
            "--exec-opt", "native.cgroupdriver=cgroupfs", "--cgroup-parent", self._group,
            "--init",  # a default that containers of nospoon do not take over
            *(options or ("--userns-remap", REMAPPED)),
        ]  # fmt: skip
        self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        with (self.directory / "log").open("w") as log:
            process = subprocess.Popen(self._words, stdout=log, stderr=subprocess.STDOUT)
        until = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < until:
            said = subprocess.run(
                [*cli_of(self.socket), "version"], capture_output=True, check=False
            )
            if said.returncode == 0:
                return process
            time.sleep(0.05)
        process.kill()
        raise AssertionError((self.directory / "log").read_text())

    def stop(self) -> None:
        """Containers go on where its options say so (`--live-restore`)."""
        self._process.terminate()
        self._process.wait(timeout=60)

    def start_again(self) -> None:
        if self._process.poll() is not None:
            self._process = self._started()

    def running(self) -> list[str]:
        listed = [*cli_of(self.socket), "ps", "-q"]
        done = subprocess.run(listed, capture_output=True, text=True, check=True)
        return done.stdout.split()

    def events(self) -> str:
        """Those that it has kept, a line each, since it began."""
        listed = [*cli_of(self.socket), "events", "--since=24h", "--until=0s"]
        done = subprocess.run(listed, capture_output=True, text=True, check=True)
        return done.stdout

    def close(self) -> None:
        docker = cli_of(self.socket)
        listed = subprocess.run([*docker, "ps", "-aq"], capture_output=True, text=True, check=True)
        if each := listed.stdout.split():
            subprocess.run([*docker, "rm", "-f", *each], capture_output=True, check=True)
        self._process.terminate()
        self._process.wait(timeout=60)
        end_all(self.directory)
        for mounted in mounts_below(self.directory):
            subprocess.run(["umount", mounted], check=True)
        for group in control_groups(self.directory.name):
            group.rmdir()
        remove_tree(self.directory)


def cli_of(engine: Path) -> list[str]:
    """The command of the engine at a socket."""
    if engine.name == "docker.sock":
        return ["docker", "--host", f"unix://{engine}"]
    return ["podman", "--remote", "--url", f"unix://{engine}"]


def mounts_below(directory: Path) -> list[str]:
    """The last ones first (proc_pid_mountinfo(5), 5)."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [
        place for line in reversed(lines) if (place := line.split()[4]).startswith(f"{directory}/")
    ]


def end_all(directory: Path) -> None:
    """What Podman left to clean up after commands in containers: it does so after five minutes, and
    mounts its storage for that. Returns when none is left: one that is killed writes for a moment
    more, and one that ends begins others.
    """
    until = time.monotonic() + 60
    while left := processes_with(directory):
        assert time.monotonic() < until, f"processes with {directory} do not end: {left}"
        for each in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        time.sleep(0.02)


def processes_with(directory: Path) -> list[int]:
    """Those whose command line names this directory; one that has ended has none (proc(5))."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if os.fsencode(directory) in each.read_bytes():
                found.append(int(each.parent.name))
    return found


@pytest.fixture
def place() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="nospoon-docker-"))
    (directory / "records").mkdir()
    yield directory
    remove_tree(directory)


@pytest.fixture
def images() -> dict[str, Path]:
    """sha256 -> path of the daemon's copy."""
    return {}


@pytest.fixture
async def connection(
    engine: Path, place: Path, images: dict[str, Path]
) -> AsyncIterator[DockerConnection]:
    async def open_image(sha256: str) -> str:
        return str(images[sha256])

    made = DockerConnection(
        Host(PLACE, Docker(str(engine))),
        "kit",
        LocalRunner(),
        open_image,
        root=str(place / "pools"),
        records=str(place / "records"),
        open_seed=open_seed,
    )
    await share_facts(made, engine)
    yield made
    await made.close()


def init_of(bench: Bench) -> int:
    """Process of the machine's init."""
    (directory,) = Path(bench.pool_root).glob("*/*-m0")
    return int((directory / "init").read_text().split()[0])


FACTS: dict[Path, DockerFacts] = {}
"""What an engine of this run has said of itself, for which Podman needs half a second."""


async def share_facts(connection: DockerConnection, engine: Path) -> None:
    """A connection asks once; `check` asks again."""
    if engine not in FACTS:
        FACTS[engine] = await connection._host.facts()
    know_facts(connection, engine)


def know_facts(connection: DockerConnection, engine: Path) -> None:
    """Of an engine of which another connection has asked."""
    connection._host._facts = FACTS[engine]


@pytest.fixture
async def bench(
    connection: DockerConnection, place: Path, images: dict[str, Path]
) -> AsyncIterator[Bench]:
    made = Bench(
        connection=connection,
        place=connection.host,
        deployment="kit",
        pool_root=str(place / "pools"),
        image=image_of(busybox_root(), place, images),
        make_stranger=no_stranger,
        remove_machine=not_removed,
    )
    yield made
    await remove_all(made)
