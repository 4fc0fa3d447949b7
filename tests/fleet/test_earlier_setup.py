"""A host that an earlier version set up is put back, too."""

from __future__ import annotations

import json
import os
import subprocess
from importlib import resources
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
TASKS = "ansible_collections/nospoon/host/roles/undo/tasks/earlier.yml"
RECORD = {"connections": "262144", "inotify": "128", "neighbors": "ipv4 512 1024"}
"""By name of its file, what that version wrote down."""
MADE = (
    "/etc/modules-load.d/nospoon-connections.conf",
    "/etc/sysctl.d/90-nospoon-connections.conf",
    "/etc/sysctl.d/90-nospoon-inotify.conf",
    "/etc/sysctl.d/90-nospoon-neighbors.conf",
)
LIMITS = {
    "/proc/sys/fs/inotify/max_user_instances": "128",
    "/proc/sys/net/ipv4/neigh/default/gc_thresh2": "512",
    "/proc/sys/net/ipv4/neigh/default/gc_thresh3": "1024",
    "/proc/sys/net/netfilter/nf_conntrack_max": "262144",
}
UNDO = """
for each in /etc/modules-load.d /etc/sysctl.d /proc/sys/fs/inotify /proc/sys/net; do
  mount -t tmpfs tmpfs $each
done
mkdir -p /proc/sys/net/ipv4/neigh/default /proc/sys/net/netfilter
"""


def test_limits_that_an_earlier_version_raised_are_put_back(tmp_path: Path) -> None:
    """Files stand for the limits, in a namespace of mounts of its own."""
    tasks = str(resources.files("nospoon").joinpath(TASKS))
    play = {
        "hosts": "localhost", "connection": "local", "gather_facts": False,
        "vars": {"nospoon_changed": RECORD},
        "tasks": [{"ansible.builtin.include_tasks": tasks}],
    }  # fmt: skip
    playbook = tmp_path / "play.json"
    playbook.write_text(json.dumps([play]))
    script = "\n".join([
        "set -e", UNDO,
        *(f"echo raised >{each}" for each in (*MADE, *LIMITS)),
        f"ansible-playbook -i localhost, {playbook} >&2",
        f"cat {' '.join(LIMITS)}",
        "ls /etc/modules-load.d /etc/sysctl.d",
    ])  # fmt: skip
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = done.stdout.split()
    assert said == [*LIMITS.values(), "/etc/modules-load.d:", "/etc/sysctl.d:"]
