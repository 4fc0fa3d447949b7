"""Root may run nospoon in a directory of another user, such as /tmp: nothing there is executed."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import nospoon
from nospoon.cli import ansible
from nospoon.errors import UsageError

SOURCES = Path(nospoon.__file__).parent
NOSPOON = Path(sys.executable).with_name("nospoon")
PLANTED = "from pathlib import Path\nPath({marker!r}).touch()\n"


@pytest.mark.parametrize("how", [["start"], ["start", "--foreground"]])
def test_the_daemon_imports_nothing_from_the_directory_in_which_it_is_started(
    tmp_path: Path, how: list[str]
) -> None:
    """It refuses its database, after everything of its own was imported."""
    marker, place = tmp_path / "was executed", tmp_path / "of another user"
    place.mkdir()
    for module in ("structlog", "libvirt", "uvicorn"):
        (place / f"{module}.py").write_text(PLANTED.format(marker=str(marker)))
    own = {
        name: str(tmp_path / name)
        for name in (
            "NOSPOON_STATE_DIR", "NOSPOON_RUNTIME_DIR", "NOSPOON_CACHE_DIR", "NOSPOON_POOL_DIR",
        )
    }  # fmt: skip
    done = subprocess.run(
        [NOSPOON, "daemon", *how],
        cwd=place,
        env={**os.environ, **own, "NOSPOON_DATABASE": "nonsense"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "NOSPOON_DATABASE is not a URL" in done.stderr
    assert not marker.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's files are made by root")
def test_ansible_has_the_settings_of_no_other_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads `ansible.cfg` where it is started, which may name plugins."""
    inventory = tmp_path / "hosts"
    inventory.write_text("near ansible_connection=local\n")
    (tmp_path / "ansible.cfg").write_text("no settings")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"ansible\.cfg"):
        ansible.inventory("hosts")
    os.chown(tmp_path, 65534, 65534)
    assert ansible.hosts_of(ansible.inventory("hosts"), "all") == {"near": {}}
    monkeypatch.setenv("SUDO_UID", "65534")
    with pytest.raises(UsageError, match=r"ansible\.cfg"):
        ansible.inventory("hosts")


def commands_of_python() -> Iterator[tuple[str, list[str]]]:
    """Each list of words in the sources that runs a module or a script, and where it is."""
    for path in SOURCES.rglob("*.py"):
        if "testing" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.List | ast.Tuple):
                words = [ast.unparse(each) for each in node.elts]
                program, runs = next(iter(words), ""), {"'-m'", "'-c'"} & set(words)
                is_python = "python" in program or "base" in program or "sys.executable" in words
                if runs and is_python:
                    yield f"{path.relative_to(SOURCES)}:{node.lineno}", words


def test_each_python_that_is_started_leaves_the_working_directory_out() -> None:
    """python(1): -P, and -I, which means it as well."""
    found = dict(commands_of_python())
    assert len(found) >= 7
    assert [place for place, words in found.items() if not {"'-P'", "'-I'"} & set(words)] == []
