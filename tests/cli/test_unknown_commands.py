"""What a command line without a known command is answered."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from nospoon.cli.main import cli


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("nodes", "node"),
        ("list", "status"),
        ("destroy", "down"),
        ("create", "up"),
        ("console", "node console"),
        ("power", "node power"),
        ("stop", "daemon stop"),
        ("show", "node show"),
        ("restart", "node power NODE cycle"),
        ("clusters", "status"),
        ("version", "--version"),
    ],
)
def test_an_unknown_command_is_answered_by_the_one_that_was_meant(given: str, meant: str) -> None:
    """`list` and `destroy` were taken for `distro`, `version` for `operation`."""
    done = CliRunner().invoke(cli, [given, "x"])
    assert done.exit_code == 2
    assert f"No such command '{given}'. Did you mean '{meant}'?" in done.output


def test_what_is_like_no_command_gets_no_suggestion() -> None:
    done = CliRunner().invoke(cli, ["config"])
    assert done.exit_code == 2
    assert "Did you mean" not in done.output
