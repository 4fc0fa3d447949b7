"""Whose bridges a network may plug into: of members those that root's list names, and of nobody one
that nospoon made for another cluster.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import Connection, insert
from tests.security.asked import OTHER, OWNER, a_daemon

from nospoon.clusterfile.grants import load_grants
from nospoon.clusterfile.load import load
from nospoon.control.planning.saved import refuse_anothers_bridges
from nospoon.errors import Conflict
from nospoon.model.cluster import Arch, Firmware
from nospoon.model.grants import DEFAULTS, Grants
from nospoon.model.host_facts import HostFacts
from nospoon.plan.access import violations
from nospoon.plan.addresses.allocate import Allocations
from nospoon.plan.addresses.claims import Scope, found_claims
from nospoon.plan.identity import bridge_name, made_for_a_cluster, pool_name
from nospoon.plan.placement.hosts import against_network
from nospoon.store import tables
from nospoon.testing.cloud_connection import fake_cloud

VICTIM = bridge_name(UUID("11111111-2222-3333-4444-555555555555"), "lan")
FACTS = HostFacts(
    frozenset(Firmware), frozenset(Arch), tpm=True,
    links=frozenset({VICTIM, "vnet7", "eth1", "br-lan", "nstest"}),
    masters={"vnet7": VICTIM, "eth1": "br-lan"},
    bridges=frozenset({VICTIM, "br-lan", "nstest"}),
)  # fmt: skip
BOTH = """cluster: c
hosts: {a: {libvirt: 'qemu:///system', physnets: {p: eth1, unused: eth9}}, s: simulated}
networks:
  x: {bridge: br-lan, vlan: 7, switch: ovs}
  y: {physnet: p}
  z: {}
