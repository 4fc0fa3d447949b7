"""nospoon doctor."""

from __future__ import annotations

import os

import click

from nospoon.cli.checks import Level, findings, fix_command, has_apt
from nospoon.cli.echo import echo
from nospoon.cli.output import output_options, print_rows

ELSEWHERE = (
    "The details name Debian's packages; the page docs/howto/install.md has those of other "
    "distributions."
)
COLUMNS = ("what", "verdict", "detail")


@click.command("doctor")
@output_options
def command(format_: str, columns: tuple[str, ...]) -> None:
    """Say what is missing on this machine, and the one command that fixes it."""
    privileged = os.getuid() == 0
    found = findings(privileged=privileged)
    rows = [{"what": f.name, "verdict": f.verdict, "detail": f.detail} for f in found]
    print_rows(rows, format_=format_, columns=columns, names=COLUMNS)
    if not any(not each.present and each.level is Level.NEEDED for each in found):
        echo("\nNothing needed is missing.", err=True)
        return
    fix = fix_command(found, privileged=privileged, apt=has_apt())
    unknown = f"No command is known that fixes it here. {ELSEWHERE}"
    echo(f"\nTo fix it:\n  {fix}" if fix else f"\n{unknown}", err=True)
    raise click.exceptions.Exit(1)
