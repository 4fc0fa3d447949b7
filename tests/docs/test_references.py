"""References that are made from the code say what the programs say."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from nospoon.cli.main import COMMANDS
from nospoon.settings import settings_for

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


HELPS = """
import json
import click
from click.testing import CliRunner
from nospoon.cli.main import COMMANDS, cli
runner, found, waiting = CliRunner(), {}, [[name] for name in COMMANDS]
while waiting:
    argv = waiting.pop()
    done = runner.invoke(cli, [*argv, "--help"], prog_name="nospoon", terminal_width=78)
    assert done.exit_code == 0, argv
    found[" ".join(argv)] = done.output
    command = cli
    for word in argv:
        command = command.get_command(click.Context(command), word)
    if isinstance(command, click.Group):
        waiting += [[*argv, child] for child in command.list_commands(click.Context(command))]
print(json.dumps(found))
"""
"""In a process of its own: click keeps what a command's help was where a test called it alone."""


def test_the_page_of_the_command_line_has_the_help_that_is_printed() -> None:
    done = subprocess.run([sys.executable, "-c", HELPS], text=True, capture_output=True, check=True)
    page, found = (REFERENCE / "cli.md").read_text(), json.loads(done.stdout)
    assert len(found) > 2 * len(COMMANDS)
    missing = [name for name, text in found.items() if f"\n{text.rstrip()}\n```" not in page]
    assert missing == []


def test_integers_of_the_rest_api_are_whole() -> None:
    page = (REFERENCE / "rest.md").read_text()
    assert "integer, 1 to 1000 " in page
    assert not re.findall(r"\d\.0\b", page)


def test_answers_about_labs_are_explained() -> None:
    """Schedulers read them; events, consoles and metrics are no JSON."""
    page = (REFERENCE / "rest.md").read_text()
    rows = re.findall(
        r"^\| [A-Z]+ \| `(/v1/(?:labs|requests|leases)[^`]*)` \|(.*)\|$", page, re.MULTILINE
    )
    about = {path: cells.split("|")[2].strip() for path, cells in rows}
    unknown = {path for path, answer in about.items() if not answer}
    assert unknown == {"/v1/requests/{set_id}/events", "/v1/leases/{lease}/console"}
    for link in {link for answer in about.values() for link in re.findall(r"\[(\w+)\]", answer)}:
        heading, _, text = page.partition(f"\n## {link}\n")[2].partition("\n\n| field")
        assert heading.strip(), link
        assert text, link


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
