"""A private daemon for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nospoon.testing.rack import Rack, private_rack


@pytest.fixture
def rack() -> Iterator[Rack]:
    """A private daemon for one test."""
    with private_rack() as made:
        yield made


@pytest.fixture(scope="session")
def _shared() -> Iterator[Rack]:
    with private_rack() as made:
        yield made


@pytest.fixture
def shared(_shared: Rack) -> Iterator[Rack]:
    """A daemon that tests share; each takes its own clusters down again."""
    yield _shared
    _shared.down()
