"""Structured logs: JSON lines in files, readable lines on a terminal; one line a fact."""

from __future__ import annotations

import logging
import sys
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict

from nospoon.model.visible import visible, visible_line
from nospoon.runtime.log_rate import Forward


class Unfailing:
    """A stream to which a line that cannot be written is lost, and counted: a full disk must not
    break what only wanted to tell of it.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.lost = 0

    def write(self, text: str) -> int:
        try:
            if self.lost:
                self._stream.write(f'{{"level": "error", "lost_lines": {self.lost}}}\n')
                self._stream.flush()
                self.lost = 0
            self._stream.write(text)
        except OSError:
            self.lost += text.count("\n")
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            self.lost += 1


def escaped(logger: object, method: str, event: EventDict) -> EventDict:
    """What others sent cannot act on the terminal that shows the log, nor make lines of its own."""
    del logger, method
    trace = event.pop("exception", None)
    shown = {
        name: visible_line(value) if isinstance(value, str) else value
        for name, value in event.items()
    }
    return shown | ({"exception": visible(trace)} if isinstance(trace, str) else {})


def configure(level: str) -> None:
    """Set logging up for a process. `level`: debug, info, warning or error."""
    stream: Any = Unfailing(sys.stderr)
    threshold = logging.getLevelNamesMapping().get(level.upper(), logging.INFO)
    logging.basicConfig(level=max(threshold, logging.WARNING), handlers=[Forward()])
    terminal = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            escaped,
            structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
            if terminal
            else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=True,
    )
