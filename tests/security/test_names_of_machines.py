"""A host of a file that is called as a machine takes nothing of that machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.security.asked import OTHER, OWNER, a_daemon

from nospoon.model.capabilities import Capabilities, identity_of
from nospoon.providers.simulated.connection import SimulatedConnection

MACHINE = "kvm1"
CALLED_SO = f"""\
cluster: all
hosts: {{{MACHINE}: simulated}}
nodes: [{{count: 10, cpus: 512, memory: 4TiB, disks: [10TiB]}}]
"""
OWN = """\
cluster: own
hosts: {here: {simulated: {cpus: 8, memory: 64GiB}}}
nodes: [{cpus: 1, memory: 1GiB}]
"""


async def test_simulated_nodes_take_nothing_of_a_machine_of_their_hosts_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was left of it for any other user, root included."""
    whole = SimulatedConnection.capabilities

    async def named(self: SimulatedConnection) -> Capabilities:
        can = await whole(self)
        is_real = self.around.simulation.cpus > 0  # as libvirt's connection to a machine
        return replace(can, identity=identity_of(MACHINE)) if is_real else can

    monkeypatch.setattr(SimulatedConnection, "capabilities", named)
    async with a_daemon(tmp_path) as asked:
        assert (await asked.up(OTHER, CALLED_SO)).status == 202
        for uid in (OWNER, 0):
            assert (await asked.up(uid, OWN)).status == 202
