"""Errors of the daemon's own disk, which may come from any write: what they mean for a request."""

from __future__ import annotations

import errno
import os

from nospoon.errors import NospoonError, OutOfSpace, ProviderError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_BROKEN = frozenset({errno.EROFS, errno.EIO})


def as_refusal(error: BaseException) -> NospoonError | None:
    """The error for a user where a disk is full, read-only or broken; None for any other one.

    Of a group of errors, the first that is of a disk counts.
    """
    if isinstance(error, BaseExceptionGroup):
        found = (as_refusal(each) for each in error.exceptions)
        return next((each for each in found if each is not None), None)
    if not isinstance(error, OSError) or error.errno not in _FULL | _BROKEN:
        return None
    what = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else "its files"
    why = os.strerror(error.errno)
    message = f"the daemon cannot write {what}: {why[:1].lower()}{why[1:]}"
    if error.errno in _FULL:
        return OutOfSpace(
            message,
            hint="Free space there (`df`, `df -i`), then run the same command again.",
        )
    return ProviderError(message, hint="Repair that disk, then run the same command again.")
