"""scripts/setup and scripts/demo, as far as they run without installing or starting anything."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FUNCTIONS = 'set -euo pipefail; purpose=run; as_root() { "$@"; }; '


def test_setup_waits_for_another_apt(tmp_path: Path) -> None:
    """One that runs at the same time holds apt's locks for minutes, and apt-get(8) gives up."""
    tools = {"dpkg-query": "exit 1", "apt-get": f'echo "$*" >>{tmp_path}/calls'}
    for name, does in tools.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    script = (ROOT / "scripts/setup").read_text()
    begin, end = script.index("install_packages() {"), script.index("make_environment() {")
    path = f"{tmp_path}:{os.environ['PATH']}"
    subprocess.run(
        ["bash", "-c", f"{FUNCTIONS}{script[begin:end]}install_packages"],
        cwd=ROOT, env={**os.environ, "PATH": path}, check=True, capture_output=True,
    )  # fmt: skip
    update, install = (tmp_path / "calls").read_text().splitlines()
    assert update == "-o DPkg::Lock::Timeout=300 update -q"
    assert install.startswith("-o DPkg::Lock::Timeout=300 install -q -y ")


def test_setup_asks_for_no_password_where_sudo_needs_none(tmp_path: Path) -> None:
    """`sudo -v` asks unless all rules of the user are NOPASSWD (verifypw in sudoers(5)). Users of
    cloud images have such a rule and no password, but are in group `sudo` as well, which has none.
    """
    tools = {"id": "echo 1000", "sudo": '[ "$1" = -v ] && exit 1; [ "$1" = -n ] && shift; "$@"'}
    for name, does in tools.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    script = (ROOT / "scripts/setup").read_text()
    begin, end = script.index("as_root() {"), script.index("install_packages() {")
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", f"set -euo pipefail; {script[begin:end]}as_root echo done"],
        env={**os.environ, "PATH": path}, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_the_demo_keeps_its_settings_under_sudo(tmp_path: Path) -> None:
    """As `NOSPOON_BOOT_PORT=18069 make demo`, which the daemon's own error advises."""
    tools = {"id": "echo 1000", "sudo": 'printf "%s\\n" "$@"'}
    for name, does in tools.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    script = tmp_path / "scripts/demo"
    script.parent.mkdir()
    script.write_text((ROOT / "scripts/demo").read_text())
    (tmp_path / ".venv/bin").mkdir(parents=True)
    for name in tools:
        (tmp_path / ".venv/bin" / name).symlink_to(tmp_path / name)
    given = {"NOSPOON_BOOT_PORT": "18069", "NOSPOON_POOL_DIR": "/srv/my pools"}
    done = subprocess.run(
        ["bash", str(script)],
        env={**os.environ, **given}, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert {"NOSPOON_BOOT_PORT=18069", "NOSPOON_POOL_DIR=/srv/my pools"} <= {
        *done.stdout.splitlines()
    }, done.stdout + done.stderr


@pytest.mark.parametrize("power", ["off", "on"])
def test_the_demo_ends_where_a_node_stays_as_it_is(tmp_path: Path, power: str) -> None:
    """An accepted power-on may fail later, such as in a container without writable cgroups; and
    `verify` refused a node that was not off yet.
    """
    stays = f'echo "Chassis Power is {power}"'
    row = "echo node-0 127.0.0.1:6230 admin x"
    tools = {
        "id": "echo 0", "ipmitool": stays, "sleep": "", "cat": "",
        "nospoon": f'case "$1" in bmc) {row};; status) echo "node-0 why it failed";; esac',
    }  # fmt: skip
    script = tmp_path / "scripts/demo"
    script.parent.mkdir()
    script.write_text((ROOT / "scripts/demo").read_text())
    (tmp_path / ".venv/bin").mkdir(parents=True)
    for name, does in tools.items():
        (tmp_path / ".venv/bin" / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / ".venv/bin" / name).chmod(0o755)
    done = subprocess.run(
        ["bash", str(script)], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert f"node-0 is {power} after a minute" in done.stderr
    assert "why it failed" in done.stderr
    assert "\033" not in done.stdout, "colours are for terminals"
