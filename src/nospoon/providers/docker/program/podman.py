"""Podman's service. Its own API has `init`: a container has its namespaces and control groups then,
and runs nothing yet.
"""

from __future__ import annotations

import resource
import time
from pathlib import Path

from nospoon.providers.docker.program import confinement, shown
from nospoon.providers.docker.program.engines import ADDED, IDS, Engine, Info, Limits, container_of
from nospoon.providers.docker.program.processes import content
from nospoon.providers.docker.program.wire import EngineError

LIBPOD = "/v4.0.0/libpod"
FILES = 65_536
"""Descriptors of a process, where the host lets it have as many."""
CLEANS_UP = 40.0
"""Seconds within which Podman has cleaned up after a run: as a process of its own, on a busy host.
A command has a minute, and is to say why it failed.
"""
SHOWN = ("/etc/resolv.conf", "/etc/hostname", "/etc/hosts", "/run/.containerenv", "/run/secrets")
"""Files of its directory, and secrets of a host of Red Hat's, that it mounts over the container's
own (containers-mounts.conf(5)).
"""
RESERVE = (
    "Reserve some there: `echo containers:2147483647:2147483648 | sudo tee -a /etc/subuid "
    "/etc/subgid`."
)


class Podman(Engine):
    """Each container has ids of its own."""

    cli = "podman"
    ended = ("created", "configured", "exited")
    overlay = "overlay"
    changes = ('CMD ["/sbin/init"]', "STOPSIGNAL SIGRTMIN+3")
    inspected = LIBPOD + "/containers/{}/json"
    imports = LIBPOD + "/images/import"
    """By Docker's API, Podman 4.3 leaves a copy of each image in /var/tmp."""

    def import_query(self, name: str) -> list[tuple[str, str]]:
        return [("reference", name)]

    def violation(self, info: Info) -> tuple[str, str]:
        del info
        for file in ("/etc/subuid", "/etc/subgid"):
            lines = content(Path(file)).decode().splitlines()
            if not any(line.startswith("containers:") for line in lines):
                return "reserves no ids for `containers` in /etc/subuid and /etc/subgid", RESERVE
        return "", ""

    def create(
        self, name: str, image: str, host: str, labels: dict[str, str], *, new_privileges: bool
    ) -> None:
        files = min(FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        own = {
            "NetworkMode": "none",
            "UsernsMode": f"auto:size={IDS}",
            "LogConfig": {"Type": "none"},
            "CapAdd": list(ADDED),
            "SecurityOpt": confinement.settings(new_privileges=new_privileges),
            "RestartPolicy": {"Name": "no"},
            "Ulimits": [
                {"Name": "nofile", "Soft": 1024, "Hard": files},
                {"Name": "nproc", "Soft": 4096, "Hard": 4096},
            ],
        }
        body = container_of(image, host, labels) | {"HostConfig": own}
        self.call("POST", "/containers/create", query={"name": name}, body=body)

    def prepare(self, name: str, limits: Limits) -> int:
        self._until_cleaned_up(name)
        confinement.load()
        self.call("POST", f"{LIBPOD}/containers/{name}/init")
        pid = self.pid(name)
        shown.unmount(pid, SHOWN)
        self._limit(name, limits, pid)
        return pid

    def _until_cleaned_up(self, name: str) -> None:
        """After each run conmon(8) starts a Podman that cleans up, and waits for it; the service,
        which was asked to stop the container, does the same at once, so that it has "exited" by
        then. What the late one finds prepared, it takes for what has run, and ends it.
        """
        found = self.get(self.inspected.format(name))
        pid, conmon = content(Path(found.get("ConmonPidFile", ""))).decode(), found["Id"].encode()
        until = time.monotonic() + CLEANS_UP
        while pid.isdigit() and conmon in content(Path(f"/proc/{pid}/cmdline")):
            if time.monotonic() > until:
                raise EngineError(f"conmon {pid} of the run before does not end")
            time.sleep(0.01)

    def _limit(self, name: str, limits: Limits, pid: int) -> None:
        """Version 1 counts what is swapped out with memory, where the kernel counts it at all;
        version 2 gives a container all the swap of its host, if it is not limited to none.
        """
        memory = {"limit": limits.memory}
        for line in content(Path(f"/proc/{pid}/cgroup")).decode().splitlines():
            number, _, path = line.split(":", 2)
            if number == "0" and Path(f"/sys/fs/cgroup{path}/memory.swap.max").exists():
                memory["swap"] = limits.memory  # of both together (config-linux.md of runtime-spec)
        body = {
            "cpu": {"quota": limits.cpus * 100_000, "period": 100_000},
            "memory": memory,
            "pids": {"limit": limits.pids},
        }
        self.call("POST", f"{LIBPOD}/containers/{name}/update", body=body)

    def begin(self, name: str, pid: int) -> None:
        del pid
        self.call("POST", f"/containers/{name}/start")

    def end(self, name: str) -> None:
        query = {"timeout": "0", "ignore": "true"}
        self.call("POST", f"{LIBPOD}/containers/{name}/stop", query=query)
