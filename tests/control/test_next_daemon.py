"""What a daemon knows that starts over the store of the one before."""

from __future__ import annotations

from pathlib import Path

from tests.control.in_process import OTHER, a_control_plane, file_of


async def test_the_next_daemon_knows_all_nodes_as_they_were(tmp_path: Path) -> None:
    async with a_control_plane(tmp_path) as asking:
        await asking.up(file_of("a", "b"))
        await asking.up(file_of("a"), uid=OTHER)
        known = [await asking.nodes(), await asking.nodes(uid=OTHER)]
        members = {(each.owner, each.path, each.uuid) for each in asking.daemon.parts.fleet.all()}
    async with a_control_plane(tmp_path) as asking:
        found = {(each.owner, each.path, each.uuid) for each in asking.daemon.parts.fleet.all()}
        assert found == members
        assert len(found) == 3
        assert [await asking.nodes(), await asking.nodes(uid=OTHER)] == known
        assert (await asking.plan(file_of("a", "b"))).empty