nodes: [{host: a, nics: [x, y, z]}]
"""


def test_members_plug_into_listed_bridges_only() -> None:
    cluster = load(BOTH, file="f")
    found = [each.path for each in violations(cluster, DEFAULTS)]
    assert found == [("networks", "x", "bridge"), ("hosts", "a", "physnets", "p")]
    listed = load_grants("bridges: [br-lan, eth1]\n", file="g")
    assert listed == Grants(bridges=frozenset({"br-lan", "eth1"}))
    assert list(violations(cluster, listed)) == []


def test_simulated_hosts_have_no_bridges_to_plug_into() -> None:
    text = "cluster: c\nhosts: {s: simulated}\nnetworks: {x: {bridge: br0}}\nnodes: [{nics: [x]}]\n"
    assert list(violations(load(text, file="f"), DEFAULTS)) == []


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        (f"{{bridge: {VICTIM}}}", True),
        ("{bridge: nstest}", False),  # an administrator's own
        ("{bridge: br-lan}", False),
        ("{physnet: eth1}", False),
        ("{physnet: lan}", True),
        ("{physnet: vnet7}", True),  # a guest's end of that network
    ],
)
def test_nobody_plugs_into_a_bridge_of_another_cluster(given: str, *, refused: bool) -> None:
    text = (
        f"cluster: c\nhosts: {{a: {{physnets: {{lan: {VICTIM}, vnet7: vnet7, eth1: eth1}}}}}}\n"
        f"networks: {{x: {given}}}\nnodes: [{{nics: [x]}}]\n"
    )
    cluster = load(text, file="f")
    for facts in (FACTS, replace(FACTS, links=None)):
        (network,) = cluster.networks
        why = "".join(against_network(network, cluster.hosts[0], facts))
        assert ("for one cluster, and for no other" in why) == refused, why


def test_the_names_of_made_bridges_are_known_again() -> None:
    for network in ("lan", "provision-of-long-name", "x"):
        assert made_for_a_cluster(bridge_name(UUID(int=7), network))
    assert not made_for_a_cluster("nspoon0")


def test_an_id_that_gives_another_cluster_s_bridge_is_refused() -> None:
    victim, thief = UUID(int=1), UUID(int=2)
    text = "cluster: c\nnetworks: {lan: {}, b: {bridge: br0}}\nnodes: [{}]\n"
    cluster = load(text, file="f")
    refuse_anothers_bridges(cluster, thief, {bridge_name(victim, "lan"), "br0", ""})
    with pytest.raises(Conflict, match="network lan: its bridge would be ns"):
        refuse_anothers_bridges(cluster, victim, {bridge_name(victim, "lan"), "br0", ""})


async def test_no_cluster_gets_the_bridge_of_another_one(tmp_path: Path) -> None:
    """Found by trying ids: 24 bits are few, and here the name of the network is chosen, too."""
    text = "cluster: {}\nid: {}\nhosts: {{s: simulated}}\nnetworks: {{lan: {{}}}}\nnodes: [{{}}]\n"
    mine, theirs = UUID(int=3), UUID(int=4)
    async with a_daemon(tmp_path) as asked:
        assert (await asked.up(OWNER, text.format("a", mine))).status == 202
        (member,) = asked.daemon.parts.fleet.of(OWNER)
        (nic,) = member.machine.nics
        assert nic.network == bridge_name(mine, "lan")
        assert asked.daemon.parts.fleet.bridges(but=theirs) == {nic.network}
        assert asked.daemon.parts.fleet.bridges(but=mine) == frozenset()
        taken = replace(nic, network=bridge_name(theirs, "lan"))  # as if the digests were equal
        machine = replace(member.machine, nics=(taken,))
        asked.daemon.parts.fleet.put(replace(member, machine=machine))
        body = {"file": "c.yaml", "text": text.format("b", theirs)}
        for refused in (
            await asked.ask(OTHER, "POST", "/v1/plan", body),
            await asked.up(OTHER, text.format("b", theirs)),
        ):
            assert refused.status == 409
            assert "which another cluster has" in refused.json["error"]["message"]


async def test_a_machine_of_others_that_is_on_a_clusters_bridge_does_not_take_it(
    tmp_path: Path,
) -> None:
    """Its owner plugged it in, and may adopt it in another cluster."""
    mine = f"cluster: a\nid: {UUID(int=3)}\nhosts: {{s: simulated}}\nnetworks: {{lan: {{}}}}\n"
    mine += "nodes: [{}]\n"
    theirs = "cluster: b\nhosts: {t: {simulated: {machines: [x]}}}\nnodes: [{adopt: x}]\n"
    bridge = bridge_name(UUID(int=3), "lan")
    async with a_daemon(tmp_path) as asked:
        fleet = asked.daemon.parts.fleet
        assert (await asked.up(OWNER, mine)).status == 202
        assert (await asked.up(OTHER, theirs)).status == 202
        (member,) = fleet.of(OTHER)
        assert member.machine.adopted
        nic = replace(member.machine.nics[0], network=bridge)
        plugged = replace(member, machine=replace(member.machine, nics=(nic,)))
        fleet.put(plugged)
        answer = await asked.ask(OWNER, "POST", "/v1/plan", {"file": "c.yaml", "text": mine})
        assert answer.status == 200
        for each in fleet.of(OWNER):
            fleet.drop(each.uuid)
        assert fleet.owner_of_bridge(bridge) is None
        found = found_claims(plugged.cluster_id, "b", Allocations(), [plugged.machine])
        assert (Scope.BRIDGE, bridge) not in found.names


@pytest.mark.parametrize("scope", ["bridge", "pool"])
async def test_no_cluster_gets_a_name_that_another_one_has_a_row_of(
    tmp_path: Path, scope: str
) -> None:
    """Of networks into which no node is plugged yet, too."""
    mine, theirs = UUID(int=3), UUID(int=4)
    names = {"bridge": bridge_name(theirs, "lan"), "pool": pool_name(theirs, "b")}
    text = "cluster: {}\nid: {}\nhosts: {{s: simulated}}\nnetworks: {{lan: {{}}}}\nnodes: [{{}}]\n"
    row = {"scope": scope, "value": names[scope], "cluster_id": str(mine)}

    def claim(connection: Connection) -> None:
        connection.execute(insert(tables.claims).values(row))  # as if the digests were equal

    async with a_daemon(tmp_path) as asked:
        assert (await asked.up(OWNER, text.format("a", mine))).status == 202
        await asked.daemon.parts.database.call(claim)
        body = {"file": "c.yaml", "text": text.format("b", theirs)}
        refused = await asked.ask(OTHER, "POST", "/v1/plan", body)
        assert refused.status == 409
        assert f"its {scope} would be {names[scope]}" in refused.json["error"]["message"]


async def test_a_member_is_told_where_in_the_file(tmp_path: Path) -> None:
    text = "cluster: c\nnetworks: {x: {bridge: br0}}\nnodes: [{nics: [x]}]\n"
    body = {"file": "c.yaml", "text": text}
    async with a_daemon(tmp_path) as asked:
        reasons = (await asked.ask(OWNER, "POST", "/v1/plan", body)).json["error"]["reasons"]
        assert [each.partition(" ")[0] for each in reasons] == ["c.yaml:2:24:"]
        assert "members may not plug nodes into br0" in reasons[0]
        answer = await asked.ask(os.getuid(), "POST", "/v1/plan", body)
        assert "members may not" not in answer.body.decode()


async def test_what_has_gone_has_no_bridge_and_no_pool(tmp_path: Path) -> None:
    mine, theirs = UUID(int=3), UUID(int=4)
    text = f"cluster: a\nid: {mine}\nhosts: {{s: simulated}}\nnodes: [{{count: 2}}]\n"
    async with a_daemon(tmp_path) as asked:
        assert (await asked.up(OWNER, text)).status == 202
        fleet = asked.daemon.parts.fleet
        first, last = fleet.of(OWNER)
        bridge, pool = first.machine.nics[0].network, pool_name(mine, "a")
        fleet.put(first)  # again: it is counted once
        fleet.drop(first.uuid)
        assert [*fleet.bridges(but=theirs), *fleet.pools(but=theirs)] == [bridge, pool]
        assert not fleet.bridges(but=mine) | fleet.pools(but=mine)
        fleet.drop(last.uuid)
        assert not fleet.bridges(but=theirs) | fleet.pools(but=theirs)


OWN = """cluster: own
hosts: {mine: simulated}
networks: {lan: {nat: true}}
nodes: [{name: n, nics: [lan]}%s]
"""
ADOPTING = """cluster: adopting
hosts:
  cloud:
    openstack:
      cloud:
        region_name: RegionOne
        auth: {auth_url: "%s/identity/v3", username: u, password: p, project_name: p,
               user_domain_id: default, project_domain_id: default}
nodes: [{adopt: theirs}]
"""


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")
async def test_a_network_of_a_cloud_that_is_called_as_a_bridge_is_none(tmp_path: Path) -> None:
    """Who had a cloud call its network so kept that bridge's owner from each further change: local
    users see the names of bridges.
    """
    async with a_daemon(tmp_path) as asked, fake_cloud() as cloud:
        assert (await asked.up(OWNER, OWN % "")).status == 202
        (member,) = asked.daemon.parts.fleet.all()
        (nic,) = member.machine.nics
        assert made_for_a_cluster(nic.network)
        cloud.own_server("theirs")
        for port in cloud.ports.values():
            port["network_id"] = nic.network
        assert (await asked.up(OTHER, ADOPTING % cloud.url)).status == 202
        assert {nic.network} == {
            each.network for known in asked.daemon.parts.fleet.all() for each in known.machine.nics
        }
        assert asked.daemon.parts.fleet.owner_of_bridge(nic.network) == OWNER
        assert (await asked.up(OWNER, OWN % ", {name: m, nics: [lan]}")).status == 202
