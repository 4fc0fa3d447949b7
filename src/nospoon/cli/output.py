"""Rows -> table, JSON, YAML, values or CSV; one place for -f and -c."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from nospoon.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])
Row = Mapping[str, Any]

FORMATS = ("table", "json", "yaml", "value", "csv")


def output_options(command: F) -> F:
    """Adds -f/--format and -c/--column."""
    command = click.option(
        "-f", "--format", "format_", type=click.Choice(FORMATS), default="table", show_default=True
    )(command)
    return click.option(
        "-c", "--column", "columns", multiple=True, help="Only this column; again for more."
    )(command)


def print_rows(
    rows: Sequence[Row], *, format_: str, columns: Sequence[str] = (), names: Sequence[str]
) -> None:
    """Print rows; `names` are all columns in order. Unknown columns are refused."""
    wanted = list(columns) or list(names)
    unknown = [column for column in wanted if column not in names]
    if unknown:
        raise click.UsageError(f"no column {unknown[0]!r}; there are {', '.join(names)}")
    chosen = [{name: row.get(name) for name in wanted} for row in rows]
    _PRINTERS[format_](chosen, wanted)


def print_record(record: Row, *, format_: str, columns: Sequence[str] = ()) -> None:
    """Print one thing, a field a line; JSON and YAML give an object."""
    names = list(columns) or list(record)
    unknown = [column for column in names if column not in record]
    if unknown:
        raise click.UsageError(f"no column {unknown[0]!r}; there are {', '.join(record)}")
    chosen = {name: record[name] for name in names}
    if format_ == "json":
        click.echo(json.dumps(chosen, indent=2))
    elif format_ == "yaml":
        _yaml([chosen], names, single=True)
    elif format_ == "table":
        _table(
            [{"field": name, "value": value} for name, value in chosen.items()], ["field", "value"]
        )
    else:
        _PRINTERS[format_]([chosen], names)


def _json(rows: list[dict[str, Any]], names: list[str]) -> None:
    del names
    click.echo(json.dumps(rows, indent=2))


def _yaml(rows: list[dict[str, Any]], names: list[str], *, single: bool = False) -> None:
    import yaml  # noqa: PLC0415  (only for this format)

    del names
    click.echo(yaml.safe_dump(rows[0] if single else rows, sort_keys=False), nl=False)


def _value(rows: list[dict[str, Any]], names: list[str]) -> None:
    for row in rows:
        click.echo(" ".join(_cell(row[name]) for name in names))


def _csv(rows: list[dict[str, Any]], names: list[str]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_cell(row[name]) for name in names] for row in rows)


def _table(rows: list[dict[str, Any]], names: list[str]) -> None:
    if not rows:
        click.echo("Nothing to show.", err=True)
        return
    cells = [[_cell(row[name]) for name in names] for row in rows]
    titles = [name.replace("_", " ").upper() for name in names]
    widths = [max(len(line[i]) for line in [titles, *cells]) for i in range(len(names))]
    bold = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    heading = "  ".join(t.ljust(w) for t, w in zip(titles, widths, strict=True)).rstrip()
    click.echo(click.style(heading, bold=True) if bold else heading)
    for line in cells:
        click.echo("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip())


def _cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return ",".join(_cell(item) for item in value)
        case dict():
            return ",".join(f"{key}={_cell(item)}" for key, item in value.items())
        case _:
            return str(value)


_PRINTERS: dict[str, Callable[[list[dict[str, Any]], list[str]], None]] = {
    "table": _table,
    "json": _json,
    "yaml": _yaml,
    "value": _value,
    "csv": _csv,
}


def writable(path: str) -> Path:
    """Where a command is to write its answer. Raises `UsageError` before any work is done."""
    target = Path(path)
    why = ""
    if target.is_dir():
        why = "it is a directory"
    elif not target.parent.is_dir():
        why = f"there is no directory {target.parent}"
    elif not os.access(target if target.exists() else target.parent, os.W_OK):
        why = "you may not write there"
    if why:
        raise UsageError(f"cannot write {path}: {why}")
    return target
