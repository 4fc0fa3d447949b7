"""Rows -> table, JSON, YAML, values or CSV; one place for -f and -c."""

from __future__ import annotations

import csv
import json
import os
import re
import stat
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from nospoon.cli.echo import echo, echo_colours
from nospoon.errors import NospoonError, SpecError, UsageError
from nospoon.model.visible import visible

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

F = TypeVar("F", bound=Callable[..., object])
Row = Mapping[str, object]

_IN_BODY = re.compile(r"(?:^|(?<=; ))body(?:\.|: )")
FORMATS = ("table", "json", "yaml", "value", "csv")


def output_options(command: F) -> F:
    """Adds -f/--format and -c/--column."""
    command = click.option(
        "-f", "--format", "format_", type=click.Choice(FORMATS), default="table", show_default=True
    )(command)
    return click.option(
        "-c", "--column", "columns", multiple=True, help="Only this column; again for more."
    )(command)


def check_columns(columns: Sequence[str], names: Sequence[str]) -> None:
    """Refuse unknown columns; commands that change something call this before they begin."""
    unknown = [column for column in columns if column not in names]
    if unknown:
        raise click.UsageError(f"no column {unknown[0]!r}; there are {', '.join(names)}")


def print_rows(
    rows: Sequence[Row | DataclassInstance],
    *,
    format_: str,
    columns: Sequence[str] = (),
    names: Sequence[str],
    secret: Sequence[str] = (),
    spare: Sequence[str] = (),
) -> None:
    """Print rows, which may be models of answers; `names` are all columns in order. Unknown columns
    are refused; `secret` ones are shown only where they are named. Of a table that is wider than
    the terminal, `spare` ones are left out, the first of them first: lines that a terminal breaks
    are hard to read.
    """
    check_columns(columns, names)
    wanted = list(columns) or [name for name in names if name not in secret]
    chosen = [{name: row.get(name) for name in wanted} for row in map(row_of, rows)]
    left_out: list[str] = []
    if format_ == "table" and not columns:
        left_out = _too_wide(chosen, wanted, spare, _terminal_width())
    _PRINTERS[format_](chosen, [name for name in wanted if name not in left_out])
    if left_out:
        echo(
            f"Left out for the width of the terminal: {', '.join(left_out)}. Use -c or -f json.",
            err=True,
        )


def row_of(record: Row | DataclassInstance) -> Row:
    if isinstance(record, Mapping):
        return record
    import msgspec  # noqa: PLC0415  (what asks no daemon prints mappings)

    found: Row = msgspec.to_builtins(record)
    return found


def print_record(
    shown: Row | DataclassInstance, *, format_: str, columns: Sequence[str] = ()
) -> None:
    """Print one thing, a field a line; JSON and YAML give an object."""
    record = row_of(shown)
    names = list(columns) or list(record)
    check_columns(columns, list(record))
    chosen = {name: record[name] for name in names}
    if format_ == "json":
        echo(json.dumps(chosen, indent=2))
    elif format_ == "yaml":
        _yaml([chosen], names, single=True)
    elif format_ == "table":
        _table(
            [{"field": name, "value": value} for name, value in chosen.items()], ["field", "value"]
        )
    else:
        _PRINTERS[format_]([chosen], names)


def _json(rows: list[dict[str, object]], names: list[str]) -> None:
    del names
    echo(json.dumps(rows, indent=2))


def _yaml(rows: list[dict[str, object]], names: list[str], *, single: bool = False) -> None:
    import yaml  # noqa: PLC0415  (only for this format)

    from nospoon.runtime.written_yaml import Dumper  # noqa: PLC0415

    del names
    shown = rows[0] if single else rows
    echo(yaml.dump(shown, Dumper=Dumper, sort_keys=False), nl=False)


def _value(rows: list[dict[str, object]], names: list[str]) -> None:
    lines = [" ".join(_cell(row[name]) for name in names) for row in rows]
    if lines:
        echo("\n".join(lines))  # at once: lines of 10,000 nodes took a tenth of a second


def _csv(rows: list[dict[str, object]], names: list[str]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_cell(row[name]) for name in names] for row in rows)


