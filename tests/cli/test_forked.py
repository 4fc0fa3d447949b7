"""Commands and daemons that tests fork are as those that a shell or a command starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nospoon.cli import connect
from nospoon.model.rest.daemon import DaemonStatus
from nospoon.settings import READY
from nospoon.testing import commands, daemons, witness
from nospoon.testing.own_network import own_network
from nospoon.testing.rack import Rack

CONFIG = "node_types: {é: {}}\nspecs: [{type: é, count: 1}]\n"


@pytest.mark.parametrize(
    "argv",
    [
        ("--version",),
        ("schema",),
        ("up",),
        (),
        ("plna",),
        ("schema", "-o", "/dev/full"),
        ("import", "--from", "tenks", "/dev/stdin"),
        ("import", "--from", "tenks", "missing.yml"),
        ("daemon", "status"),
    ],
    ids=lambda argv: " ".join(argv) or "no arguments",
)
def test_a_forked_command_says_and_ends_as_one_that_is_started(
    tmp_path: Path, argv: tuple[str, ...]
) -> None:
    rack = Rack.at(tmp_path)
    assert commands.can_fork(rack.environment)
    forked = commands.run(argv, rack.environment, tmp_path, stdin=CONFIG, timeout=60)
    started = subprocess.run(
        ["nospoon", *argv], env=rack.environment, cwd=tmp_path, input=CONFIG, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert started.stdout + started.stderr
    assert forked.stdout == started.stdout
    assert forked.stderr == started.stderr
    assert forked.returncode == started.returncode


def test_a_program_that_would_start_otherwise_is_not_forked(tmp_path: Path) -> None:
    usual = Rack.at(tmp_path).environment
    assert not commands.can_fork({**usual, "PYTHONPATH": str(tmp_path)})
    assert not commands.can_fork({**usual, "LC_ALL": "C"})
    other = tmp_path / "nospoon"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    assert not commands.can_fork({**usual, "PATH": f"{tmp_path}:{usual['PATH']}"})


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_program_in_another_network_is_not_forked(tmp_path: Path) -> None:
    usual = Rack.at(tmp_path).environment
    with own_network():
        assert not commands.can_fork(usual)
    assert commands.can_fork(usual)


def test_a_forked_command_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    rack = Rack.at(tmp_path)
    os.mkfifo(tmp_path / "tenks.yml")
    with pytest.raises(subprocess.TimeoutExpired):
        commands.run(
            ["import", "--from", "tenks", "tenks.yml"], rack.environment, tmp_path, timeout=1
        )


Begin = Callable[[Sequence[str], int, int], connect.Begun]


def forked() -> Begin:
    return partial(daemons.begin, daemons.forking())


def begun(begin: Begin, module: str, log: Path) -> tuple[connect.Begun, str]:
    """A program, and what it says at its `--ready-fd`."""
    reader, writer = os.pipe()
    with log.open("ab") as opened, os.fdopen(reader) as ready:
        command = [sys.executable, "-P", "-m", module, "--ready-fd", str(writer)]
        process = begin(command, opened.fileno(), writer)
        os.close(writer)
        return process, ready.read()


def seen(begin: Begin, log: Path) -> dict[str, Any]:
    process, said = begun(begin, "nospoon.testing.witness", log)
    assert process.wait() == witness.STATUS
    found: dict[str, Any] = json.loads(said) | {"log": log.read_text()}
    log.unlink()
    return found


def test_a_forked_daemon_has_all_that_one_has_that_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork = forked()  # from a process that is started before what follows
    monkeypatch.chdir(tmp_path)
    for name, value in {"NOSPOON_MORE": "é", "LINES": "24", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)  # the last two: readline sets them behind os.environ
    monkeypatch.delenv("HOME")
    before = os.umask(0o037)
    try:
        first, second = (seen(fork, tmp_path / "log") for _ in range(2))
        started = seen(connect.begin, tmp_path / "log")
    finally:
        os.umask(before)
    assert len({each.pop("random") for each in (first, second, started)}) == 3
    assert started["environment"]["NOSPOON_MORE"] == "é"
    assert started["umask"] == 0o037
    assert set(started["descriptors"]) == {"0", "1", "2", first["argv"][-1]}
    assert first == second == started


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_forked_daemon_serves_and_ends_as_one_that_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    ends = []
    for name, begin in {"forked": forked(), "started": connect.begin}.items():
        rack = Rack.at(tmp_path / name)
        rack.log_file.parent.mkdir(mode=0o711, parents=True)
        for variable in ("NOSPOON_STATE_DIR", "NOSPOON_RUNTIME_DIR", "NOSPOON_POOL_DIR"):
            monkeypatch.setenv(variable, rack.environment[variable])
        monkeypatch.setenv("NOSPOON_BOOT_PORT", "0")
        process, said = begun(begin, "nospoon.daemon.main", rack.log_file)
        assert said.strip() == READY
        pid = rack.client.ask(DaemonStatus, "GET", "/v1/daemon").pid
        assert pid == rack.daemon_pid()
        os.kill(pid, number)
        status = process.wait()
        events = [json.loads(line)["event"] for line in rack.log().splitlines()]
        ends.append((status, events, sorted(each.name for each in rack.directory.rglob("*"))))
    assert ends[0] == ends[1]
    assert ends[0][0] == (-number if number == signal.SIGKILL else 0)


def test_a_forked_daemon_that_does_not_start_says_why_as_one_that_is_started(
    tmp_path: Path,
) -> None:
    said = []
    for forks in (True, False):
        rack = Rack.at(tmp_path, NOSPOON_DATABASE="nonsense://")
        rack.forks = forks
        said.append(rack.run("daemon", "start", status=1).stderr)
    assert "the daemon did not start" in said[0]
    assert said[0] == said[1]
