"""One real OpenStack for the tests of this directory, which one worker runs. It ends with the last
of them: an idle one takes a twentieth of a processor, and 3 GiB.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nospoon.testing.cloud import OwnCloud, own_cloud
from nospoon.testing.lasting import Lasting
from nospoon.testing.rack import Rack, private_rack

RUNNING = Lasting(Path(__file__).parent, own_cloud)


@pytest.fixture
def cloud() -> OwnCloud:
    return RUNNING.get()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    RUNNING.leave(nextitem)


@pytest.fixture
def rack(cloud: OwnCloud) -> Iterator[Rack]:
    with private_rack(OS_CLIENT_CONFIG_FILE=str(cloud.told["clouds"])) as made:
        yield made
