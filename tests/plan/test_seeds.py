"""What cloud-init is given: the documents, what makes them new, and addresses that two have."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from nospoon.clusterfile.load import load
from nospoon.model.cluster import Cluster
from nospoon.model.seed import Seed
from nospoon.plan import identity
from nospoon.plan.addresses.allocate import Allocations, Occupied, allocate
from nospoon.plan.seeds import against_addresses, against_boot_urls, seeds_of, stray_addresses

ID = UUID(int=7)
KEY = "ssh-ed25519 AAAA me"
NETWORKS = (
    "networks: {lan: {cidr: 10.9.0.0/24, netboot: builtin, nat: true}, quiet: {}, out: {bridge: b}}"
)

SIMULATED = "hosts: {here: simulated}\n"


def decided(text: str) -> tuple[Cluster, Allocations]:
    cluster = load(f"cluster: a\n{NETWORKS}\n{text}", file="x")
    allocations, refused = allocate(cluster, Allocations(), Occupied())
    assert not refused
    return cluster, allocations


def seeds(text: str) -> dict[str, Seed]:
    cluster, allocations = decided(text)
    return seeds_of(cluster, ID, allocations, boot_port=8069)


def ethernets(seed: Seed) -> list[dict[str, Any]]:
    read = json.loads(seed.network_config)
    assert read["version"] == 2
    return list(read["ethernets"].values())


def test_a_node_has_its_name_its_keys_and_user_data_as_they_are_written() -> None:
    found = seeds(
        f"nodes: [{{kind: vm, image: r, user_data: '#!/bin/sh', ssh_keys: '{KEY}'}}, {{}}]"
    )
    assert list(found) == ["node-0"]
    meta = json.loads(found["node-0"].meta_data)
    assert meta["local-hostname"] == "node-0"
    assert meta["public-keys"] == [KEY]
    assert found["node-0"].user_data == "#!/bin/sh"


def test_changed_data_is_another_instance_and_the_same_data_is_the_same() -> None:
    def one(text: str) -> tuple[str, str]:
        found = seeds(f"nodes: [{{kind: vm, image: r, user_data: '{text}'}}]")["node-0"]
        return json.loads(found.meta_data)["instance-id"], found.digest

    before, again, after = one("#a"), one("#a"), one("#b")
    assert before == again
    assert before[0] != after[0]
    assert before[1] != after[1]
    (uuid,) = (identity.uuid_of(ID, node) for node in decided("nodes: [{}]")[0].nodes)
    assert before[0].startswith(f"{uuid}-")


def test_nics_ask_where_somebody_may_answer_and_keep_static_addresses() -> None:
    nics = (
        "[{network: lan, address: 10.9.0.77/24}, lan, quiet, out, {network: quiet, address: dhcp}]"
    )
    static, ours, quiet, theirs, asked = ethernets(
        seeds(f"nodes: [{{kind: vm, image: r, nics: {nics}}}]")["node-0"]
    )
    assert static["addresses"] == ["10.9.0.77/24"]
    assert static["routes"] == [{"to": "0.0.0.0/0", "via": "10.9.0.1"}]
    assert static["nameservers"] == {"addresses": ["10.9.0.1"]}
    assert [each["dhcp4"] for each in (ours, quiet, theirs, asked)] == [True, False, True, True]


def test_each_nic_is_found_by_its_mac_and_called_as_the_kernel_calls_it() -> None:
    (only,) = ethernets(
        seeds(f"{SIMULATED}nodes: [{{kind: container, image: r, nics: [lan]}}]")["node-0"]
    )
    (node,) = decided("nodes: [{}]")[0].nodes
    assert only["match"] == {"macaddress": identity.mac_address(identity.uuid_of(ID, node), 0)}
    assert only["set-name"] == "eth0"
    assert only["mtu"] == 1500


def test_nothing_of_it_is_in_its_text() -> None:
    found = seeds("nodes: [{kind: vm, image: r, user_data: '#secret'}]")["node-0"]
    assert "secret" not in repr(found)


def test_an_address_that_another_node_has_is_refused() -> None:
    nic = "nics: [{network: lan, address: 10.9.0.50/24}]"
    twice = f"nodes: [{{kind: vm, image: r, count: 2, {nic}}}]"
    (found,) = against_addresses(*decided(twice))
    assert "node node-1: address 10.9.0.50 on network lan is that of node node-0" in found
    cluster, allocations = decided(
        "nodes: [{nics: [lan]}, {kind: vm, image: r, name: v, "
        "nics: [{network: lan, address: 10.9.0.9/24}]}]"
    )
    assert list(against_addresses(cluster, allocations)) == []


def test_an_address_that_a_host_has_is_refused_and_one_outside_its_network_is_noted() -> None:
    def written(network: str, address: str) -> tuple[Cluster, Allocations]:
        nic = f"nics: [{{network: {network}, address: {address}}}]"
        return decided(f"{SIMULATED}nodes: [{{kind: vm, image: r, name: v, {nic}}}]")

    (found,) = against_addresses(*written("lan", "10.9.0.1/24"))
    assert "node v: address 10.9.0.1 on network lan is that of host here" in found
    (noted,) = stray_addresses(*written("lan", "10.8.0.1/24"))
    assert "node v: its address 10.8.0.1/24 is not in 10.9.0.0/24" in noted
    for network, address in (
        ("lan", "10.9.0.2/24"),
        ("quiet", "10.8.0.1/24"),
        ("out", "10.9.0.1/24"),
    ):
        made = written(network, address)
        assert [*against_addresses(*made), *stray_addresses(*made)] == []


CALLS = "user_data: '#!/bin/sh {{boot}}/x'"


def test_the_boot_server_is_named_as_each_node_reaches_it() -> None:
    six = "networks: {six: {cidr: 'fd00:9::/64', netboot: builtin}}"
    cluster = load(
        f"cluster: a\n{six}\n{SIMULATED}nodes: [{{kind: vm, image: r, {CALLS}}}]", file="x"
    )
    allocations, _ = allocate(cluster, Allocations(), Occupied())
    by_six = seeds_of(cluster, ID, allocations, boot_port=8070)["node-0"]
    assert by_six.user_data == "#!/bin/sh http://[fd00:9::1]:8070/x"
    found = seeds(f"nodes: [{{kind: vm, image: r, count: 2, nics: [quiet, lan], {CALLS}}}]")
    texts = [each.user_data for each in found.values()]
    assert texts == ["#!/bin/sh http://10.9.0.1:8069/x"] * 2
    assert texts[0] is texts[1], "long texts are kept once"


def test_a_node_that_does_not_reach_the_boot_server_is_refused() -> None:
    cluster, allocations = decided(
        f"nodes: [{{name: a, kind: vm, image: r, nics: [out], {CALLS}}},"
        f" {{name: b, kind: vm, image: r, nics: [lan], {CALLS}}}]"
    )
    (found,) = against_boot_urls(cluster, allocations)
    assert found.startswith("node a: its user data names {{boot}}, and it is not known where")
