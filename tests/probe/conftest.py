"""The probe, built once and kept between runs."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from nospoon.model.cluster import Arch
from nospoon.probe.build import Probe, build

CACHE = Path(os.environ.get("NOSPOON_TEST_CACHE", Path.home() / ".cache/nospoon-tests"))


@pytest.fixture(scope="session")
def probe() -> Probe:
    return asyncio.run(build(CACHE, arch=Arch.X86_64))
