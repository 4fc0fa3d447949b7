"""What distributions have: the source all that is needed to run its tests, and the extras."""

from __future__ import annotations

import re
import subprocess
import tomllib
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


def test_messages_and_pages_name_extras_that_there_are() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    named = {
        (extra, path.name)
        for path in texts
        for extras in re.findall(r"(?:nospoon|\.whl|'\.)\[([\w,]+)\]", path.read_text())
        for extra in extras.split(",")
    }
    assert {extra for extra, _ in named} >= {"libvirt", "ironic", "postgresql"}
    assert not [each for each in named if each[0] not in project["optional-dependencies"]]
