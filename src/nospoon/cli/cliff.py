"""Command lines as cliff reads them, the library of virtualbmc's, and lists as it prints them.

docs.openstack.org/cliff/latest/user/list_commands.html; scripts read what it prints, and how.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import click

from nospoon.cli.echo import echo
from nospoon.cli.output import FORMATS
from nospoon.errors import NospoonError

Cell = str | int | None
F = TypeVar("F", bound=Callable[..., object])
QUOTES: dict[str, Literal[0, 1, 2, 3]] = {
    "all": csv.QUOTE_ALL,
    "minimal": csv.QUOTE_MINIMAL,
    "none": csv.QUOTE_NONE,
    "nonnumeric": csv.QUOTE_NONNUMERIC,
}


@dataclass(frozen=True, slots=True)
class Style:
    """How a list is printed."""

    format_: str
    columns: tuple[str, ...]
    sort: tuple[str, ...]
    descending: bool
    quote: str
    indent: bool
    print_empty: bool


class Command(click.Command):
    """A long option may be shortened to its beginning, where no other one begins so."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        params = self.get_params(ctx)
        known = [name for each in params for name in (*each.opts, *each.secondary_opts)]
        own = len(args)
        if not ctx.allow_interspersed_args:  # those of a command in a group are its own
            own = next((i for i, each in enumerate(args) if not each.startswith("-")), own)
        return super().parse_args(ctx, _in_full(args[:own], known) + args[own:])


class Group(Command, click.Group):
    """A command may be shortened, as may long options of each."""

    command_class = Command

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        names = [cmd_name] if cmd_name in self.commands else _beginning(cmd_name, self.commands)
        return self.commands[names[0]] if len(names) == 1 else None


def _in_full(args: Sequence[str], known: Iterable[str]) -> list[str]:
    """With the names of long options that are shortened, as far as it is clear which are meant
    (docs.python.org/3/library/argparse.html, "allow_abbrev").
    """
    written = list(args)
    for place, each in enumerate(args):
        name, equals, value = each.partition("=")
        if name == "--":
            break
        if (
            name.startswith("--")
            and name not in known
            and len(meant := _beginning(name, known)) == 1
        ):
            written[place] = f"{meant[0]}{equals}{value}"
    return written


def _beginning(text: str, names: Iterable[str]) -> list[str]:
    return [each for each in names if text and each.startswith(text)]


def ignored_options(command: F) -> F:
    """Those of every command of cliff's, before its name and after: without a meaning here."""
    for names, flag in (
        (("-v", "--verbose"), True), (("-q", "--quiet"), True), (("--debug",), True),
        (("--log-file",), False),
    ):  # fmt: skip
        command = click.option(*names, is_flag=flag, hidden=True, expose_value=False)(command)
    return command


def list_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of a list, and hands them over as one `Style`."""

    def styled(
        *,
        format_: str,
        columns: tuple[str, ...],
        sort: tuple[str, ...],
        descending: bool,
        quote: str,
        noindent: bool,
        print_empty: bool,
        **others: str,
    ) -> None:
        style = Style(format_, columns, sort, descending, quote, not noindent, print_empty)
        command(style=style, **others)

    styled.__doc__ = command.__doc__
    options = (
        click.option("-f", "--format", "format_", type=click.Choice(FORMATS), default="table"),
        click.option("-c", "--column", "columns", multiple=True, help="Only this column."),
        click.option("--sort-column", "sort", multiple=True, help="Sort by this column."),
        click.option("--sort-descending/--sort-ascending", "descending", default=False),
        click.option("--quote", type=click.Choice(sorted(QUOTES)), default="nonnumeric"),
        click.option("--noindent", is_flag=True, help="JSON on one line."),
        click.option("--print-empty", is_flag=True, help="An empty table where there is nothing."),
        click.option("--max-width", type=int, hidden=True, expose_value=False),
        click.option("--fit-width", is_flag=True, hidden=True, expose_value=False),
    )
    for option in reversed(options):
        styled = option(styled)
    return ignored_options(styled)


def print_list(names: Sequence[str], rows: Sequence[Sequence[Cell]], style: Style) -> None:
    """Columns stay in the order of `names`, whatever the order of `-c`; unknown ones are skipped.
    Raises `NospoonError` where none is known.
    """
    asked = {_plain(each) for each in style.columns}
    shown = [i for i, name in enumerate(names) if not asked or _plain(name) in asked]
    if not shown:
        raise NospoonError(
            f"no column {', '.join(style.columns)}", hint=f"There are {', '.join(names)}."
        )
    wanted = [names[i] for i in shown]
    cells = [[row[i] for i in shown] for row in _sorted(names, rows, style)]
    records = [dict(zip(wanted, row, strict=True)) for row in cells]
    match style.format_:
        case "json":
            echo(json.dumps(records, indent=2 if style.indent else None))
        case "yaml":
            import yaml  # noqa: PLC0415  (only for this format)

            echo(yaml.safe_dump(records, default_flow_style=False), nl=False)
        case "value":
            for row in cells:
                echo(" ".join(map(str, row)))
        case "csv":
            out = csv.writer(
                sys.stdout, quoting=QUOTES[style.quote], lineterminator="\n", escapechar="\\"
            )
            out.writerows([wanted, *cells])
        case _:
            _table(wanted, cells, style)


def _sorted(
    names: Sequence[str], rows: Sequence[Sequence[Cell]], style: Style
) -> Sequence[Sequence[Cell]]:
    """By the first of the columns first."""
    places = {_plain(name): i for i, name in enumerate(names)}
    found = [places.get(_plain(each)) for each in style.sort]
    for place in reversed([each for each in found if each is not None]):
        rows = sorted(rows, key=lambda row: _order(row[place]), reverse=style.descending)
    return rows


def _plain(column: str) -> str:
    """Names of columns are given in any case, and with _ for a space."""
    return column.lower().replace("_", " ")


def _order(cell: Cell) -> tuple[bool, int, str]:
    return (False, cell, "") if isinstance(cell, int) else (True, 0, str(cell))


def _table(names: Sequence[str], rows: Sequence[Sequence[Cell]], style: Style) -> None:
    """Numbers and their heading to the right, as they are in the first row."""
    if not rows and not style.print_empty:
        echo("")
        return
    right = [bool(rows) and isinstance(cell, int) for cell in (rows[0] if rows else names)]
    lines = [list(names), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(names))]
    rule = f"+{'+'.join('-' * (width + 2) for width in widths)}+"
    texts = [
        " | ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        )
        for line in lines
    ]
    heading, *others = [f"| {text} |" for text in texts]
    for line in (rule, heading, rule, *others, rule):
        echo(line)
