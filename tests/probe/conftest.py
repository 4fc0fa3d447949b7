"""The probe, built once and kept between runs."""

from __future__ import annotations

import asyncio

import pytest

from nospoon.model.cluster import Arch
from nospoon.probe.build import Probe, build
from nospoon.testing.rack import CACHE


@pytest.fixture(scope="session")
def probe() -> Probe:
    return asyncio.run(build(CACHE, arch=Arch.X86_64))
