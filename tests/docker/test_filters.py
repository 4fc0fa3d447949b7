"""Containers of an engine send from their own MAC and address alone."""

from __future__ import annotations

import pytest
from tests.lxc import test_filters as of_lxc
from tests.lxc.test_filters import bridge, rack  # noqa: F401  (fixtures)

from nospoon.testing.racks import Bench, Rack

pytestmark = [pytest.mark.docker, pytest.mark.libvirt]


async def test_a_container_sends_from_its_own_mac_and_address_alone(
    bench: Bench,
    rack: Rack,  # noqa: F811
    bridge: str,  # noqa: F811
) -> None:
    await of_lxc.test_a_container_sends_from_its_own_mac_and_address_alone(
        bench, rack, bridge, filtered=True
    )


async def test_a_filter_that_another_program_removed_is_drift(
    bench: Bench,
    rack: Rack,  # noqa: F811
) -> None:
    await of_lxc.test_a_filter_that_another_program_removed_is_drift(bench, rack)
