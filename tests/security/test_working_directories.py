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


SCRIPT = """#!/bin/sh
touch "$(dirname "$0")/ran"
echo '{"all": {"hosts": ["far"]}}'
"""


def given_away(path: Path) -> None:
    for each in (path, *path.rglob("*")):
        os.chown(each, 65534, 65534)


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's files are made by root")
@pytest.mark.parametrize("named", ["hosts", "."])
def test_an_inventory_of_another_user_is_not_run(tmp_path: Path, named: str) -> None:
    """Ansible runs what is executable: root did, who imported another user's Tenks."""
    place = tmp_path / "theirs"
    place.mkdir()
    script = place / "hosts"
    script.write_text(SCRIPT)
    script.chmod(0o755)
    ran = place / "ran"
    assert ansible.hosts_of(ansible.inventory(str(script)), "all").keys() == {"far"}
    ran.unlink()
    given_away(place)
    with pytest.raises(UsageError, match="cannot read") as refused:
        ansible.inventory(str(place / named))
    assert "may be text, but not a script" in refused.value.hint
    link = tmp_path / "link"
    link.symlink_to(script)
    with pytest.raises(UsageError, match="cannot read"):
        ansible.inventory(str(link))
    assert not ran.exists()
    script.write_text("near ansible_connection=local\n")
    script.chmod(0o644)
    assert ansible.hosts_of(ansible.inventory(str(script)), "all") == {"near": {}}


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's files are made by root")
def test_playbooks_of_another_user_bring_no_plugins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inventory, playbooks, marker = tmp_path / "hosts", tmp_path / "theirs", tmp_path / "was loaded"
    inventory.write_text("near ansible_connection=local\n")
    (playbooks / "vars_plugins").mkdir(parents=True)
    (playbooks / "vars_plugins" / "x.py").write_text(PLANTED.format(marker=str(marker)))
    given_away(playbooks)
    ansible.inventory(str(inventory), playbooks=str(playbooks))
    assert not marker.exists()
    assert "belongs to another user" in capsys.readouterr().err


CLOUD = """clouds:
  lab: {auth_type: password, auth: {auth_url: 'http://192.0.2.1/', username: u, password: p}}
"""
READS = "from nospoon.cli.clouds import cloud; print(cloud('lab')['auth']['auth_url'])"


def cloud_in(place: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", READS],
        cwd=place,
        env={**os.environ, "HOME": str(place / "home")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's files are made by root")
def test_a_cloud_is_not_read_from_a_directory_of_another_user(tmp_path: Path) -> None:
    """openstacksdk looks there before it looks in the caller's home: images, and passwords of the
    file, went to whichever cloud another user had named as the caller's.
    """
    found = tmp_path / "clouds.yaml"
    found.write_text(CLOUD)
    assert cloud_in(tmp_path).stdout == "http://192.0.2.1/\n"
    os.chown(found, 65534, 65534)  # in /tmp, say
    done = cloud_in(tmp_path)
    assert done.stdout == ""
    assert f"{found} is not read" in done.stderr
    os.chown(found, 0, 0)
    os.chown(tmp_path, 65534, 65534)
    assert cloud_in(tmp_path).stdout == ""


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
