"""What is read of a volume before its container starts, as it may have millions of files, and with
which rights it is mounted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nospoon.providers.containers import attaching
from nospoon.providers.containers.attaching import BEGUN, has_content


def test_of_a_volume_that_has_content_no_more_is_read_than_the_first_name() -> None:
    def names() -> Iterator[str]:
        yield "lost+found"
        yield "a"
        raise AssertionError("all of it is read")

    assert has_content(names())


def test_a_volume_is_empty_that_has_what_each_file_system_has() -> None:
    assert not has_content(iter(()))
    assert not has_content(iter(["lost+found", BEGUN]))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("/usr/bin/lxc-start (enforce)\n", "changeprofile unconfined"),
        ("unconfined\n", "unconfined\n"),
        ("nospoond (enforce)\n", "nospoond (enforce)\n"),
    ],
)
def test_what_mounts_leaves_the_profile_of_lxc_start_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: str
) -> None:
    profile = tmp_path / "current"
    profile.write_text(before)
    monkeypatch.setattr(attaching, "CONFINED", profile)
    attaching.leave_profile()
    assert profile.read_text() == after


def test_a_kernel_without_apparmor_has_no_profile_to_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attaching, "CONFINED", tmp_path / "not-there")
    attaching.leave_profile()
    assert list(tmp_path.iterdir()) == []
