"""What all tests of a directory share, and what ends with the last of them.

pytest has fixtures of packages for that, but directories without `__init__.py` are none: theirs end
with the session (https://docs.pytest.org/en/stable/how-to/fixtures.html#fixture-scopes).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Generic, TypeVar

import pytest

T = TypeVar("T")


class Lasting(Generic[T]):
    """Something that the first test of `directory` makes which asks for it."""

    def __init__(self, directory: Path, make: Callable[[], AbstractContextManager[T]]) -> None:
        self._directory, self._make = directory, make
        self._end = ExitStack()
        self._made: T | None = None
        self._failed: BaseException | None = None

    def get(self) -> T:
        """It, as the first one who asked made it. Raises what that raised."""
        if self._failed is not None:
            raise self._failed
        if self._made is None:
            try:
                self._made = self._end.enter_context(self._make())
            except BaseException as error:
                self._failed = error
                raise
        return self._made

    def leave(self, following: pytest.Item | None) -> None:
        """A test of the directory is over; it ends if the `following` one is elsewhere."""
        if following is None or self._directory not in following.path.parents:
            self._made = self._failed = None
            self._end.close()
