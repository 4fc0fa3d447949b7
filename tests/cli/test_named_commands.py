"""Commands that messages name, such as the next one to run, are commands that there are."""

from __future__ import annotations

import re
from pathlib import Path

import click

import nospoon
from nospoon.cli.main import cli

NAMED = re.compile(r"`nospoon ([a-z-]+)(?: ([a-z][a-z-]*))?")


def is_command(name: str, second: str) -> bool:
    context = click.Context(cli)
    found = cli.get_command(context, name)
    if not isinstance(found, click.Group) or not second:
        return found is not None
    return found.get_command(context, second) is not None


def test_every_command_that_a_text_names_is_one() -> None:
    texts = [path.read_text(encoding="utf-8") for path in Path(nospoon.__path__[0]).rglob("*.py")]
    named = {match.groups("") for text in texts for match in NAMED.finditer(text)}
    assert ("request", "watch") in named
    assert not {each for each in named if not is_command(*each)}
