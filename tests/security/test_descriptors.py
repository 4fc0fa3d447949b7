"""Descriptors: BMCs take none that others need, and a member no more than a share of them."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.security.asked import OWNER, a_daemon

from nospoon.control.planning import planner
from nospoon.model.resources.keys import Kind

TEXT = """cluster: c
hosts: {s: simulated}
bmc: {ports: 46230-46240, redfish_port: 46300}
nodes: [{count: 3}]
"""


@contextmanager
def no_descriptors_left() -> Iterator[None]:
    """For BMCs: those that are open stay, and two more may be had."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as probe:
        free = probe.fileno()
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 2, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_bmc_without_a_descriptor_is_a_fault_of_that_bmc(tmp_path: Path) -> None:
    async with a_daemon(tmp_path) as asked:
        daemon = asked.daemon
        assert (await asked.up(OWNER, TEXT)).status == 202
        (member, *_) = daemon.parts.fleet.of(OWNER)
        for each in daemon.parts.fleet.of(OWNER):
            await daemon.parts.bmcs.remove(each.uuid)
        with no_descriptors_left():
            failed = await daemon._restore_bmcs()
        assert len(failed) == 3
        assert all("too few descriptors are left" in why for why in failed.values())
        observed = await daemon.parts.drivers.of(member.host)[Kind.BMC].observe(None)
        assert {each.fault for each in observed} == {
            f"not served: {why}" for why in failed.values()
        }
        assert await daemon._restore_bmcs() == {}


async def test_bmcs_of_a_member_have_so_many_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"file": "c.yaml", "text": TEXT}
    async with a_daemon(tmp_path) as asked:
        monkeypatch.setattr(planner, "sockets_of_a_member", lambda: 4)
        assert (await asked.ask(OWNER, "POST", "/v1/plan", body)).status == 200
        monkeypatch.setattr(planner, "sockets_of_a_member", lambda: 3)
        refused = await asked.ask(OWNER, "POST", "/v1/plan", body)
        (reason,) = refused.json["error"]["reasons"]
        assert "would need 4 sockets, and members may have 3" in reason
