"""What a container of Podman or Docker Engine is held to."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.docker.conftest import both_engines, cli_of, init_of
from tests.lxc import limits
from tests.lxc.limits import Inside

from nospoon.testing.racks import Bench, rack_for

pytestmark = pytest.mark.docker


@pytest.fixture
def inside(bench: Bench, engine: Path) -> Inside:
    def run(*argv: str) -> tuple[int, str]:
        name = f"{rack_for(bench).pool.key.name}.m0-0"
        done = subprocess.run(
            [*cli_of(engine), "exec", name, *argv],
            text=True, capture_output=True, check=False, timeout=60,
        )  # fmt: skip
        return done.returncode, done.stdout

    return run


@both_engines
async def test_a_container_has_its_cpus_memory_and_processes(bench: Bench) -> None:
    await limits.expect_limits(bench, lambda: init_of(bench))


@both_engines
async def test_a_fork_bomb_ends_at_the_limit_and_with_power_off(
    bench: Bench, inside: Inside
) -> None:
    await limits.expect_end_of_a_fork_bomb(bench, lambda: init_of(bench), inside)


@both_engines
async def test_a_container_whose_root_is_full_starts_again(bench: Bench, inside: Inside) -> None:
    await limits.expect_start_of_a_full_root(bench, lambda: init_of(bench), inside)
