"""Containers that the version before started: their settings name no file of their root."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nospoon.providers.docker.program import running
from nospoon.providers.docker.program.engines import Container, ContainerState
from nospoon.providers.docker.program.podman import Podman


class Ended(Podman):
    """Has one container, which has no process any more."""

    def container(self, name: str) -> Container | None:
        del name
        state = ContainerState(StartedAt="", Status="exited", Pid=0, ExitCode=0)
        return Container(Id="1", State=state, Config={"Labels": {}}, GraphDriver=None)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """The directory of one, as the version before left it."""
    directory = tmp_path / "a.pool" / "machine"
    directory.mkdir(parents=True)
    given = {
        "container": "a.pool.root-1", "record": "/c", "cpus": 1, "memory": 1, "pids": 1,
        "put_seed": "", "nics": [],
    }  # fmt: skip
    (directory / "start.json").write_text(json.dumps(given))
    for name in ("live.json", "init", "pid"):
        (directory / name).touch()
    return directory


def test_one_that_an_earlier_version_started_is_ended(machine: Path) -> None:
    """Each start ends first what one before has left."""
    running.kill(Ended("/none"), str(machine))
    assert sorted(each.name for each in machine.iterdir()) == ["lock", "start.json"]


def test_its_root_is_where_it_would_be_now(machine: Path) -> None:
    assert running.settings(machine)["volume"] == str(machine.parent / "root-1.volume")
