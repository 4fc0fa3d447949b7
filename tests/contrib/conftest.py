"""What is in contrib/, run as its users run it, on a simulated host and a daemon of the tests'."""

from __future__ import annotations

import json
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from nospoon.testing.rack import BIN, Rack, private_rack

CONTRIB = Path(__file__).parents[2] / "contrib"
NOSPOON = str(BIN / "nospoon")
OFFLINE = {"PYTHONPATH": sysconfig.get_path("purelib"), "PIP_NO_INDEX": "1"}
"""What nospoon needs is there, so that pip installs nospoon alone, and asks nobody."""


@pytest.fixture(scope="session")
def _shared() -> Iterator[Rack]:
    with private_rack() as made:
        yield made


@pytest.fixture
def rack(_shared: Rack) -> Iterator[Rack]:
    """A daemon that these tests share; each takes its own clusters down again."""
    yield _shared
    _shared.down()


def play(
    rack: Rack,
    playbook: Path,
    variables: Mapping[str, Any],
    *,
    status: int = 0,
    roles: Path | None = None,
) -> str:
    """Run a playbook on this machine, as ansible-playbook does; what it says."""
    more = rack.directory / "variables.json"
    more.write_text(json.dumps({"ansible_python_interpreter": "/usr/bin/python3", **variables}))
    argv = ["/usr/bin/ansible-playbook", "-i", "localhost,", "-c", "local", "-e", f"@{more}"]
    quiet = {"ANSIBLE_NOCOLOR": "1", "ANSIBLE_LOCALHOST_WARNING": "false"}
    if roles:
        quiet["ANSIBLE_ROLES_PATH"] = str(roles)
    env = {**rack.environment, **quiet, "ANSIBLE_LOCAL_TEMP": str(rack.directory / "ansible")}
    done = subprocess.run(
        [*argv, str(playbook)], env=env, cwd=rack.directory, text=True, capture_output=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """nospoon as pip installs it, built once."""
    place = tmp_path_factory.mktemp("wheel")
    pip = [str(BIN / "python"), "-m", "pip", "--disable-pip-version-check"]
    how = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(place)]
    subprocess.run([*pip, "wheel", *how, str(CONTRIB.parent)], check=True, capture_output=True)
    return next(place.glob("nospoon-*.whl"))
