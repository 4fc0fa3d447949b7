"""Files that `nospoon import` finds may be another user's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nospoon.cli.commands.import_ import MOST_BYTES, command
from nospoon.errors import UsageError


def imported(*argv: str) -> Result:
    return CliRunner().invoke(command, argv)


@pytest.mark.parametrize("kind", ["FIFO", "device", "endless"])
def test_what_is_no_file_is_not_read(tmp_path: Path, kind: str) -> None:
    config = tmp_path / "vm" / "config"
    config.parent.mkdir()
    if kind == "FIFO":
        os.mkfifo(config)
    elif kind == "device":
        config.symlink_to("/dev/zero")
    else:
        config.touch()
        os.truncate(config, MOST_BYTES + 1)
    done = imported("--from", "virtualbmc", str(tmp_path))
    assert isinstance(done.exception, UsageError)
    expected = "more than 16 MiB" if kind == "endless" else "not a regular file"
    assert expected in str(done.exception)


@pytest.mark.parametrize("named", ["/dev/zero", "a\\0b"])
def test_what_a_configuration_names_is_not_read_either(tmp_path: Path, named: str) -> None:
    config = tmp_path / "sushy.conf"
    config.write_text(f"SUSHY_EMULATOR_AUTH_FILE = '{named}'\n")
    done = imported("--from", "sushy-tools", str(config))
    assert done.exit_code == 0, done.exception
    assert "Not carried over: SUSHY_EMULATOR_AUTH_FILE: cannot read" in done.output
