"""A cloud for the tests of this directory, which one worker runs."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import pytest

from nospoon.testing import openstack
from nospoon.testing.lasting import Lasting
from nospoon.testing.openstack import Cloud
from nospoon.testing.rack import CACHE, Rack

HERE = Path(__file__).parent


@contextmanager
def _cloud() -> Iterator[Cloud]:
    state = Path(tempfile.mkdtemp(prefix="nospoon-nova-"))
    made = openstack.up(state, cache=CACHE)
    yield made
    openstack.down(made, cache=CACHE)


RUNNING = Lasting(HERE, _cloud)


@pytest.fixture
def cloud() -> Cloud:
    """One for all tests of this directory."""
    return RUNNING.get()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    RUNNING.leave(nextitem)


@pytest.fixture
def compute(cloud: Cloud) -> Callable[[], AbstractContextManager[None]]:
    """Starts a nova-compute for as long as the context lasts."""
    script = HERE / "nova_compute.py"
    return partial(openstack.compute, cloud, cache=CACHE, script=script)


@pytest.fixture
def rack(cloud: Cloud) -> Iterator[Rack]:
    directory = Path(tempfile.mkdtemp(prefix="nospoon-nova-"))
    made = Rack.at(directory, OS_CLIENT_CONFIG_FILE=str(cloud.clouds_file))
    try:
        yield made
        made.close()
    except BaseException:
        print(made.log()[-8000:])  # noqa: T201  (what its reader needs)
        raise
    finally:
        made.kill()
        shutil.rmtree(directory, ignore_errors=True)
