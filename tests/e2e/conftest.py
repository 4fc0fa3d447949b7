"""A private daemon for each test."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from nospoon.testing.rack import Rack


@pytest.fixture
def rack() -> Iterator[Rack]:
    """A private daemon for one test. Its directory is searchable: the hypervisor opens disks."""
    with _rack() as made:
        yield made


@pytest.fixture(scope="session")
def _shared() -> Iterator[Rack]:
    with _rack() as made:
        yield made


@pytest.fixture
def shared(_shared: Rack) -> Iterator[Rack]:
    """A daemon that tests share; each takes its own clusters down again."""
    yield _shared
    _shared.down()


@contextlib.contextmanager
def _rack() -> Iterator[Rack]:
    directory = Path(tempfile.mkdtemp(prefix="nospoon-test-"))
    directory.chmod(0o711)
    made = Rack.at(directory)
    try:
        yield made
        made.close()
    except BaseException:
        print(made.log()[-20_000:], file=sys.stderr)  # noqa: T201  (what its reader needs)
        raise
    finally:
        made.kill()
    shutil.rmtree(directory)
