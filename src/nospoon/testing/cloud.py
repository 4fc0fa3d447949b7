"""A real OpenStack of one's own, as `nospoon dev cloud` brings it up, for tests."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from nospoon.testing.alone import alone
from nospoon.testing.rack import Rack
from nospoon.testing.trees import remove_tree

PORTS, PUBLIC = 7600, "172.24.5.0/24"
FULL = bool(os.environ.get("NOSPOON_OPENSTACK_FULL"))
"""With what `make test` does not take the time for."""
UP = (
    *("dev", "cloud", "up", "--port-base", str(PORTS), "--public", PUBLIC),
    *(["--cinder"] if FULL else []),
)
LINK = f"nscloud{PORTS}"
"""A bridge of the host."""
END = f"{LINK}p"
"""What links it with the cloud."""
INSIDE = {"br-int", "br-tun", "br-public", "br-racks"}
"""Interfaces of its Open vSwitch."""


@dataclass
class OwnCloud:
    """A cloud that runs. `told`: what `up` printed."""

    rack: Rack
    told: dict[str, Any]

    @property
    def first(self) -> int:
        """The pid of its first process, as the host has it."""
        pid = self.told["pid"]
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())

    def login(self, name: str = "nospoon-cloud") -> dict[str, Any]:
        """What clouds.yaml says of it."""
        clouds = yaml.safe_load(Path(self.told["clouds"]).read_text())
        return dict(clouds["clouds"][name])

    def pids(self, program: str) -> list[int]:
        """Processes of its namespace that run a program."""
        return [pid for pid in processes(self.first) if program in _read(f"/proc/{pid}/cmdline")]


def processes(first: int) -> list[int]:
    """All of the namespace whose first process this is."""
    return _in_namespace(str(Path(f"/proc/{first}/ns/pid").readlink()))


def _in_namespace(wanted: str) -> list[int]:
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            if str((each / "ns/pid").readlink()) == wanted:
                found.append(int(each.name))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


def _read(path: str) -> str:
    try:
        return Path(path).read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def interfaces() -> set[str]:
    return {each.name for each in Path("/sys/class/net").iterdir()}


@contextmanager
def own_cloud() -> Iterator[OwnCloud]:
    """It runs; afterwards nothing of it is left."""
    directory = Path(tempfile.mkdtemp(prefix="nospoon-cloud-"))
    rack = Rack.at(directory)
    with alone("cloud"):
        try:
            made = OwnCloud(rack, rack.json(*UP))
            namespace = str(Path(f"/proc/{made.first}/ns/pid").readlink())
            yield made
            rack.run("dev", "cloud", "down")
            assert not _in_namespace(namespace)
            assert not {LINK, END, *INSIDE} & interfaces()
            assert str(directory) not in Path("/proc/mounts").read_text()
            assert not (directory / "state/dev/cloud").exists()
            listed = subprocess.run(
                ["virsh", "-c", "qemu:///system", "list", "--all", "--name"],
                check=True, capture_output=True, text=True,
            ).stdout  # fmt: skip
            assert "instance-" not in listed
        finally:
            rack.run("dev", "cloud", "down")
            remove_tree(directory)
