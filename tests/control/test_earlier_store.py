"""A store of an earlier version, with its cluster up, is this version's.

`earlier` has what a version of schema 0010 left (commit ae550098, before connections declared) of
two simulated nodes, one of which is on: its database as SQL, its key and the host's memory.
"""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
from tests.control.in_process import HOST, AskingDaemon, a_control_plane

from nospoon.model.boot import BootDevice, OverrideEnabled
from nospoon.model.machine import PowerState
from nospoon.store.operations import OperationState

EARLIER = Path(__file__).parent / "earlier"
TEXT = (EARLIER / "c.yaml").read_text()
PASSWORD, ROOT = "uq1qNTOkAtLRzOKD", 0


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The directory of a daemon that was of the earlier version."""
    state = tmp_path / "state"
    (state / "simulated").mkdir(parents=True)
    with sqlite3.connect(state / "nospoon.db") as database:
        database.executescript((EARLIER / "0010.sql").read_text())
    shutil.copy(EARLIER / "nospoon.key", state)
    (state / "nospoon.key").chmod(0o600)
    memory = (EARLIER / f"{HOST}.json").read_text().replace("POOLS", f"{tmp_path}/pool")
    (state / "simulated" / f"{HOST}.json").write_text(memory)
    return tmp_path


def boots(asking: AskingDaemon) -> dict[str, tuple[PowerState, int]]:
    """Whether each machine is on, and how often it was started since it was made."""
    return {
        each.node: (asking.host.state(each.uuid).power, asking.host.state(each.uuid).boots)
        for each in asking.daemon.parts.fleet.all()
    }


async def test_its_cluster_is_up_as_it_was_and_the_next_up_has_nothing_to_do(place: Path) -> None:
    async with a_control_plane(place) as asking:
        before = asking.made()
        plan = await asking.plan(TEXT, uid=ROOT)
        assert (plan.empty, plan.remembers) == (True, False)
        assert boots(asking) == {"a": (PowerState.ON, 1), "b": (PowerState.OFF, 0)}
        assert {f"machine/{each}" for each in "ab"} < before == asking.made()


async def test_its_bmcs_keep_their_accounts_and_what_they_were_set_to(place: Path) -> None:
    async with a_control_plane(place) as asking:
        nodes = {each.node: each.uuid for each in asking.daemon.parts.fleet.all()}
        served = asking.daemon.parts.bmcs.status(nodes["b"])
        assert served is not None
        assert served.aggregate.runtime.override.target is BootDevice.NETWORK
        assert served.aggregate.runtime.override.enabled is OverrideEnabled.ONCE
        kept = (await asking.nodes(uid=ROOT))["b"]
        assert asking.daemon.parts.cipher.decrypt(kept.password) == PASSWORD


async def test_the_migration_is_whole(place: Path) -> None:
    async with a_control_plane(place) as asking:
        await asking.up(TEXT.replace("1GiB", "2GiB"), uid=ROOT)
        assert (await asking.plan(TEXT.replace("1GiB", "2GiB"), uid=ROOT)).empty
    async with a_control_plane(place) as asking:  # which reads no file of before
        assert (await asking.plan(TEXT.replace("1GiB", "2GiB"), uid=ROOT)).empty
        assert (await asking.down(uid=ROOT)).state is OperationState.DONE
        assert asking.made() == set()
