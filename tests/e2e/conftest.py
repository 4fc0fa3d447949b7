"""A private daemon for each test."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from nospoon.testing.rack import Rack


@pytest.fixture
def rack(request: pytest.FixtureRequest) -> Iterator[Rack]:
    """A private daemon for this test. Its directory is searchable: the hypervisor opens disks."""
    directory = Path(tempfile.mkdtemp(prefix="nospoon-test-"))
    directory.chmod(0o711)
    made = Rack.at(directory)
    yield made
    try:
        made.close()
    except BaseException:
        print(made.log(), file=sys.stderr)  # noqa: T201  (what a failed test's reader needs)
        raise
    if getattr(request.node, "failed", False):
        print(made.log(), file=sys.stderr)  # noqa: T201
    shutil.rmtree(directory)
