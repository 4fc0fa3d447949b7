"""Structured logs: JSON lines in files, readable lines on a terminal; one line a fact."""

from __future__ import annotations

import logging
import sys

import structlog


def configure(level: str) -> None:
    """Set logging up for a process. `level`: debug, info, warning or error."""
    threshold = logging.getLevelNamesMapping().get(level.upper(), logging.INFO)
    logging.basicConfig(
        level=max(threshold, logging.WARNING), stream=sys.stderr, format="%(message)s"
    )
    terminal = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([] if terminal else [structlog.processors.format_exc_info]),
            structlog.dev.ConsoleRenderer() if terminal else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
