"""Volumes of data in containers of an engine, each of which has ids of its own."""

from __future__ import annotations

import subprocess

import pytest
from tests.docker.test_machines import directory_of, number
from tests.lxc.test_volumes import Run, VolumePromises

from nospoon.testing.racks import Bench

pytestmark = pytest.mark.docker


class TestDocker(VolumePromises):
    @pytest.fixture
    def run(self, bench: Bench) -> Run:
        def run(*argv: str) -> str:
            init = str(number(directory_of(bench) / "init"))
            command = ["nsenter", "-t", init, "-U", "-m", "-p", "/bin/busybox", *argv]
            return subprocess.run(command, check=True, capture_output=True, text=True).stdout

        return run