def _terminal_width() -> int:
    """Columns of the terminal that standard output is; 0 if it is none, or does not know."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns
    except OSError:
        return 0


def _too_wide(
    rows: Sequence[Row], names: Sequence[str], spare: Sequence[str], room: int
) -> list[str]:
    """Which of the `spare` columns to leave out, so that a table has `room`; 0 is without end."""
    if not room:
        return []
    widths = {name: max([len(name), *(len(_cell(row[name])) for row in rows)]) for name in names}
    left_out: list[str] = []
    for name in spare:
        if sum(widths.values()) + len(_GAP) * (len(widths) - 1) <= room:
            break
        if widths.pop(name, None) is not None:
            left_out.append(name)
    return left_out


_GAP = "  "


def _table(rows: list[dict[str, object]], names: list[str]) -> None:
    if not rows:
        echo("Nothing to show.", err=True)
        return
    # in one line each: a text of a guest or BMC client could look like rows of its own
    columns = [_column(name, [row[name] for row in rows]) for name in names]
    bold = sys.stdout.isatty() and _styles(os.environ)
    heading, *lines = (_GAP.join(line).rstrip() for line in zip(*columns, strict=True))
    echo_colours(click.style(heading, bold=True) if bold else heading)
    echo("\n".join(lines))


def _column(name: str, values: Sequence[object]) -> list[str]:
    """A column of a table, title first, each cell as wide as the widest. Cells of ten thousand
    nodes are mostly a few texts, each of which is looked at once.
    """
    one_line = {each: _one_line(each) for each in values if isinstance(each, str)}
    cells = [one_line[each] if isinstance(each, str) else _one_line(each) for each in values]
    cells.insert(0, name.replace("_", " ").upper())
    width = max(map(len, cells))
    return [cell.ljust(width) for cell in cells]


def _one_line(value: object) -> str:
    return " ".join(_cell(value).split("\n"))


def _styles(environment: Mapping[str, str]) -> bool:
    """Whether a terminal is to get escape sequences (https://no-color.org, terminfo's `dumb`)."""
    return not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


def _cell(value: object) -> str:
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
            return visible(str(value))


_PRINTERS: dict[str, Callable[[list[dict[str, object]], list[str]], None]] = {
    "table": _table,
    "json": _json,
    "yaml": _yaml,
    "value": _value,
    "csv": _csv,
}


def report(error: NospoonError) -> None:
    """Show an error; those of a cluster file name their places themselves. Those of a request name
    the part of its body, of which users of the command line know nothing.
    """
    if isinstance(error, SpecError):
        echo(str(error), err=True)
    else:
        echo(f"Error: {_IN_BODY.sub('', str(error))}", err=True)


STANDARD_OUTPUT = Path("/dev/stdout")
"""What `--out -` names."""


def write_private(target: Path, content: bytes) -> None:
    """For its owner alone, also where there was a file that others could read, or have open: a new
    file takes its place. What is no file, such as a pipe, is written to. Raises `UsageError`
    for what another user put there instead, as into /tmp.
    """
    if target == STANDARD_OUTPUT:
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        return
    place = _followed(target)
    if target.exists() and not target.is_file():
        with os.fdopen(os.open(target, os.O_WRONLY), "wb") as opened:
            if _is_foreign(place, os.fstat(opened.fileno())):
                raise UsageError(f"cannot write {target}: it belongs to another user")
            opened.write(content)
        return
    try:
        descriptor, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
    except PermissionError:  # a directory of others, in which there is a file of the user's
        descriptor = os.open(place, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW)
        name = ""
        os.fchmod(descriptor, 0o600)
    with os.fdopen(descriptor, "wb") as opened:  # mkstemp(3): mode 0600
        opened.write(content)
    if name:
        Path(name).replace(place)


MOST_LINKS = 40
"""As Linux follows (path_resolution(7))."""


def _followed(target: Path) -> Path:
    """What it is, or leads to. Links of other users in directories as /tmp are not followed: Linux
    refuses that, too (protected_symlinks in proc_sys_fs(5)), but not where links are read one by
    one, to put a new file in the place of the last.
    """
    place = target
    for _ in range(MOST_LINKS):
        place = place.parent.resolve() / place.name
        try:
            found = place.lstat()
        except FileNotFoundError:
            return place
        if not stat.S_ISLNK(found.st_mode):
            return place
        if _is_foreign(place, found):
            raise UsageError(f"cannot write {target}: {place} is a link of another user")
        place = place.parent / place.readlink()
    raise UsageError(f"cannot write {target}: too many links")


def _is_foreign(place: Path, found: os.stat_result) -> bool:
    """Whether another user put this into a directory into which everyone may."""
    around = place.parent.stat()
    shared = around.st_mode & stat.S_ISVTX and around.st_mode & stat.S_IWOTH
    return bool(shared) and found.st_uid not in (os.geteuid(), around.st_uid)


def writable(path: str) -> Path:
    """Where a command is to write its answer; `-` is standard output. Raises `UsageError` before
    any work is done.
    """
    if path == "-":
        return STANDARD_OUTPUT
    target = Path(path)
    _followed(target)
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
