"""One real OpenStack for the tests of this directory, which one worker runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nospoon.testing.cloud import OwnCloud, own_cloud


@pytest.fixture(scope="session")
def cloud() -> Iterator[OwnCloud]:
    with own_cloud() as made:
        yield made
