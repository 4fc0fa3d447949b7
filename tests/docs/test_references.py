"""References that are made from the code say what the programs say."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from nospoon.cli.main import COMMANDS, cli
from nospoon.settings import settings_for

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_page_of_the_command_line_has_the_help_that_is_printed(name: str) -> None:
    page = (REFERENCE / "cli.md").read_text()
    runner, waiting = CliRunner(), [[name]]
    while waiting:
        argv = waiting.pop()
        done = runner.invoke(cli, [*argv, "--help"], prog_name="nospoon", terminal_width=78)
        assert done.exit_code == 0
        assert f"\n{done.output.rstrip()}\n```" in page, argv
        command: click.Command | None = cli
        for word in argv:
            assert isinstance(command, click.Group)
            command = command.get_command(click.Context(command), word)
        if isinstance(command, click.Group):
            waiting += [[*argv, child] for child in command.list_commands(click.Context(command))]


def test_integers_of_the_rest_api_are_whole() -> None:
    page = (REFERENCE / "rest.md").read_text()
    assert "integer, 1 to 1000 " in page
    assert not re.findall(r"\d\.0\b", page)


def test_each_request_of_the_rest_api_is_explained() -> None:
    page = (REFERENCE / "rest.md").read_text()
    sections = dict(re.findall(r"(?m)^## (\w+Request)\n\n(.+)", page))
    assert len(sections) > 10
    assert not [name for name, text in sections.items() if text.startswith("|")]


def test_the_page_of_settings_says_where_a_users_files_are() -> None:
    page = (REFERENCE / "settings.md").read_text()
    home, uid = "/home/carol", 4_294_967_294  # without a /run/user/UID
    found = settings_for({"HOME": home}, uid=uid)
    for each in (found.state, found.cache, found.pools, found.runtime):
        place = str(each).replace(home, "~").partition("/nospoon")[0]
        assert f"`{place}" in page, place
