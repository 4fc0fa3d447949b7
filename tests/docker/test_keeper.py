"""The keeper of a container, and what fails while it starts one again."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

from nospoon.providers.docker.program.engines import Container, Info, Limits
from nospoon.providers.docker.program.moby import DockerEngine
from nospoon.providers.docker.program.running import REBOOTED, Start, keep


class FullDisk(DockerEngine):
    """An engine whose container has rebooted, and on whose host nothing can be written."""

    state = "exited"

    def container(self, name: str) -> Container:
        del name
        state = {"Status": self.state, "Pid": 0, "ExitCode": REBOOTED}
        return {"State": state, "Config": {"Labels": None}, "GraphDriver": None}  # type: ignore[typeddict-item]

    def violation(self, info: Info) -> tuple[str, str]:
        raise AssertionError(info)

    def prepare(self, name: str, limits: Limits) -> int:
        del name, limits
        self.state = "running"
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def end(self, name: str) -> None:
        del name
        self.state = "exited"


def test_a_reboot_that_fails_on_a_full_disk_ends_the_container(tmp_path: Path) -> None:
    given: Start = {
        "container": "pool.m-0", "volume": str(tmp_path / "m-0.volume"), "cpus": 1, "memory": 1,
        "record": str(tmp_path / "record"), "pids": 1, "put_seed": "", "attach": "", "volumes": [],
        "nics": [],
    }  # fmt: skip
    (tmp_path / "live.json").write_text("")
    engine, (console, other) = FullDisk("/engine.sock"), socket.socketpair()
    other.close()
    keep(engine, tmp_path, given, console)
    assert engine.state == "exited"
    assert not (tmp_path / "live.json").exists()
    assert "No space left on device" in (tmp_path / "log").read_text()
