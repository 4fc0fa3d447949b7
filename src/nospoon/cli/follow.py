"""Following an operation: bars on a terminal, a line an event elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, Protocol

import click

from nospoon.api.client import Client
from nospoon.cli.echo import echo
from nospoon.cli.interrupted import INTERRUPTED
from nospoon.errors import NospoonError
from nospoon.model.rest.operations import FailedStep, OperationEnd, OperationEvent
from nospoon.model.visible import visible, visible_line

if TYPE_CHECKING:
    from rich.progress import Progress

EXIT_BY_STATE = {"done": 0, "partly done": 3}


class Display(Protocol):
    """Shows events as they come."""

    def show(self, event: OperationEvent) -> None: ...


class Lines:
    """A line an event, on stderr."""

    def show(self, event: OperationEvent) -> None:
        count = f"[{event.done}/{event.total}] " if event.total else ""
        what = f"{event.what}: " if event.what else ""
        if event.phase != "started":
            mark = "" if event.phase in {"done", "note"} else f"{event.phase}: "
            echo(f"{count}{what}{mark}{event.message}", err=True)


class Bar:
    """A bar with what happens now; failures and notes stay above it."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("Starting", total=None)

    def show(self, event: OperationEvent) -> None:
        if event.total:
            self._progress.update(self._task, total=event.total, completed=event.done)
        if event.phase in {"started", "done"}:
            said = visible_line(f"{event.message} {event.what}")
            self._progress.update(self._task, description=said)
        else:
            what = f"{event.what}: " if event.what else ""
            said = visible(f"{what}{event.message}")
            self._progress.console.print(said, highlight=False, markup=False)


def _has_bars() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


@contextmanager
def sent(content: BinaryIO, size: int) -> Iterator[BinaryIO]:
    """The content of a file, to be read and sent; a terminal shows how much of it was read."""
    if not _has_bars():
        yield content
        return
    from rich.console import Console  # noqa: PLC0415  (only on a terminal)
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        DownloadColumn,
        Progress,
        TimeRemainingColumn,
    )

    console = Console(stderr=True, no_color=bool(os.environ.get("NO_COLOR")))
    columns = (BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        yield progress.wrap_file(content, size)


@contextmanager
def display() -> Iterator[Display]:
    """What fits this terminal."""
    if not _has_bars():
        yield Lines()
        return
    from rich.console import Console  # noqa: PLC0415  (only on a terminal)
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415

    console = Console(stderr=True, no_color=bool(os.environ.get("NO_COLOR")))
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console, transient=True) as progress:
        yield Bar(progress)


@contextmanager
def beginning() -> Iterator[None]:
    """For a request that begins an operation: after Ctrl-C, say that it may go on."""
    try:
        yield
    except KeyboardInterrupt:
        echo("\nIt may have begun: `nospoon operation list` shows it.", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None


def follow(
    client: Client,
    operation: str,
    *,
    timeout: float | None = None,
    shown_plan: str = "",
) -> OperationEnd:
    """Show an operation until it ends; returns its last event. Ctrl-C leaves it running.

    `operation`: its id. `shown_plan`: text that was shown before it. Its summary, which an
    operation begins with, is not repeated.
    """
    already = frozenset(shown_plan.splitlines())
    deadline = time.monotonic() + timeout if timeout is not None else None
    try:
        with display() as shown:
            for event in client.operation_events(operation, deadline=deadline):
                if isinstance(event, OperationEnd):
                    return event
                if event.phase != "note" or event.message not in already:
                    shown.show(event)
    except KeyboardInterrupt:
        echo(
            f"\nThe operation goes on. `nospoon operation watch {operation}` follows it, "
            f"`nospoon operation cancel {operation}` stops it.",
            err=True,
        )
        raise click.exceptions.Exit(INTERRUPTED) from None
    except TimeoutError:
        echo(f"Timed out; `nospoon operation watch {operation}` follows it.", err=True)
        raise click.exceptions.Exit(4) from None
    raise NospoonError(
        "the daemon ended before the operation did",
        hint="Run the same command again: it goes on from what is there.",
    )


def failures(failed: Iterable[FailedStep]) -> Iterator[str]:
    """A line for each reason, with what failed for it: an Ironic that is away fails all nodes."""
    by_reason: dict[str, list[str]] = {}
    for each in failed:
        by_reason.setdefault(each.message, []).append(each.what)
    for reason, (first, *others) in by_reason.items():
        more = f" and {len(others)} more" if others else ""
        yield f"{first}{more}: {reason}"


def finish(final: OperationEnd) -> None:
    """Say how it ended, and exit with the code for it unless all is done."""
    if final.message:
        echo(final.message, err=True)
    for line in failures(final.result.failures):
        echo(f"  {line}", err=True)
    code = EXIT_BY_STATE.get(final.state, 1)
    if code:
        raise click.exceptions.Exit(code)
