"""Docker Engine. Its API has no step between "created" and "running", so that a container begins
with a process that waits (`waiting`). Users of all containers are those of one range
(`userns-remap`).
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from nospoon.providers.docker.program import confinement, shown, waiting
from nospoon.providers.docker.program.engines import ADDED, INIT, Engine, Info, Limits, container_of
from nospoon.providers.docker.program.processes import content
from nospoon.providers.docker.program.roots import written_of
from nospoon.providers.docker.program.wire import EngineError

REMAP = (
    'Write {"userns-remap": "default"} into /etc/docker/daemon.json there, and run `systemctl '
    "restart docker`. Docker keeps images and containers that it has now apart, and shows them "
    "again when the setting is removed."
)
TEMPORARY = {
    "/run": "rw,exec,nosuid,nodev,mode=755",
    "/run/lock": "rw,noexec,nosuid,nodev,size=5m",
    "/tmp": "rw,exec,nosuid,nodev,mode=1777",  # noqa: S108  (the container's)
}
"""What systemd mounts itself, where AppArmor does not forbid that."""
SHOWN = ("/etc/resolv.conf", "/etc/hostname", "/etc/hosts")
"""Files of the engine's directory that it mounts over the container's own. It has empty ones for
them in a layer above the image's, too.
"""
NEVER = "0001-01-01T"
"""Of a time that never was (Go's time.Time)."""


class DockerEngine(Engine):
    """`dockerd`."""

    cli = "docker"
    detach = ",".join(["ctrl-_"] * 8)  # without any it takes its own two, which users type
    ended = ("created", "exited", "dead")
    overlay = "overlay2"
    changes = ('CMD ["/sbin/init"]',)
    covers = SHOWN

    def violation(self, info: Info) -> tuple[str, str]:
        if any(each.startswith("name=userns") for each in info.get("SecurityOptions") or ()):
            return "", ""
        why = (
            "has a Docker Engine without `userns-remap`: root in its containers is root of the host"
        )
        return why, REMAP

    def create(
        self, name: str, image: str, host: str, labels: dict[str, str], *, new_privileges: bool
    ) -> None:
        own = {
            "NetworkMode": "none",
            "CgroupnsMode": "private",
            "IpcMode": "private",
            "Init": False,  # also where the engine has another default (dockerd --init)
            "LogConfig": {"Type": "none"},
            "CapAdd": list(ADDED),
            "SecurityOpt": confinement.settings(new_privileges=new_privileges),
            "RestartPolicy": {"Name": "no"},
            "Tmpfs": TEMPORARY,
        }
        body = container_of(image, host, labels)
        body |= {"Cmd": [f"/{waiting.NAME}", INIT], "HostConfig": own}
        self.call("POST", "/containers/create", query={"name": name}, body=body)

    def prepare(self, name: str, limits: Limits) -> int:
        where = f"/containers/{name}"
        confinement.load()
        self.call("POST", f"{where}/update", body={
            "CpuPeriod": 100_000, "CpuQuota": limits.cpus * 100_000, "PidsLimit": limits.pids,
            "Memory": limits.memory, "MemorySwap": limits.memory,
        })  # fmt: skip
        written = written_of(self, name)
        if written is None:
            self.call("PUT", f"{where}/archive", query={"path": "/"}, stream=[waiting.packed()])
        else:
            waiting.put(written)
        self.call("POST", f"{where}/start")
        pid = self.pid(name)
        waiting.until_waits(pid)
        if content(Path(f"/proc/{pid}/uid_map")).split()[1:2] == [b"0"]:
            raise EngineError("the engine gave it no users of its own: root in it is the host's")
        shown.unmount(pid, SHOWN)
        return pid

    def missed_end(self, name: str) -> bool:
        """An engine that finds a container ended at its own start closes the pipe to its console,
        and makes no other before the end of another run (`restore` of daemon/daemon.go, and
        `handleContainerExit` of monitor.go, 20.10 to 28). Of the run in between, the console is
        hung up, and with SIGHUP an init that runc has not executed yet ends. What the engine has
        seen are its events since its start: the last 256 of all containers. An end may be among
        them that reached it while it started, so that the beginning of that run is looked for, too:
        a run too many costs a second.
        """
        found = self.container(name)
        if found is None or found["State"]["StartedAt"].startswith(NEVER):
            return False
        wanted = {"container": [found["Id"]], "event": ["start", "die"]}
        now = time.time()  # noqa: TID251  (runs on the host, by the clock of its engine)
        query = {"until": f"{now:.6f}", "filters": json.dumps(wanted)}
        seen = self.call("GET", "/events", query=query).splitlines()
        return [json.loads(each)["Action"] for each in seen[-2:]] != ["start", "die"]

    def begin(self, name: str, pid: int) -> None:
        del name
        waiting.begin(pid)

    def end(self, name: str) -> None:
        self.call("POST", f"/containers/{name}/kill", query={"signal": "KILL"})
