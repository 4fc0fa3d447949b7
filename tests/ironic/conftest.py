"""A real standalone Ironic for the tests of this directory, which one worker runs."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from nospoon.dev import ironic
from nospoon.dev.configuration import Wanted
from nospoon.dev.ironic import Ironic
from nospoon.testing.ironic import Api
from nospoon.testing.rack import CACHE, Rack

HERE = Path(__file__).parent
PORTS = iter(range(9_500 + os.getpid() % 10 * 40, 10_000))
"""The next ones to be tried, below those of racks: of two runs at once, hardly the same."""
IMPATIENT = (
    "conductor.deploy_callback_timeout=40",
    "conductor.clean_callback_timeout=40",
    "conductor.max_concurrent_clean=5",
    "conductor.max_concurrent_deploy=5",
    "conductor.check_provision_state_interval=5",
    "conductor.power_state_change_timeout=10",
    "agent.command_wait_interval=1",
    "agent.post_deploy_get_power_state_retry_interval=1",
    "agent.post_deploy_get_power_state_retries=3",
    "ipmi.command_retry_timeout=5",
    "deploy.erase_devices_priority=0",
)
"""Conductors wait for minutes until they call something a failure, and clean 50 nodes at once."""


@pytest.fixture
def cache() -> Path:
    return CACHE


@pytest.fixture
def free_port() -> int:
    return free_port_number()


@pytest.fixture
def another_port() -> int:
    return free_port_number()


def free_port_number() -> int:
    """One that nobody has, and that the kernel gives to no connection meanwhile
    (net.ipv4.ip_local_port_range); another with each call.
    """
    for port in PORTS:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")


@pytest.fixture(scope="session")
def running_ironic() -> Iterator[Ironic]:
    """Made by the product's own command, from the environment that all tests share."""
    state = Path(tempfile.mkdtemp(prefix="nospoon-ironic-"))
    wanted = Wanted(port=free_port_number(), files_port=free_port_number(), options=IMPATIENT)
    try:
        yield asyncio.run(ironic.up(wanted, state=state, cache=CACHE))
    finally:
        asyncio.run(ironic.down(state=state, cache=CACHE, purge=False))
    assert not state.exists()


@pytest.fixture
def own_directory() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="nospoon-ironic-"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def api(running_ironic: Ironic) -> Api:
    return Api(running_ironic.endpoint)


@pytest.fixture
def rack(own_directory: Path) -> Iterator[Rack]:
    made = Rack.at(own_directory)
    try:
        yield made
        made.close()
    except BaseException:
        print(made.log()[-8000:])  # noqa: T201  (what its reader needs)
        raise
    finally:
        made.kill()
