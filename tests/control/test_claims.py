"""Two plans that were made at one time: the second to be carried out gets nothing of the first."""

from __future__ import annotations

import asyncio
from ipaddress import IPv4Network, ip_interface
from pathlib import Path

import pytest
from sqlalchemy import update
from tests.control.asking import HOST, OTHER, OWNER, Asking, file_of
from tests.control.wired import wired
from tests.security.asked import a_daemon

from nospoon.control.operations.memory import Memory
from nospoon.control.planning.prepared import Prepared
from nospoon.control.request import Request
from nospoon.errors import PlanRefused, Stale
from nospoon.model.principal import Principal
from nospoon.model.resources.networks import Link
from nospoon.store import tables
from nospoon.store.operations import OperationState

MAC, ROOT = "02:00:00:00:00:01", 0


async def both_prepared(asking: Asking, *texts: str) -> list[tuple[Prepared, Request]]:
    """Plans of the same moment, the second of another user."""
    asked = [
        Request(Principal(uid), file="c.yaml", text=text)
        for uid, text in zip((OWNER, OTHER), texts, strict=True)
    ]
    planner = asking.planner
    return [(await planner.prepare(each, await planner.clusters.of(each)), each) for each in asked]


def apart(cluster: str, port: int, more: str) -> str:
    """A cluster whose BMCs are nobody else's."""
    bmc = f"bmc: {{ports: {port}-{port + 9}, redfish_port: {port + 10}}}\n"
    return f"cluster: {cluster}\nhosts: {{{HOST}: simulated}}\n{bmc}{more}\n"


NIC = f"networks: {{lan: {{}}}}\nnodes: [{{name: a, nics: [{{network: lan, mac: '{MAC}'}}]}}]"
LAN = "networks: {lan: {cidr: 10.91.0.0/24}}\nnodes: [{name: a, nics: [lan]}]"
WIDE = LAN.replace("/24", "/16")
SIX = LAN.replace("10.91.0.0/24", "'fd00:91::/64'")
WIDE_SIX = SIX.replace("/64", "/48")


@pytest.mark.parametrize(
    ("one", "other", "what"),
    [
        (file_of("a"), file_of("b"), "the same address and port"),
        (apart("c", 16200, NIC), apart("d", 16300, NIC), f"the same MAC, {MAC}"),
        (apart("c", 16200, LAN), apart("d", 16300, WIDE), "the same network, 10.91.0.0/16"),
        (apart("c", 16200, SIX), apart("d", 16300, WIDE_SIX), "the same network, fd00:91::/48"),
    ],
)
async def test_what_both_chose_is_the_first_ones_until_it_is_gone(
    tmp_path: Path, one: str, other: str, what: str
) -> None:
    async with wired(tmp_path) as asking:
        memory = asking.memory
        first, second = await both_prepared(asking, one, other)
        await memory.remember(*first)
        with pytest.raises(Stale, match=f"another cluster took {what}"):
            await memory.remember(*second)
        assert await asking.row(second[0].seen.cluster.name, uid=OTHER) is None
        await asking.down()
        await memory.remember(*second)


async def test_a_plan_refuses_a_network_that_another_cluster_has_on_its_host(
    tmp_path: Path,
) -> None:
    async with wired(tmp_path) as asking:
        await asking.up(apart("c", 16200, LAN))
        for wide in (LAN, WIDE):
            with pytest.raises(PlanRefused) as refused:
                await asking.plan(apart("d", 16300, wide), uid=OTHER)
            (reason,) = refused.value.reasons
            assert "network lan: 10.91.0.0/" in reason
            assert "overlaps a network of another cluster on the same host" in reason
        elsewhere = WIDE.replace("10.91", "10.92")
        assert (await asking.plan(apart("d", 16300, elsewhere), uid=OTHER)).steps
        assert (await asking.plan(apart("c", 16200, LAN))).empty


async def test_a_network_that_a_cluster_has_is_not_another_ones_to_take(tmp_path: Path) -> None:
    """Whoever names it for a host of his own: the first cluster has it, and keeps it."""
    lan = "networks: {lan: {netboot: builtin}}\nnodes: [{name: a, nics: [lan]}]"
    mine = apart("c", 16200, lan)
    async with wired(tmp_path) as asking:
        await asking.up(mine)
        row = await asking.row()
        assert row is not None
        cidr = row.allocations.cidrs["lan"]
        theirs = apart("d", 16300, lan.replace("netboot: builtin", f"cidr: {cidr}"))
        await asking.up(theirs.replace(f"{{{HOST}:", "{elsewhere:"), uid=OTHER)
        assert (await asking.plan(mine)).empty
        both = mine.replace(f"{{{HOST}: simulated", f"{{{HOST}: simulated, elsewhere: simulated")
        moved = await asking.plan(both.replace("nics: [lan]", "nics: [lan], host: elsewhere"))
        link = next(each.desired for each in moved.steps if each.key.name == "lan" if each.desired)
        assert isinstance(link.shape, Link)
        assert not IPv4Network(cidr).overlaps(ip_interface(link.shape.address).network)


