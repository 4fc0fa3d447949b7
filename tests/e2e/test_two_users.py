"""Root's daemon runs, and another user has one of their own beside it."""

from __future__ import annotations

import os
import pwd
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from nospoon.testing.rack import Rack, private_rack

STRANGER = pwd.getpwnam("nobody")
PYTHON = "/usr/bin/python3"
"""The one of a virtual environment may lie in a home directory."""
LIBRARIES = [each for each in sys.path if each and not each.startswith(sys.base_prefix)]
"""Without the standard library, which is of another version of Python."""
ASK = """
import sys
from pathlib import Path
from nospoon.cli import connect
system = Path(sys.argv[1])
before = connect.running_client(system)
client = connect.client(system)
print(before, client.socket_path, client.get("/v1/clusters"))
client.post("/v1/daemon/stop")
"""


def as_stranger(rack: Rack, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["setpriv", f"--reuid={STRANGER.pw_uid}", f"--regid={STRANGER.pw_gid}", "--clear-groups",
         PYTHON, "-c", ASK, str(rack.directory / "runtime" / "nospoond.sock")],
        env={
            "HOME": str(home), "XDG_RUNTIME_DIR": str(home / "run"), "PATH": "/usr/bin:/bin",
            "PYTHONPATH": ":".join(LIBRARIES), "PYTHONDONTWRITEBYTECODE": "1",
        },
        text=True, capture_output=True, timeout=60, check=False, cwd="/",
    )  # fmt: skip


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_a_user_who_may_not_use_roots_daemon_gets_one_of_their_own() -> None:
    with socket.socket() as tried:  # a daemon of this machine may be there, as of `make demo`
        is_free = tried.connect_ex(("127.0.0.1", 8069)) != 0
    with private_rack(NOSPOON_BOOT_PORT="8069" if is_free else "0") as rack:
        rack.run("daemon", "start")
        home = rack.directory / "home"
        home.mkdir()
        os.chown(home, STRANGER.pw_uid, STRANGER.pw_gid)
        done = as_stranger(rack, home)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == ["None", str(home / "run/nospoon/nospoond.sock"), "[]"]
        assert (
            "Root's daemon runs here, and serves you only with sudo. "
            "Starting a daemon of your own." in " ".join(done.stderr.split())
        )
        port = int((home / ".local/state/nospoon/boot-port").read_text())
        assert port != 8069


def test_clusters_of_two_daemons_whose_files_name_no_redfish_port_are_both_up() -> None:
    text = "hosts: {here: simulated}\nnodes: [{count: 2}]\n"
    with private_rack() as one, private_rack() as other:
        ports = []
        for rack in (one, other):
            name = rack.name()
            bmc = re.sub(r"redfish_port: [0-9]+, ", "", rack.bmc())
            file = rack.file(f"cluster: {name}\n{bmc}{text}")
            rack.run("up", "--yes", file)
            rack.run("plan", "--detailed-exitcode", file)
            rack.run("daemon", "stop")
            rack.run("plan", "--detailed-exitcode", file)
            urls = {each["redfish"].split("/redfish/")[0] for each in rack.bmcs(name).values()}
            ports += [url.rsplit(":", 1)[1] for url in urls]
        assert len(ports) == len(set(ports)) == 2
