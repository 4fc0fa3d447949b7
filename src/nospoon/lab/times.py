"""Moments of leases, for people and programs."""

from __future__ import annotations

from datetime import UTC, datetime

LATEST = datetime.max.replace(microsecond=0, tzinfo=UTC).timestamp()


def utc(unix: float) -> str:
    """In ISO 8601. What is later than Python's calendar is shown as its end."""
    return datetime.fromtimestamp(min(unix, LATEST), UTC).isoformat(timespec="seconds")
