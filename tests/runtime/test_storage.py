"""Errors of the daemon's own disk, wherever they come from."""

from __future__ import annotations

import errno
import os

import pytest

from nospoon.errors import OutOfSpace, ProviderError
from nospoon.runtime.storage import as_refusal


def full(path: str | None = "/var/lib/nospoon/consoles/x") -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


def test_a_full_disk_is_named_with_the_file_that_was_to_be_written() -> None:
    refusal = as_refusal(full())
    assert isinstance(refusal, OutOfSpace)
    assert refusal.message == (
        "the daemon cannot write /var/lib/nospoon/consoles/x: no space left on device"
    )
    assert "df -i" in refusal.hint


def test_a_disk_that_takes_no_writes_is_another_error() -> None:
    refusal = as_refusal(OSError(errno.EROFS, "…", "/var/lib/nospoon"))
    assert type(refusal) is ProviderError
    assert "read-only file system" in refusal.message


def test_it_is_found_among_other_errors() -> None:
    group = ExceptionGroup("all", [ValueError(), ExceptionGroup("some", [full(None)])])
    refusal = as_refusal(group)
    assert refusal is not None
    assert refusal.message == "the daemon cannot write its files: no space left on device"


@pytest.mark.parametrize("error", [OSError(errno.ENOENT, "…"), ValueError(), OSError("text")])
def test_other_errors_stay_what_they_are(error: Exception) -> None:
    assert as_refusal(error) is None
