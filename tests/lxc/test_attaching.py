"""What is read of a volume before its container starts: it may have millions of files."""

from __future__ import annotations

from collections.abc import Iterator

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
