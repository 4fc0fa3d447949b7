"""A real standalone Ironic for the tests of this directory, which one worker runs."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nospoon.dev import ironic
from nospoon.dev.configuration import Wanted
from nospoon.dev.ironic import Ironic
from nospoon.testing.alone import held
from nospoon.testing.ironic import Api
from nospoon.testing.lasting import Lasting
from nospoon.testing.rack import CACHE, Rack

HERE = Path(__file__).parent
PORTS = range(9_500, 10_000, 2)
"""Of an API each, below those of racks; its files are served at the next one unless told."""
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
    """One that nobody has, nor the next one, and that the kernel gives to no connection meanwhile
    (net.ipv4.ip_local_port_range); another with each call, in every process.
    """
    for port in PORTS:
        descriptor = held(f"ironic-{port}")
        if descriptor is None:
            continue
        if is_free(port) and is_free(port + 1):
            return port  # the name is held until this process ends
        os.close(descriptor)
    raise AssertionError("no port is free")


def is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


@contextmanager
def _ironic() -> Iterator[Ironic]:
    """Made by the product's own command, from the environment that all tests share."""
    state = Path(tempfile.mkdtemp(prefix="nospoon-ironic-"))
    wanted = Wanted(port=free_port_number(), files_port=free_port_number(), options=IMPATIENT)
    try:
        yield asyncio.run(ironic.up(wanted, state=state, cache=CACHE))
    finally:
        asyncio.run(ironic.down(state=state, cache=CACHE, purge=False))
    assert not state.exists()


RUNNING = Lasting(HERE, _ironic)


@pytest.fixture
def running_ironic() -> Ironic:
    """One for all tests of this directory that a worker runs in a row."""
    return RUNNING.get()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    RUNNING.leave(nextitem)


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
