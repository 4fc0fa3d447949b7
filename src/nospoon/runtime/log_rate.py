"""Log lines that strangers cause: a few in a while, then a count of those that were left out."""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass

import structlog

from nospoon.runtime import clock

LINES, SECONDS = 5, 60.0
"""So many lines of one kind are written in so many seconds."""
KINDS = 256
"""Kinds of lines that are counted; the one seen longest ago is forgotten first."""
_PREFIX = 60

log = structlog.get_logger()


@dataclass(slots=True)
class _Kind:
    until: float
    written: int = 0
    left_out: int = 0


class Rate:
    """Decides which lines are written."""

    def __init__(self, *, lines: int = LINES, seconds: float = SECONDS) -> None:
        self._lines, self._seconds = lines, seconds
        self._kinds: OrderedDict[str, _Kind] = OrderedDict()

    def allow(self, kind: str, now: float) -> int | None:
        """How many lines of this kind were left out since the last one; None: leave it out too."""
        known = self._kinds.get(kind)
        left_out = 0
        if known is None or now >= known.until:
            left_out = known.left_out if known is not None else 0
            known = self._kinds[kind] = _Kind(now + self._seconds)
            while len(self._kinds) > KINDS:
                self._kinds.popitem(last=False)
        self._kinds.move_to_end(kind)
        if known.written >= self._lines:
            known.left_out += 1
            return None
        known.written += 1
        return left_out


class RateLimitedLog:
    """A structured log for what strangers cause; `event`, and whom it is `of`, are the kind of a
    line.
    """

    def __init__(self, rate: Rate | None = None, now: clock.Clock = clock.monotonic) -> None:
        self._rate, self._now = rate or Rate(), now

    def warning(self, event: str, *, of: str = "", **facts: object) -> None:
        self._write(logging.WARNING, event, of, facts)

    def info(self, event: str, *, of: str = "", **facts: object) -> None:
        self._write(logging.INFO, event, of, facts)

    def _write(self, level: int, event: str, of: str, facts: dict[str, object]) -> None:
        left_out = self._rate.allow(f"{event} {of}", self._now())
        if left_out is not None:
            log.log(level, event, **facts, **({"left_out": left_out} if left_out else {}))

    def exception(self, event: str, **facts: object) -> None:
        """With the traceback of the exception that is handled."""
        left_out = self._rate.allow(event, self._now())
        if left_out is not None:
            more: dict[str, object] = {"exc_info": True}
            more |= {"left_out": left_out} if left_out else {}
            log.error(event, **facts, **more)


class Forward(logging.Handler):
    """What libraries log, as lines of the structured log, at most so many of a kind."""

    def __init__(self, rate: Rate | None = None, now: clock.Clock = clock.monotonic) -> None:
        super().__init__()
        self._rate, self._now = rate or Rate(), now

    def emit(self, record: logging.LogRecord) -> None:
        kind = f"{record.name} {str(record.msg)[:_PREFIX]}"
        left_out = self._rate.allow(kind, self._now())
        if left_out is None:
            return
        facts: dict[str, object] = {"left_out": left_out} if left_out else {}
        if record.exc_info:
            facts["exc_info"] = record.exc_info
        log.log(record.levelno, record.getMessage(), logger=record.name, **facts)
