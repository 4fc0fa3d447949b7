"""The units of the daemon under a real systemd, in a container with the files of this checkout."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.docker.conftest import end_all

import nospoon
from nospoon.testing.container_root import debian_root
from nospoon.testing.ironic import until
from nospoon.testing.rack import CACHE
from nospoon.testing.trees import remove_tree

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

SOURCES = Path(nospoon.__file__).parents[1]
CLUSTER = "cluster: c\nhosts: {here: simulated}\nnodes: [{}]\n"
SERVICE = "nospoond.service"
WORLD = "/var/lib/nospoon/simulated/here.json"
"""The simulated host is kept there once a second."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A container whose init is systemd. `podman`: the command with its storage."""

    podman: tuple[str, ...]
    name: str = "machine"

    def run(self, *argv: str, status: int = 0) -> str:
        enter = (*self.podman, "exec", "--env", f"PYTHONPATH={SOURCES}", self.name)
        done = subprocess.run([*enter, *argv], capture_output=True, text=True, check=False)
        assert done.returncode == status, f"{argv}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def nospoon(self, *argv: str, status: int = 0) -> str:
        return self.run(sys.executable, "-m", "nospoon.cli.main", *argv, status=status)

    def reboot(self) -> None:
        subprocess.run(
            [*self.podman, "restart", "--time", "60", self.name], check=True, capture_output=True
        )
        self.wait_for_init()

    def wait_for_init(self) -> None:
        state = "systemctl is-system-running || true"
        until(lambda: self.run("sh", "-c", state).strip() in ("running", "degraded"))

    def main_pid(self) -> int:
        """0 while the service does not run."""
        return int(self.run("systemctl", "show", "--property=MainPID", "--value", SERVICE))

    def power(self) -> str:
        found: list[dict[str, Any]] = json.loads(self.nospoon("node", "list", "-f", "json"))
        return str(found[0]["power"])


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    if os.geteuid() != 0 or shutil.which("podman") is None or shutil.which("runc") is None:
        pytest.skip("needs root, Podman and runc")
    place = Path(tempfile.mkdtemp(prefix="nospoon-units-"))
    podman = (
        "podman", "--runtime", "runc", "--root", f"{place}/store", "--runroot", f"{place}/run",
        "--tmpdir", f"{place}/tmp", "--cgroup-manager", "cgroupfs", "--events-backend", "file",
    )  # fmt: skip
    root = place / "root"
    (root / "dev").mkdir(parents=True)
    archive = asyncio.run(debian_root(CACHE))
    subprocess.run(["tar", "--extract", "--file", archive, "--directory", root], check=True)
    (root / "root/c.yaml").write_text(CLUSTER)
    (root / "etc/default/nospoon").write_text(f"PYTHONPATH={SOURCES}\n")
    places = {str(SOURCES), sys.prefix, sys.base_prefix}
    mounts = [word for each in places for word in ("--volume", f"{each}:{each}:ro")]
    limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096"]
    made = Machine(podman)
    subprocess.run(
        [*podman, "run", "--detach", "--name", made.name, "--network", "none", *limits, *mounts,
         "--systemd", "always", "--rootfs", str(root), "/sbin/init"],
        check=True, capture_output=True, cwd=place,
    )  # fmt: skip
    try:
        made.wait_for_init()
        yield made
    finally:
        subprocess.run([*podman, "rm", "-af", "-t", "0"], capture_output=True, check=False)
        end_all(place)
        subprocess.run(["umount", f"{place}/store/overlay"], capture_output=True, check=False)
        remove_tree(place)


def test_the_daemon_is_a_service_that_outlives_a_crash_and_a_reboot(machine: Machine) -> None:
    machine.nospoon("daemon", "install")
    first = machine.main_pid()
    assert f'"pid": {first}' in machine.nospoon("daemon", "status", "-f", "json")
    machine.nospoon("up", "--yes", "/root/c.yaml")
    machine.nospoon("node", "power", "node-0", "on")
    until(lambda: '"power":"on"' in machine.run("sh", "-c", f"cat {WORLD} || true"))

    machine.run("kill", "-KILL", str(first))
    assert machine.power() == "on", "the socket had the command wait for it"
    assert machine.main_pid() not in (0, first)

    machine.reboot()
    assert machine.power() == "on", "it was on before: `restore: previous`"
    assert machine.run("systemctl", "is-active", SERVICE).strip() == "active"

    machine.run("systemctl", "stop", SERVICE)
    assert machine.main_pid() == 0
    assert machine.power() == "on", "the socket starts it"
    assert machine.main_pid() != 0

    machine.nospoon("daemon", "stop")
    assert machine.main_pid() == 0
    machine.nospoon("daemon", "uninstall")
    units = machine.run("systemctl", "list-unit-files", "nospoond.*", status=1)
    assert "0 unit files" in units


def test_a_daemon_that_stands_still_is_started_again(machine: Machine) -> None:
    machine.nospoon("daemon", "install")
    setting = "/etc/systemd/system/nospoond.service.d"
    machine.run("mkdir", setting)
    machine.run("sh", "-c", f"printf '[Service]\\nWatchdogSec=2\\n' >{setting}/soon.conf")
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "restart", SERVICE)
    first = machine.main_pid()
    machine.run("kill", "-STOP", str(first))
    until(lambda: machine.main_pid() not in (0, first))
    journal = machine.run("journalctl", "--unit", SERVICE, "--no-pager")
    assert "Watchdog timeout" in journal
