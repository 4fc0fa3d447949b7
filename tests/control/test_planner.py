"""The planner: from a request and what there is to a plan, without changing anything."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from tests.control.asking import OTHER, OWNER, file_of
from tests.control.wired import wired

from nospoon.control.fleet.usage import standing
from nospoon.control.request import Request
from nospoon.engine.looks import Looks
from nospoon.errors import (
    Conflict,
    HostUnreachable,
    PlanRefused,
    SpecError,
    Stale,
    UsageError,
)
from nospoon.model.capabilities import Capabilities
from nospoon.model.principal import Principal
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.resource import Observed
from nospoon.plan.order.steps import Action
from nospoon.plan.placement.room import Usage
from nospoon.providers.base import Driver
from nospoon.providers.simulated.connection import SimulatedConnection
from nospoon.store import clusters as stored

PINNED = "id: 11223344-1111-4111-8111-111111111111\n"


async def test_a_plan_makes_everything_and_changes_nothing(tmp_path: Path) -> None:
    async with wired(tmp_path) as asking:
        plan = await asking.plan(file_of("n1", "n2"))
        assert {step.action for step in plan.steps} == {Action.CREATE}
        kinds = [str(step.key.kind) for step in plan.steps]
        assert {kind: kinds.count(kind) for kind in kinds} == {
            "pool": 1, "network": 1, "volume": 2, "machine": 2, "bmc": 2,
        }  # fmt: skip
        for step in plan.steps:  # what it needs is made before it
            assert step.desired is not None
            done = [each.key for each in plan.steps[: plan.steps.index(step)]]
            assert set(step.desired.needs) <= set(done)
        assert asking.made() == set()
        assert await asking.row() is None
        assert len(asking.fleet) == 0
        assert await asking.operations.list(None) == []


async def test_a_cluster_that_is_not_there_keeps_its_id_from_plan_to_plan_for_its_user(
    tmp_path: Path,
) -> None:
    async with wired(tmp_path) as asking:
        first, again = [await asking.plan(file_of("n1")) for _ in range(2)]
        assert (first.cluster_id, first.fingerprint) == (again.cluster_id, again.fingerprint)
        others = await asking.plan(file_of("n1"), uid=OTHER)
        assert others.cluster_id != first.cluster_id
        await asking.up(file_of("n1"), fingerprint=first.fingerprint)
        row = await asking.row()
        assert row is not None
        assert row.id == first.cluster_id


async def test_what_changed_since_a_plan_was_agreed_on_makes_it_stale(tmp_path: Path) -> None:
    async with wired(tmp_path) as asking:
        agreed = await asking.plan(file_of("n1", "n2"))
        await asking.up(file_of("n1"))
        with pytest.raises(Stale, match="something has changed"):
            await asking.plan(file_of("n1", "n2"), fingerprint=agreed.fingerprint)


async def test_all_reasons_are_given_at_once_each_where_its_cause_is(tmp_path: Path) -> None:
    ports = (7101, 7102)
    nodes = "".join(f"- {{name: n{port}, bmc: {{port: {port}}}}}\n" for port in ports)
    async with wired(tmp_path) as asking:
        await asking.up(file_of(cluster="d") + nodes)
        with pytest.raises(PlanRefused) as refused:
            await asking.plan(file_of("n1") + nodes)
    assert [each.split(": ")[0] for each in refused.value.reasons] == ["c.yaml:5:3", "c.yaml:6:3"]
    for port, reason in zip(ports, refused.value.reasons, strict=True):
        assert str(port) in reason


async def test_a_cluster_that_is_up_differs_in_nothing_and_then_in_what_the_file_says(
    tmp_path: Path,
) -> None:
    async with wired(tmp_path) as asking:
        await asking.up(file_of("n1", "n2"))
        assert (await asking.plan(file_of("n1", "n2"))).empty
        more = file_of("n1").replace("[1GiB]", "[1GiB], memory: 2GiB")
        plan = await asking.plan(more)
        changed = {str(step.key): step for step in plan.steps}
        memory = changed["machine/n1@s"]
        assert memory.action is Action.CHANGE
        assert [(each.field, each.rule) for each in memory.changes] == [("memory", "at power-off")]
        gone = {key for key, step in changed.items() if step.action is Action.DELETE}
        assert gone == {"machine/n2@s", "volume/n2-0@s", "bmc/n2@s"}
        assert len(changed) == 4


async def test_a_plan_of_some_nodes_leaves_the_others_alone(tmp_path: Path) -> None:
    async with wired(tmp_path) as asking:
        plan = await asking.plan(file_of("alpha", "beta"), targets=("alpha",))
        assert {step.node for step in plan.steps} == {"", "alpha"}
        with pytest.raises(UsageError, match="no node 'alpa' in the file") as refused:
            await asking.plan(file_of("alpha", "beta"), targets=("alpa",))
        assert refused.value.hint == "Did you mean 'alpha'?"


async def test_what_a_host_makes_none_of_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    able = SimulatedConnection.capabilities

    async def unable(connection: SimulatedConnection) -> Capabilities:
        can = await able(connection)
        return replace(can, kinds=can.kinds - {Kind.NETWORK, Kind.VOLUME})

    monkeypatch.setattr(SimulatedConnection, "capabilities", unable)
    async with wired(tmp_path) as asking:
        with pytest.raises(PlanRefused) as refused:
            await asking.up(file_of("n1", "n2"))
        (why,) = refused.value.reasons
        assert "host s makes none of these: network, volume" in why
        assert asking.made() == set()


async def test_no_plan_without_a_host_but_for_who_only_looks(tmp_path: Path) -> None:
    async with wired(tmp_path) as asking:
        await asking.up(file_of("n1"))
        asking.host.reachable = False
        with pytest.raises(HostUnreachable, match=r"host s \(simulated\) does not answer"):
            await asking.plan(file_of("n1"))
        plan = await asking.plan(file_of("n1"), fetches=False)
        assert plan.empty, "what nobody sees is not missing"
        asking.host.reachable = True
        assert (await asking.plan(file_of("n1"))).empty


async def test_the_id_of_a_cluster_is_no_other_ones(tmp_path: Path) -> None:
    async with wired(tmp_path) as asking:
        await asking.up(file_of("n1", more=PINNED))
        with pytest.raises(PlanRefused, match="is that of your cluster c"):
            await asking.plan(file_of("n1", cluster="d", more=PINNED))
        with pytest.raises(PlanRefused, match="is that of another cluster"):
            await asking.plan(file_of("n1", cluster="d", more=PINNED), uid=OTHER)
        other = PINNED.replace("1122", "2211")
        with pytest.raises(PlanRefused, match="Take it down first, or drop `id:`"):
            await asking.plan(file_of("n1", more=other))


async def test_what_clusters_of_others_have_is_not_chosen_again(tmp_path: Path) -> None:
    async with wired(tmp_path) as asking:
        await asking.up(file_of("n1", "n2"))
        await asking.up(file_of("n1", "n2"), uid=OTHER)
        rows = [await asking.row(), await asking.row(uid=OTHER)]
        places = [
            {(each.address, each.ipmi_port) for each in row.allocations.endpoints.values()}
            for row in rows
            if row is not None
        ]
        assert [len(each) for each in places] == [2, 2]
        assert not places[0] & places[1]
        networks = [dict(row.allocations.cidrs) for row in rows if row is not None]
        assert networks[0]["provision"] != networks[1]["provision"]


async def test_what_cannot_be_open_beside_another_cluster_names_that_of_the_user_alone(
    tmp_path: Path,
) -> None:
    place = "bmc: {redfish_port: 16230%s}\n"
    async with wired(tmp_path) as asking:
        await asking.up(file_of("n1", more=place % ""))
        secured = file_of("n1", cluster="d", more=place % ", tls: true")
        with pytest.raises(PlanRefused, match="while your cluster c is served at TCP") as refused:
            await asking.plan(secured)
        assert "or the same `bmc.tls`" in refused.value.reasons[0]
        with pytest.raises(PlanRefused, match="while another cluster is served") as refused:
            await asking.plan(secured, uid=OTHER)
        assert "another user's BMCs answer Redfish at" in refused.value.reasons[1]
        await asking.plan(file_of("n1", cluster="d", more=place % ""))
        await asking.down()
        await asking.plan(secured, uid=OTHER)


async def test_plans_at_once_share_their_looks_and_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, observe = list[Kind](), Looks.observe

    async def counted(looks: Looks, driver: Driver, cluster: UUID | None) -> Sequence[Observed]:
        shared.append(driver.kind)
        return await observe(looks, driver, cluster)

    async with wired(tmp_path) as asking:
        await asking.up(file_of("n1"))
        monkeypatch.setattr(Looks, "observe", counted)
        plans = await asyncio.gather(*(asking.plan(file_of("n1", "n2")) for _ in range(5)))
        assert len({plan.fingerprint for plan in plans}) == 1
        assert shared.count(Kind.MACHINE) == shared.count(Kind.BMC) == 5


async def test_a_member_has_a_limited_number_of_nodes_in_all_clusters(tmp_path: Path) -> None:
    async with wired(tmp_path, member_nodes=3) as asking:
        await asking.up(file_of("n1", "n2"))
        await asking.plan(file_of("n1", cluster="d"))
        with pytest.raises(Conflict, match="2 of them in other clusters, and members may have 3"):
            await asking.plan(file_of("n1", "n2", cluster="d"))
        await asking.plan(file_of("n1", "n2", cluster="d"), uid=OTHER)
        await asking.plan(file_of("n1", "n2", "n3"))


async def test_the_hosts_of_a_stored_cluster_are_those_it_may_have_things_on(
    tmp_path: Path,
) -> None:
    async with wired(tmp_path) as asking:
        await asking.up(file_of("n1"))
        row = await asking.row()
        assert row is not None
        assert [host.name for host in await asking.planner.clusters.hosts_of(row)] == ["s"]
        await asking.database.call(stored.keep_hosts, row.id, [])
        asked = await asking.planner.clusters.hosts_of(row)  # as an earlier version left them
        assert [host.name for host in asked] == ["s"]


async def test_a_stored_cluster_is_a_value_and_its_text_is_not_read(tmp_path: Path) -> None:
    async with wired(tmp_path) as asking:
        await asking.up(file_of("n1"))
        row = await asking.row()
        assert row is not None
        known = await asking.planner.clusters.stored(row)
        assert [node.name for node in known.nodes] == ["n1"]
        unread = replace(row, text=asking.cipher.encrypt("nodes: [7]").decode())
        assert await asking.planner.clusters.stored(unread) == known
        with pytest.raises(SpecError):  # as an earlier version left it
            await asking.planner.clusters.stored(replace(unread, desired=b""))


async def test_what_is_to_be_fetched_is_what_nobody_has_a_copy_of(tmp_path: Path) -> None:
    text = file_of("n1").replace("[1GiB]", "[{image: 'http://192.0.2.1/disk.img'}]")
    async with wired(tmp_path) as asking:
        request = Request(Principal(OWNER), file="c.yaml", text=text)
        cluster = await asking.planner.clusters.of(request)
        assert await asking.planner.to_fetch(request, cluster) == ["http://192.0.2.1/disk.img"]
        request = Request(Principal(OWNER), file="c.yaml", text=file_of("n1"))
        cluster = await asking.planner.clusters.of(request)
        assert await asking.planner.to_fetch(request, cluster) == []


async def test_nodes_take_what_they_were_made_with_whatever_the_file_says_by_now(
    tmp_path: Path,
) -> None:
    async with wired(tmp_path) as asking:
        await asking.up(file_of("a", "b"))
        rows = list((await asking.nodes()).values())
        cluster = rows[0].cluster_id
        observed = await asking.bmcs.observe(cluster)
        made = Usage(1, rows[0].machine.memory, 1 << 30)
        assert standing(rows, observed) == {"a": made, "b": made}
        assert standing(rows, observed[:1]).keys() == {observed[0].key.name}
        assert standing(rows, ()) == {}
