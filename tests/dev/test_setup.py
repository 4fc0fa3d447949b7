"""scripts/setup, as far as it can be run without installing anything."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

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
