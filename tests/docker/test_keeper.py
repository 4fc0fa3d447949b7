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
from nospoon.providers.docker.program.moby import NEVER, DockerEngine
from nospoon.providers.docker.program.processes import began, content, write
from nospoon.providers.docker.program.running import REBOOTED, Start, keep
from nospoon.providers.docker.program.wire import EngineAway, EngineError


class FullDisk(DockerEngine):
    """An engine whose container has rebooted, and on whose host nothing can be written."""

    state = "exited"

    def container(self, name: str) -> Container:
        del name
        state = {"Status": self.state, "Pid": 0, "ExitCode": REBOOTED, "StartedAt": NEVER}
        return {"Id": "1", "State": state, "Config": {"Labels": None}, "GraphDriver": None}  # type: ignore[typeddict-item]

    def violation(self, info: Info) -> tuple[str, str]:
        raise AssertionError(info)

    def prepare(self, name: str, limits: Limits) -> int:
        del name, limits
        self.state = "running"
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def end(self, name: str) -> None:
        del name
        self.state = "exited"


class GoesAway(FullDisk):
    """An engine that is away for as many calls, with a guest that ends while its console is asked
    for again; what it prepares first ends with it, once more.
    """

    def __init__(self, init: Path) -> None:
        super().__init__("/engine.sock")
        self.init, self.away, self.states = init, 0, list[str]()

    def console(self, name: str) -> socket.socket:
        del name
        self.init.unlink()
        self.away = 1
        raise EngineAway("no engine answers")

    def container(self, name: str) -> Container:
        if self.away:
            self.away -= 1
            raise EngineAway("no engine answers")
        return super().container(name)

    def prepare(self, name: str, limits: Limits) -> int:
        self.states.append(self.state)
        if len(self.states) > 1:
            return super().prepare(name, limits)
        self.state, self.away = "running", 1
        raise EngineAway("the engine ended before it had answered")


class MissedAnEnd(FullDisk):
    """An engine that was away when its container ended: the next run has no console."""

    def __init__(self) -> None:
        super().__init__("/engine.sock")
        self.done: list[str] = []

    def missed_end(self, name: str) -> bool:
        del name
        return not self.done

    def prepare(self, name: str, limits: Limits) -> int:
        self.done.append("prepare")
        if len(self.done) > 1:
            return super().prepare(name, limits)
        raise EngineError("the engine has made no process of it")

    def end(self, name: str) -> None:
        super().end(name)
        self.done.append("end")


class Remembers(FullDisk):
    """An engine that has run its container, with these events of it since its own start."""

    def __init__(self, *events: str) -> None:
        super().__init__("/engine.sock")
        self.events = events

    def container(self, name: str) -> Container:
        found = super().container(name)
        found["State"]["StartedAt"] = "2026-11-29T07:53:02Z"
        return found

    def call(self, method: str, target: str, **_: object) -> bytes:
        assert (method, target) == ("GET", "/events")
        return "".join(f'{{"Action": "{each}"}}\n' for each in self.events).encode()


class LostRoot(FullDisk):
    """An engine that cannot start it, however often it is asked."""

    tried = 0

    def prepare(self, name: str, limits: Limits) -> int:
        del name, limits
        self.tried += 1
        raise EngineError("its root is gone")


def settings_of(place: Path) -> Start:
    return {
        "container": "pool.m-0", "volume": str(place / "m-0.volume"), "cpus": 1, "memory": 1,
        "record": str(place / "record"), "pids": 1, "put_seed": "", "attach": "", "volumes": [],
        "nics": [],
    }  # fmt: skip


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_keeper_begins_when_its_number_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It removes it where the container has ended by then, as one does whose init ends at once."""
    pid, seen = tmp_path / "pid", tmp_path / "seen"

    def late(path: Path, text: str) -> None:
        end = time.monotonic() + 60
        while state_of(int(text)) not in "SZ":  # it waits, or has ended without (proc(5))
            assert time.monotonic() < end
            time.sleep(0.001)
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


def test_a_guest_is_on_again_that_reboots_while_its_engine_is_away(tmp_path: Path) -> None:
    """Also one that does so just when its console is asked for, or whose engine goes away again."""
    given = settings_of(tmp_path)
    (tmp_path / "init").write_text(f"{os.getpid()} {began(os.getpid())}")
    engine, (console, other) = GoesAway(tmp_path / "init"), socket.socketpair()
    other.close()
    keep(engine, tmp_path, given, console)
    assert engine.states == ["exited"] * 2, "what began is ended before the next try"
    assert "No space left on device" in (tmp_path / "log").read_text(), "the second one's"


def test_a_run_without_a_console_ends_before_the_guest_begins(tmp_path: Path) -> None:
    engine, (console, other) = MissedAnEnd(), socket.socketpair()
    other.close()
    keep(engine, tmp_path, settings_of(tmp_path), console)
    assert engine.done[:3] == ["prepare", "end", "prepare"]


@pytest.mark.parametrize("events", [(), ("die",), ("start", "die", "start")])
def test_an_end_was_missed_where_the_beginning_of_its_run_was(events: tuple[str, ...]) -> None:
    """One that reached the engine while it started leaves the next run without a console, too."""
    assert Remembers(*events).missed_end("m")


@pytest.mark.parametrize("events", [("start", "die"), ("die", "start", "die")])
def test_an_end_was_seen_where_the_whole_run_was(events: tuple[str, ...]) -> None:
    assert not Remembers(*events).missed_end("m")


def test_a_reboot_that_would_fail_again_is_not_tried_again(tmp_path: Path) -> None:
    engine, (console, other) = LostRoot("/engine.sock"), socket.socketpair()
    other.close()
    keep(engine, tmp_path, settings_of(tmp_path), console)
    assert engine.tried == 1
    assert "its root is gone" in (tmp_path / "log").read_text()
