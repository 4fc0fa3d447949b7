"""Commands that tests fork are as those that a shell starts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from nospoon.testing import commands
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
