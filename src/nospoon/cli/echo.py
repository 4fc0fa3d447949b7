"""Output of the command line; control characters are escaped in all but the raw console."""

from __future__ import annotations

import sys

import click

from nospoon.model.visible import visible, visible_colours


def echo(text: object, *, err: bool = False, nl: bool = True) -> None:
    """A line for people or programs."""
    click.echo(visible(str(text)), err=err, nl=nl)


def echo_colours(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Output of a program that nospoon runs, with its colours."""
    click.echo(visible_colours(text), err=err, nl=nl)


def echo_file(text: str) -> None:
    """The content of a file: exact, unless a terminal shows it."""
    click.echo(visible(text) if sys.stdout.isatty() else text, nl=False)
