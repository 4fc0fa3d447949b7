"""The keeper of a container: when it begins, and what fails while it starts one again."""

from __future__ import annotations

import errno
import os
import socket
import time
from pathlib import Path

import pytest

from nospoon.providers.docker.program import running
from nospoon.providers.docker.program.engines import Container, Info, Limits
from nospoon.providers.docker.program.moby import DockerEngine
from nospoon.providers.docker.program.processes import content, write
from nospoon.providers.docker.program.running import REBOOTED, Start, keep
from nospoon.providers.docker.program.wire import EngineError


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


class EndsTheNextRun(FullDisk):
    """An engine that has been away: twice it ends what begins, as if that were the run before."""

    def __init__(self) -> None:
        super().__init__("/engine.sock")
        self.states: list[str] = []

    def prepare(self, name: str, limits: Limits) -> int:
        self.states.append(self.state)
        if len(self.states) > 2:
            return super().prepare(name, limits)
        self.state = "running"
        raise EngineError("its first process ended: it does not wait")


def settings_of(place: Path) -> Start:
    return {
        "container": "pool.m-0", "volume": str(place / "m-0.volume"), "cpus": 1, "memory": 1,
        "record": str(place / "record"), "pids": 1, "put_seed": "", "attach": "", "volumes": [],
        "nics": [],
    }  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_keeper_begins_when_its_number_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It removes it where the container has ended by then, as one does whose init ends at once."""
    pid, seen = tmp_path / "pid", tmp_path / "seen"

    def late(path: Path, text: str) -> None:
        time.sleep(0.2)
        write(path, text)

    monkeypatch.setattr(running, "write", late)
    monkeypatch.setattr(running, "keep", lambda *_: seen.write_bytes(content(pid)))
    console, other = socket.socketpair()
    with console, other:
        given = settings_of(tmp_path)
        running.leave_keeper(DockerEngine("/engine.sock"), tmp_path, given, console)
    os.waitpid(int(pid.read_text()), 0)
    assert seen.read_text() == pid.read_text()


def test_a_reboot_that_fails_on_a_full_disk_ends_the_container(tmp_path: Path) -> None:
    given = settings_of(tmp_path)
    (tmp_path / "live.json").write_text("")
    engine, (console, other) = FullDisk("/engine.sock"), socket.socketpair()
    other.close()
    keep(engine, tmp_path, given, console)
    assert engine.state == "exited"
    assert not (tmp_path / "live.json").exists()
    assert "No space left on device" in (tmp_path / "log").read_text()


def test_a_reboot_is_tried_again_where_the_engine_ends_what_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "AGAIN", (0.0, 0.0, 0.0))
    given = settings_of(tmp_path)
    engine, (console, other) = EndsTheNextRun(), socket.socketpair()
    other.close()
    keep(engine, tmp_path, given, console)
    assert engine.states == ["exited"] * 3, "what began is ended before the next try"
    assert "No space left on device" in (tmp_path / "log").read_text(), "the third one's"
