"""Output of the command line; control characters are escaped in all but the raw console."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

import click

from nospoon.model.visible import visible, visible_colours


def echo(text: object, *, err: bool = False, nl: bool = True) -> None:
    """A line for people or programs."""
    click.echo(visible(str(text)), err=err, nl=nl)


@contextmanager
def report_if_long(text: str, *, seconds: float = 2.0) -> Iterator[None]:
    """Says on stderr what takes longer than that."""
    timer = Timer(seconds, echo, (text,), {"err": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def echo_colours(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Output of a program that nospoon runs, with its colours."""
    click.echo(visible_colours(text), err=err, nl=nl)


def echo_file(text: str) -> None:
    """The content of a file: exact, unless a terminal shows it."""
    click.echo(visible(text) if sys.stdout.isatty() else text, nl=False)
