"""A cluster that is given as a value, in no file: planned, made, shown, known again and removed."""

from __future__ import annotations

import io
import tarfile
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from tests.control.in_process import OWNER, AskingDaemon, a_control_plane, file_of

from nospoon.control.request import Request
from nospoon.errors import PlanRefused, SpecError
from nospoon.model.cluster import Cluster
from nospoon.store.operations import OperationState


async def value_of(asking: AskingDaemon, *nodes: str, uid: int = OWNER) -> Cluster:
    """As a lab makes one of what the store has."""
    caller = asking.daemon.parts.admins.principal(uid)
    return await asking.planner.clusters.of(Request(caller, file="x", text=file_of(*nodes)))


def asked(asking: AskingDaemon, cluster: Cluster, uid: int = OWNER) -> Request:
    return Request(
        asking.daemon.parts.admins.principal(uid), file="recipe set 1.1", cluster=cluster
    )


async def up(asking: AskingDaemon, cluster: Cluster) -> str:
    _, operation = await asking.controller.up(asked(asking, cluster))
    assert operation is not None
    return (await asking.ended(operation.id)).state


async def test_it_is_brought_up_again_by_what_differs_and_removed(tmp_path: Path) -> None:
    async with a_control_plane(tmp_path) as asking:
        cluster = await value_of(asking, "n1")
        assert await up(asking, cluster) == OperationState.DONE
        _, nothing = await asking.controller.up(asked(asking, cluster))
        assert nothing is None
        assert await up(asking, await value_of(asking, "n1", "n2")) == OperationState.DONE
        assert {"machine/n1", "machine/n2"} <= asking.made()
    async with a_control_plane(tmp_path) as asking:
        caller = asking.daemon.parts.admins.principal(OWNER)
        shown = await asking.controller.status(caller, "c")
        assert {node.node: node.state for node in shown.nodes} == {"n1": "present", "n2": "present"}
        packed = await asking.controller.support_bundle(caller, "c")
        with tarfile.open(fileobj=io.BytesIO(packed)) as bundle:
            names = {each.rpartition("/")[2] for each in bundle.getnames()}
        assert "resolved.json" in names
        assert "cluster.yaml" not in names, "there is none"
        await asking.down()
        assert asking.made() == set()


async def test_reasons_against_it_are_at_no_place_of_a_file(tmp_path: Path) -> None:
    async with a_control_plane(tmp_path) as asking:
        cluster = await value_of(asking, "n1")
        (node,) = cluster.nodes
        nic = replace(node.nics[0], mac="52:54:00:00:00:01")
        cluster = replace(cluster, nodes=(replace(node, nics=(nic,)),))
        assert await up(asking, cluster) == OperationState.DONE
        other = replace(cluster, name="d")
        with pytest.raises(PlanRefused, match=r"^node n1: "):
            await asking.planner.prepare(asked(asking, other), other)


async def test_one_that_another_version_stored_says_so(tmp_path: Path) -> None:
    async with a_control_plane(tmp_path) as asking:
        await up(asking, await value_of(asking, "n1"))
        row = await asking.row()
        assert row is not None
        with pytest.raises(SpecError, match=r"recipe set 1\.1:1:1: it is in no file"):
            await asking.planner.clusters.stored(replace(row, desired=b""))


async def test_what_an_earlier_version_stored_holds_where_its_file_is_refused(
    tmp_path: Path,
) -> None:
    """Its labs were gone, and with them all of their leases."""
    async with a_control_plane(tmp_path) as asking:
        await up(asking, await value_of(asking, "n1"))
        row = await asking.row()
        assert row is not None
        cipher = asking.daemon.parts.cipher
        text = zlib.decompress(cipher.decrypt_bytes(row.desired))
        older = cipher.encrypt_bytes(zlib.compress(text.replace(b'"format": 3', b'"format": 2', 1)))
        refused = cipher.encrypt("cluster: c\nodd: 1\n").decode()
        found = asking.planner.clusters.kept(replace(row, desired=older, text=refused))
        assert [node.name for node in found.nodes] == ["n1"]
        accepted = cipher.encrypt(file_of("n2")).decode()
        found = asking.planner.clusters.kept(replace(row, desired=older, text=accepted))
        assert [node.name for node in found.nodes] == ["n2"], "the file says more"
        with pytest.raises(SpecError, match="odd"):
            asking.planner.clusters.kept(replace(row, desired=b"", text=refused))
