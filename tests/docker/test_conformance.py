"""The docker connection keeps the promises of the driver contract, with containers of busybox."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.docker.conftest import both_engines
from tests.lxc.test_conformance import make_stranger, read_seed, remove_machine

from nospoon.testing.conformance import DriverPromises
from nospoon.testing.racks import Bench

pytestmark = pytest.mark.docker


@both_engines
class TestDocker(DriverPromises):
    @pytest.fixture
    def bench(self, bench: Bench) -> Bench:
        return replace(
            bench,
            make_stranger=lambda resource: make_stranger(bench, resource),
            remove_machine=lambda resource: remove_machine(bench, resource),
            read_seed=lambda machine, name: read_seed(bench, machine, name),
        )
