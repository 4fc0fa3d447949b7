"""What the source distribution has: all that is needed to run its tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder

ROOT = Path(__file__).parents[2]


def test_the_source_distribution_has_what_make_test_needs() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this is a source distribution")
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, check=True, text=True
    )
    known = set(listed.stdout.split("\n")) - {""}
    packed = {each.distribution_path for each in SdistBuilder(str(ROOT)).recurse_included_files()}
    left_out = {path for path in known - packed if not path.startswith((".ci/", ".git"))}
    assert left_out <= {"devstack", "roles", "pyproject.toml"}, (
        "the last is always in; links into contrib/ for DevStack and Zuul"
    )
    assert {"tests/conftest.py", "Makefile", "scripts/setup", "requirements/test.txt"} <= packed
