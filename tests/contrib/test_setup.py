"""What `make demo` and `make test` say where they cannot set the machine up."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def test_without_root_and_sudo_set_up_says_what_to_do_instead(tmp_path: Path) -> None:
    """Nothing is missing here but root: the first thing that needs it is refused."""
    for name, script in (
        ("id", "echo 1000"),
        ("sudo", "exit 1"),
        ("dpkg-query", "echo ok installed"),
    ):
        stub = tmp_path / name
        stub.write_text(f"#!/bin/sh\n{script}\n")
        stub.chmod(0o755)
    done = subprocess.run(
        ["bash", str(REPOSITORY / "scripts" / "setup"), "test"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        text=True, capture_output=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "This needs root: " in done.stderr
    assert "docs/howto/without-root.md" in done.stderr
