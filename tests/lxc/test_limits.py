"""What a container of liblxc is held to."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.lxc import limits
from tests.lxc.limits import Inside

from nospoon.testing.racks import Bench

pytestmark = pytest.mark.lxc


def directory_of(bench: Bench) -> Path:
    (found,) = Path(bench.pool_root).glob("*/*-m0")
    return found


@pytest.fixture
def inside(bench: Bench) -> Inside:
    def run(*argv: str) -> tuple[int, str]:
        where = directory_of(bench)
        done = subprocess.run(
            ["lxc-attach", "-P", str(where.parent), "-n", where.name, "--clear-env", "--", *argv],
            text=True, capture_output=True, check=False, timeout=60,
        )  # fmt: skip
        return done.returncode, done.stdout

    return run


def init_of(bench: Bench) -> int:
    """The child of its monitor."""
    monitor = (directory_of(bench) / "pid").read_text().strip()
    return int(Path(f"/proc/{monitor}/task/{monitor}/children").read_text().split()[0])


async def test_a_container_has_its_cpus_memory_and_processes(bench: Bench) -> None:
    await limits.expect_limits(bench, lambda: init_of(bench))


async def test_a_fork_bomb_ends_at_the_limit_and_with_power_off(
    bench: Bench, inside: Inside
) -> None:
    await limits.expect_end_of_a_fork_bomb(bench, lambda: init_of(bench), inside)


async def test_a_container_whose_root_is_full_starts_again(bench: Bench, inside: Inside) -> None:
    await limits.expect_start_of_a_full_root(bench, lambda: init_of(bench), inside)
