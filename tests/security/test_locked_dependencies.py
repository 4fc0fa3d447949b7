"""What is installed is what the lock files name, file by file (pip's --require-hashes)."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from nospoon.dev import environment

TOP = Path(__file__).parents[2]
LOCKS = (
    *sorted((TOP / "requirements").glob("*.txt")),
    *(TOP / "src/nospoon/dev" / name for name in ("agent.txt", "ironic.txt")),
    *sorted((TOP / "src/nospoon/dev/cloud").glob("*.txt")),
    TOP / "tests/ironic/ironic-snmp.txt",
    *sorted((TOP / "src/nospoon/dev/cloud").glob("*.txt")),
)
PINNED = re.compile(r"[\w.-]+==[\w.]+( ; [^\\]+)?( --hash=sha256:[0-9a-f]{64})+")


def requirements_of(lock: Path) -> list[str]:
    """A line a requirement, its hashes behind it."""
    joined = lock.read_text().replace("\\\n", " ")
    return [" ".join(line.split()) for line in joined.splitlines()]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_a_lock_file_pins_versions_and_hashes_and_names_no_index(lock: Path) -> None:
    found = requirements_of(lock)
    assert found
    assert [line for line in found if not PINNED.fullmatch(line)] == []


def test_every_dependency_is_locked() -> None:
    project = tomllib.loads((TOP / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"].values()
    asked = [*project["project"]["dependencies"], *(each for extra in extras for each in extra)]
    names = {re.split(r"[\[>=]", each)[0] for each in asked}
    locked = {line.partition("==")[0] for line in requirements_of(TOP / "requirements/run.txt")}
    locked |= {line.partition("==")[0] for line in requirements_of(TOP / "requirements/test.txt")}
    assert names <= locked


def test_set_up_installs_locked_files_only() -> None:
    installs = [
        line for line in (TOP / "scripts/setup").read_text().splitlines() if "pip install" in line
    ]
    assert installs
    assert [line for line in installs if not _is_locked(line)] == []


def _is_locked(line: str) -> bool:
    """The project itself has no hash: it is built by what is locked. Of dependencies pip would look
    at newer releases, too, where somebody asks for one with an extra.
    """
    return {"--no-build-isolation", "--no-deps"} <= set(line.split()) and (
        "--require-hashes" in line or line.endswith("-e .")
    )


def test_environments_of_development_services_are_locked(tmp_path: Path) -> None:
    lock = TOP / "src/nospoon/dev/ironic.txt"
    for ways in (environment._by_uv("uv", tmp_path, lock), environment._by_pip(tmp_path, lock)):
        assert {"--require-hashes", "--no-deps"} <= set(ways[-1])
