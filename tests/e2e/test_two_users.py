"""Root's daemon runs, and another user has one of their own beside it."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from nospoon.testing.rack import Rack, private_rack

STRANGER = pwd.getpwnam("nobody")
PYTHON = "/usr/bin/python3"
"""The one of a virtual environment may lie in a home directory."""
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
            "PYTHONPATH": ":".join(filter(None, sys.path)), "PYTHONDONTWRITEBYTECODE": "1",
        },
        text=True, capture_output=True, timeout=60, check=False, cwd="/",
    )  # fmt: skip


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_a_user_who_may_not_use_roots_daemon_gets_one_of_their_own() -> None:
    with private_rack(NOSPOON_BOOT_PORT="8069") as rack:
        rack.run("daemon", "start")
        home = rack.directory / "home"
        home.mkdir()
        os.chown(home, STRANGER.pw_uid, STRANGER.pw_gid)
        done = as_stranger(rack, home)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == ["None", str(home / "run/nospoon/nospoond.sock"), "[]"]
        assert "may not use this daemon. Starting a daemon of your own." in done.stderr
        port = int((home / ".local/state/nospoon/boot-port").read_text())
        assert port != 8069
