"""One real OpenStack for the tests of this directory, which one worker runs. It ends with the last
of them: an idle one takes a twentieth of a processor.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nospoon.testing.cloud import OwnCloud, own_cloud
from nospoon.testing.rack import Rack, private_rack


@pytest.fixture(scope="package")
def cloud() -> Iterator[OwnCloud]:
    with own_cloud() as made:
        yield made


@pytest.fixture
def rack(cloud: OwnCloud) -> Iterator[Rack]:
    with private_rack(OS_CLIENT_CONFIG_FILE=str(cloud.told["clouds"])) as made:
        yield made
