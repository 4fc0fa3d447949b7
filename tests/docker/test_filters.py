"""Containers of an engine send from their own MAC and address alone, also after a reboot."""

from __future__ import annotations

import pytest
from tests.lxc.test_filters import (  # noqa: F401  (the same tests, with this connection)
    bridge,
    rack,
    test_a_container_sends_from_its_own_mac_and_address_alone,
    test_a_filter_that_another_program_removed_is_drift,
)

pytestmark = [pytest.mark.docker, pytest.mark.libvirt]