async def test_a_plan_refuses_to_bring_a_network_to_a_host_where_another_cluster_has_it(
    tmp_path: Path,
) -> None:
    """Not only `up`, as stale each time."""
    both = f"{{{HOST}: simulated, elsewhere: simulated}}"
    mine = apart("c", 16200, LAN).replace(f"{{{HOST}: simulated}}", both)
    theirs = apart("d", 16300, WIDE).replace(f"{{{HOST}:", "{elsewhere:")
    async with wired(tmp_path) as asking:
        await asking.up(mine.replace("nics: [lan]", f"nics: [lan], host: {HOST}"))
        await asking.up(theirs, uid=OTHER)
        with pytest.raises(PlanRefused, match=r"network lan: 10\.91\.0\.0/24 overlaps"):
            await asking.plan(mine.replace("nics: [lan]", "nics: [lan], host: elsewhere"))


async def test_a_cluster_whose_port_another_one_got_meanwhile_gets_the_next(tmp_path: Path) -> None:
    """As one that was lost with the store, and recovered after another one had come."""
    bmc = "bmc: {ports: 16200-16209, redfish_port: 16210}\n"
    mine = file_of("a", more=bmc)
    async with wired(tmp_path) as asking:
        await asking.up(mine)
        await asking.up(apart("d", 16300, "nodes: [{name: a}]"))
        before, other = await asking.row(), await asking.row("d")
        assert before is not None
        assert other is not None
        row = update(tables.claimed_endpoints).where(tables.claimed_endpoints.c.port == 16200)
        its = row.values(cluster_id=str(other.id))
        await asking.database.call(lambda connection: connection.execute(its).rowcount)
        assert (await asking.up(mine)).state is OperationState.DONE
        now = await asking.row()
        assert now is not None
        assert before.allocations.endpoints["a"].ipmi_port == 16200
        assert now.allocations.endpoints["a"].ipmi_port == 16201


@pytest.mark.parametrize(("first", "second"), [("0.0.0.0", "127.0.0.1"), ("127.0.0.1", "0.0.0.0")])
async def test_a_port_of_redfish_is_chosen_beside_ones_own_socket_of_all_addresses(
    tmp_path: Path, first: str, second: str
) -> None:
    """Clusters of a user share a socket, which these have not."""
    text = f"cluster: {{}}\nhosts: {{{{{HOST}: simulated}}}}\n"
    text += "bmc: {{address: {}, ports: {}}}\nnodes: [{{}}]\n"
    async with wired(tmp_path) as asking:
        await asking.up(text.format("c", first, "16200-16209"), uid=ROOT)
        await asking.up(text.format("d", second, "16300-16309"), uid=ROOT)
        await asking.up(text.format("e", second, "16400-16409"), uid=ROOT)
        rows = [await asking.row(name, uid=ROOT) for name in "cde"]
        ends = [end for row in rows if row for end in row.allocations.endpoints.values()]
        assert [end.redfish_port for end in ends] == [8000, 8001, 8001]


async def test_nodes_that_leave_free_their_macs(tmp_path: Path) -> None:
    two = NIC.replace("]}]", "]}, {name: b}]")
    async with wired(tmp_path) as asking:
        await asking.up(apart("c", 16200, two))
        with pytest.raises(PlanRefused, match="has a NIC with MAC"):
            await asking.up(apart("d", 16300, NIC), uid=OTHER)
        await asking.up(apart("c", 16200, "networks: {lan: {}}\nnodes: [{name: b}]"))
        await asking.up(apart("d", 16300, NIC), uid=OTHER)
        assert (await asking.nodes("d", uid=OTHER)).keys() == {"a"}


async def test_a_network_in_ipv6_of_another_cluster_is_refused_and_ones_own_stays(
    tmp_path: Path,
) -> None:
    async with wired(tmp_path) as asking:
        await asking.up(apart("c", 16200, SIX))
        assert not (await asking.plan(apart("c", 16200, SIX))).steps
        wrong = r"network lan: fd00:91::/48 overlaps a network of another cluster"
        with pytest.raises(PlanRefused, match=wrong):
            await asking.up(apart("d", 16300, WIDE_SIX), uid=OTHER)
        await asking.up(apart("c", 16200, LAN))
        await asking.up(apart("d", 16300, WIDE_SIX), uid=OTHER)


async def test_of_two_users_who_agreed_at_once_one_is_told_what_was_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both plans say the first free port. No word of whose it is now."""
    remember, both = Memory.remember, asyncio.Barrier(2)

    async def together(memory: Memory, prepared: Prepared, request: Request) -> object:
        await both.wait()
        return await remember(memory, prepared, request)

    async with a_daemon(tmp_path) as asked:
        bodies = [{"file": "c.yaml", "text": file_of(name)} for name in ("a", "b")]
        users = (OWNER, OTHER)
        for uid, body in zip(users, bodies, strict=True):
            plan = await asked.ask(uid, "POST", "/v1/plan", body)
            body["fingerprint"] = plan.json["plan"]["fingerprint"]
        monkeypatch.setattr(Memory, "remember", together)
        both_ask = zip(users, bodies, strict=True)
        asking = (asked.ask(uid, "POST", "/v1/clusters", body) for uid, body in both_ask)
        answers = await asyncio.gather(*asking)
        assert sorted(each.status for each in answers) == [202, 409]
        (refused,) = (each for each in answers if each.status == 409)
        assert refused.json["error"]["message"] == (
            "the plan is stale: another cluster took the same address and port, TCP 127.0.0.1:8000"
        )
        (done,) = (each for each in answers if each.status == 202)
        await asked.finished(users[answers.index(done)], done.json["operation"]["id"])
