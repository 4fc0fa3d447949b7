"""Placement: filters, strategies, rules, what stays, and what is refused with which reasons."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nospoon.clusterfile.load import load
from nospoon.errors import NoCapacity, PlanRefused
from nospoon.model.cluster import Arch, Cluster, Firmware
from nospoon.model.host_facts import HostFacts, Quota, QuotaName, Share
from nospoon.model.images import HypervisorType
from nospoon.plan.addresses.allocate import Allocations, Occupied, allocate
from nospoon.plan.image_types import with_image_types
from nospoon.plan.placement.placement import place
from nospoon.plan.placement.room import Usage, demand
from nospoon.plan.resolution.around import ImageFacts

GIB = 1 << 30
FACTS = HostFacts(frozenset(Firmware), frozenset(Arch), tpm=True, cpus=4, memory=8 * GIB)
EXACT = "overcommit: {cpus: 1, memory: 1, disk: 1}"


def read(text: str) -> Cluster:
    return load(f"cluster: dev\n{text}", file="x")


def hosts(cluster: Cluster, **facts: HostFacts) -> dict[str, str]:
    placed, refused = place(cluster, {}, facts, {})
    assert not refused
    return {name: each.host for name, each in placed.items()}


def refusals(cluster: Cluster, **facts: HostFacts) -> list[str]:
    return place(cluster, {}, facts, {})[1]


def test_spread_takes_the_host_with_the_fewest_nodes() -> None:
    cluster = read("hosts: {a: {}, b: {}, c: {}}\nnodes: [{count: 6}]")
    assert Counter(hosts(cluster).values()) == {"a": 2, "b": 2, "c": 2}


def test_pack_fills_a_host_before_it_takes_the_next() -> None:
    cluster = read(
        f"hosts: {{a: {{{EXACT}}}, b: {{{EXACT}}}}}\n"
        "nodes: [{count: 5, memory: 2GiB, placement: pack}]"
    )
    assert Counter(hosts(cluster, a=FACTS, b=FACTS).values()) == {"a": 4, "b": 1}


def test_pack_takes_large_nodes_first_so_that_all_fit() -> None:
    cluster = read(
        f"hosts: {{a: {{{EXACT}}}, b: {{{EXACT}}}}}\nnodes:\n"
        "  - {name: 's{n}', count: 4, memory: 2GiB, placement: pack}\n"
        "  - {name: large, memory: 8GiB, placement: pack}"
    )
    placed = hosts(cluster, a=FACTS, b=FACTS)
    assert Counter(placed.values()) == {"a": 1, "b": 4}
    assert placed["large"] == "a"


def test_balance_takes_the_host_whose_scarcest_resource_is_least_used() -> None:
    cluster = read("hosts: {big: {}, small: {}}\nnodes: [{count: 6, placement: balance}]")
    placed = hosts(cluster, big=replace(FACTS, cpus=8, memory=16 * GIB), small=FACTS)
    assert Counter(placed.values()) == {"big": 4, "small": 2}


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("anti_affinity: role", {("db", "db"): False, ("web", "db"): True}),
        ("affinity: role", {("db", "db"): True, ("web", "web"): True}),
    ],
)
def test_rules_hold_by_label(rule: str, expected: dict[tuple[str, str], bool]) -> None:
    cluster = read(
        "hosts: {a: {}, b: {}}\nnodes:\n"
        f"  - {{name: 'db{{n}}', count: 2, labels: {{role: db}}, placement: {{{rule}}}}}\n"
        f"  - {{name: 'web{{n}}', count: 2, labels: {{role: web}}, placement: {{{rule}}}}}"
    )
    placed = hosts(cluster)
    for (one, other), together in expected.items():
        shared = {h for n, h in placed.items() if n.startswith(one)} & {
            h for n, h in placed.items() if n.startswith(other)
        }
        if one == other:
            count = len({h for n, h in placed.items() if n.startswith(one)})
            assert (count == 1) is together
        else:
            assert bool(shared) is together


TAKEN = "already has a node of the same flavor (`anti_affinity`)"


def test_nodes_that_a_label_keeps_apart_are_refused_with_its_name() -> None:
    apart = "{count: 2, labels: {role: db}, placement: {anti_affinity: role}}"
    (reason,) = refusals(read(f"hosts: {{a: {{}}}}\nnodes: [{apart}]"))
    said = "already has a node with the same label 'role' (`anti_affinity`)"
    assert reason == f"node node-1 fits on no host. a: {said}"


def test_more_nodes_apart_than_hosts_are_refused_with_the_reason() -> None:
    cluster = read("hosts: {a: {}, b: {}}\nnodes: [{count: 4, placement: {anti_affinity: flavor}}]")
    (reason,) = refusals(cluster)
    assert reason == f"node node-2 and 1 like it fit on no host. a, b: {TAKEN}"


def test_nodes_apart_are_not_on_two_connections_of_one_machine() -> None:
    cluster = read(
        "hosts: {a: {}, b: {}, c: {}}\nnodes: [{count: 2, placement: {anti_affinity: flavor}}]"
    )
    one = replace(FACTS, identity="rack1")
    other = replace(FACTS, identity="rack2")
    assert set(hosts(cluster, a=one, b=one, c=other).values()) in ({"a", "c"}, {"b", "c"})
    (reason,) = refusals(cluster, a=one, b=one, c=one)
    assert reason == f"node node-1 fits on no host. a, b, c: {TAKEN}"


def test_a_pinned_node_goes_where_it_is_told_or_nowhere() -> None:
    cluster = read("hosts: {a: {}, b: {drained: true}}\nnodes: [{host: a}, {host: b}]")
    (reason,) = refusals(cluster)
    assert reason == "node node-1 fits on no host. b: it is drained."


def test_nothing_new_goes_to_a_drained_host_and_what_is_there_stays() -> None:
    cluster = read("hosts: {a: {drained: true}, b: {}}\nnodes: [{count: 3}]")
    placed, _ = place(cluster, {"node-1": "a"}, {}, {})
    assert {name: each.host for name, each in placed.items()} == {
        "node-0": "b", "node-1": "a", "node-2": "b",
    }  # fmt: skip


def test_reasons_are_told_once_for_nodes_that_are_alike() -> None:
    cluster = read(
        f"hosts: {{a: {{{EXACT}}}, b: {{{EXACT}}}, c: {{}}}}\n"
        "nodes: [{count: 9, memory: 4GiB, cpus: 1}, {name: arm, arch: aarch64}]"
    )
    x86 = replace(FACTS, archs=frozenset({Arch.X86_64}))
    many, arm = refusals(cluster, a=x86, b=x86, c=replace(x86, memory=1 * GIB))
    assert many == (
        "node node-4 and 4 like it fit on no host. "
        "a, b: not enough memory left (`overcommit.memory` is 1): "
        "4 GiB asked for, 0 B of 8 GiB left on a; "
        "c: wants 4 GiB of memory, the host has 1 GiB."
    )
    assert arm.startswith("node arm fits on no host. a, b, c: no emulator for aarch64 there.")


def test_connections_of_one_machine_share_what_it_has() -> None:
    cluster = read(
        f"hosts: {{a: {{{EXACT}}}, b: {{{EXACT}}}}}\nnodes: [{{count: 3, memory: 4GiB}}]"
    )
    one = replace(FACTS, identity="rack1")
    (reason,) = refusals(cluster, a=one, b=one)
    assert reason == (
        "node node-2 fits on no host. a, b: not enough memory left (`overcommit.memory` is 1): "
        "4 GiB asked for, 0 B of 8 GiB left on a"
    )


def test_what_other_clusters_take_is_not_there() -> None:
    cluster = read(f"hosts: {{a: {{{EXACT}}}}}\nnodes: [{{memory: 4GiB}}]")
    _, refused = place(cluster, {}, {"a": FACTS}, {"a": Usage(0, 6 * GIB)})
    assert refused == [
        (
            "node node-0 fits on no host. a: not enough memory left (`overcommit.memory` is 1): "
            "4 GiB asked for, 2 GiB of 8 GiB left on a"
        )
    ]


def test_a_bridge_decides_where_a_node_can_be() -> None:
    cluster = read(
        "hosts: {a: {physnets: {public: br-ex}}, b: {}}\n"
        "networks: {net: {physnet: public}, lan: {}}\nnodes: [{count: 2, nics: [net]}]"
    )
    linked = replace(FACTS, links=frozenset({"br-ex"}), bridges=frozenset({"br-ex"}))
    assert set(hosts(cluster, a=linked, b=linked).values()) == {"a"}


def test_each_choice_is_explained_and_remembered() -> None:
    cluster = read("hosts: {a: {}, b: {}}\nnodes: [{count: 2}]")
    first, _ = allocate(cluster, Allocations(), Occupied())
    assert first.why["node-1"] == "spread: fewest nodes (0) of 2 hosts that fit"
    again, _ = allocate(cluster, first, Occupied())
    assert again == first


def test_rebalancing_places_everything_anew() -> None:
    cluster = read("hosts: {a: {}, b: {}}\nnodes: [{count: 4}]")
    crowded = Allocations(hosts={f"node-{n}": "a" for n in range(4)})
    kept, _ = allocate(cluster, crowded, Occupied())
    assert set(kept.hosts.values()) == {"a"}
    moved, _ = allocate(cluster, crowded, Occupied(), rebalance=True)
    assert Counter(moved.hosts.values()) == {"a": 2, "b": 2}


def test_every_key_of_affinity_binds_and_binds_what_it_is_bound_to() -> None:
    cluster = read(
        "hosts: {a: {}, b: {}, c: {}}\nnodes:\n"
        "  - {name: one, labels: {role: db, zone: x}, placement: {affinity: [role, zone]}}\n"
        "  - {name: two, labels: {role: web, zone: y}, placement: {affinity: [role, zone]}}\n"
        "  - {name: three, labels: {role: web, zone: x}, placement: {affinity: [role, zone]}}\n"
        "  - {name: four, labels: {role: web, zone: z}, placement: {affinity: zone}}"
    )
    placed = hosts(cluster)
    assert placed["one"] == placed["two"] == placed["three"] != placed["four"]


TOGETHER = "placement: {strategy: balance, affinity: role}"


def test_a_group_goes_where_there_is_room_for_all_of_it() -> None:
    cluster = read(
        f"hosts: {{small: {{{EXACT}}}, big: {{{EXACT}}}}}\n"
        f"nodes: [{{count: 3, memory: 4GiB, cpus: 1, labels: {{role: db}}, {TOGETHER}}}]"
    )
    placed, _ = place(cluster, {}, {"small": FACTS, "big": replace(FACTS, memory=16 * GIB)}, {})
    assert {each.host for each in placed.values()} == {"big"}
    assert [each.why for each in placed.values()] == [
        "balance: least used (0%) of 1 host that fits",
        "together with its role",
        "together with its role",
    ]


def test_a_group_for_which_no_host_has_room_is_refused_as_one() -> None:
    cluster = read(
        f"hosts: {{a: {{{EXACT}}}, b: {{{EXACT}}}}}\n"
        f"nodes: [{{count: 3, memory: 4GiB, cpus: 1, labels: {{role: db}}, {TOGETHER}}}]"
    )
    assert refusals(cluster, a=FACTS, b=FACTS) == [
        (
            "nodes node-0, node-1, node-2, with the same role, fit together on no host. "
            "a, b: not enough memory left (`overcommit.memory` is 1): "
            "12 GiB asked for, 8 GiB of 8 GiB left on a"
        )
    ]


def test_the_pin_of_one_binds_its_group() -> None:
    group = f"labels: {{role: db}}, {TOGETHER}"
    cluster = read(
        f"hosts: {{a: {{}}, b: {{}}}}\nnodes: [{{{group}}}, {{host: b, name: last, {group}}}]"
    )
    assert hosts(cluster) == {"node-0": "b", "last": "b"}
    placed, _ = place(cluster, {}, {}, {})
    assert [each.why for each in placed.values()] == ["together with its role", "pinned"]


def test_two_pins_of_one_group_are_refused_with_both() -> None:
    group = f"labels: {{role: db}}, {TOGETHER}"
    cluster = read(
        "hosts: {a: {}, b: {}}\nnodes:\n"
        f"  - {{name: x, host: a, {group}}}\n  - {{name: y, host: b, {group}}}"
    )
    assert refusals(cluster) == [
        "nodes that go together by `affinity: role` cannot: x is pinned to a and y is pinned to b."
    ]


def test_a_pin_away_from_a_group_that_is_there_is_refused_until_all_may_move() -> None:
    group = f"labels: {{role: db}}, {TOGETHER}"
    cluster = read(
        "hosts: {a: {}, b: {}}\nnodes:\n"
        f"  - {{name: x, {group}}}\n  - {{name: y, host: b, {group}}}"
    )
    _, (reason,) = place(cluster, {"x": "a"}, {}, {})
    assert reason == (
        "nodes that go together by `affinity: role` cannot: x is on a and y is pinned to b. "
        "`--rebalance` places existing nodes again."
    )
    assert hosts(cluster) == {"x": "b", "y": "b"}


def test_nodes_that_are_to_be_together_and_apart_are_refused() -> None:
    cluster = read(
        "hosts: {a: {}, b: {}}\n"
        "nodes: [{count: 2, labels: {r: x}, placement: {affinity: r, anti_affinity: flavor}}]"
    )
    assert refusals(cluster) == [
        (
            "nodes node-0 and node-1 go together by `affinity: r`, and are kept apart by their "
            "`anti_affinity`."
        )
    ]


def test_who_joins_a_group_goes_where_it_is_or_is_refused() -> None:
    text = f"nodes: [{{count: 3, memory: 4GiB, cpus: 1, labels: {{role: db}}, {TOGETHER}}}]"
    cluster = read(f"hosts: {{a: {{{EXACT}}}, b: {{{EXACT}}}}}\n{text}")
    known = {"a": FACTS, "b": replace(FACTS, memory=16 * GIB)}
    placed, refused = place(cluster, {"node-0": "a", "node-1": "a"}, known, {})
    assert set(placed) == {"node-0", "node-1"}
    assert refused == [
        (
            "node node-2 fits on no host. a: not enough memory left (`overcommit.memory` is 1): "
            "4 GiB asked for, 0 B of 8 GiB left on a. "
            "It goes together with its role. `--rebalance` places existing nodes again."
        )
    ]


def test_large_nodes_after_small_ones_are_placed_when_they_fit_somehow() -> None:
    cluster = read(
        f"hosts: {{a: {{{EXACT}}}, b: {{{EXACT}}}}}\nnodes:\n"
        "  - {name: 's{n}', count: 4, memory: 2GiB}\n  - {name: large, memory: 8GiB}"
    )
    placed = hosts(cluster, a=FACTS, b=FACTS)
    assert {h for n, h in placed.items() if n != "large"}.isdisjoint({placed["large"]})


def test_those_that_fit_nowhere_keep_nobody_else_from_a_place() -> None:
    cluster = read(
        f"hosts: {{a: {{{EXACT}}}, b: {{{EXACT}}}}}\nnodes:\n"
        "  - {name: 's{n}', count: 4, memory: 2GiB}\n  - {name: large, memory: 8GiB}\n"
        "  - {name: huge, memory: 9GiB}"
    )
    placed, (reason,) = place(cluster, {}, {"a": FACTS, "b": FACTS}, {})
    assert len(placed) == 5
    assert reason.startswith("node huge fits on no host. a, b: wants 9 GiB")


GROWING = "hosts: {{a: {{{exact}}}, b: {{{exact}}}}}\nnodes: [{{count: 2, memory: {memory}GiB}}]"


def growing(memory: int, *, rebalance: bool = False) -> tuple[dict[str, str], list[str]]:
    """Two nodes that are on one host, with 4 GiB each, and what their file says now."""
    cluster = read(GROWING.format(exact=EXACT, memory=memory))
    before = Allocations(hosts={"node-0": "a", "node-1": "a"})
    there = Occupied(standing=dict.fromkeys(before.hosts, Usage(1, 4 * GIB, 10 * GIB)))
    known = {"a": FACTS, "b": FACTS}
    given, reasons = allocate(cluster, before, there, facts=known, rebalance=rebalance)
    return dict(given.hosts), reasons


def test_a_node_does_not_grow_past_what_its_host_has() -> None:
    assert growing(4) == ({"node-0": "a", "node-1": "a"}, [])
    _, reasons = growing(6)
    assert reasons == [
        (
            "nodes node-0, node-1 cannot grow where they are. a: not enough memory left "
            "(`overcommit.memory` is 1). `--rebalance` places existing nodes again."
        )
    ]


def test_a_node_that_grows_moves_when_all_may_be_placed_anew() -> None:
    assert growing(6, rebalance=True) == ({"node-0": "a", "node-1": "b"}, [])


def test_what_is_there_may_shrink_and_stay_on_a_host_that_has_less_than_it_had() -> None:
    cluster = read(f"hosts: {{a: {{{EXACT}}}}}\nnodes: [{{count: 2, memory: 3GiB}}, {{name: new}}]")
    small = replace(FACTS, memory=5 * GIB)
    there = {"node-0": "a", "node-1": "a"}
    standing = {"node-0": Usage(1, 4 * GIB, 10 * GIB), "node-1": Usage(1, 3 * GIB, 10 * GIB)}
    placed, reasons = place(cluster, there, {"a": small}, {}, standing=standing)
    assert set(placed) == set(there)
    assert reasons == [
        (
            "node new fits on no host. a: not enough memory left (`overcommit.memory` is 1): "
            "1 GiB asked for, 0 B of 5 GiB left on a"
        )
    ]


def test_room_that_one_gives_back_another_may_grow_into() -> None:
    cluster = read(
        f"hosts: {{a: {{{EXACT}}}}}\nnodes: [{{name: more, memory: 6GiB}}, {{name: less}}]"
    )
    there = {"more": "a", "less": "a"}
    standing = dict.fromkeys(there, Usage(1, 4 * GIB, 10 * GIB))
    placed, reasons = place(cluster, there, {"a": FACTS}, {}, standing=standing)
    assert (set(placed), reasons) == (set(there), [])


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 8)), min_size=1, max_size=30),
    st.integers(1, 5),
    st.sampled_from(["spread", "balance", "pack"]),
)
def test_no_host_gets_more_than_it_has_and_nobody_is_lost(
    sizes: list[tuple[int, int]], count: int, strategy: str
) -> None:
    names = [f"h{n}" for n in range(count)]
    listed = ", ".join(f"{name}: {{{EXACT}}}" for name in names)
    groups = "\n".join(
        f"  - {{name: n{i}, cpus: {cpus}, memory: {memory}GiB, placement: {strategy}}}"
        for i, (cpus, memory) in enumerate(sizes)
    )
    cluster = read(f"hosts: {{{listed}}}\nnodes:\n{groups}")
    placed, refused = place(cluster, {}, dict.fromkeys(names, FACTS), {})
    taken = dict.fromkeys(names, Usage())
    for node in cluster.nodes:
        if node.name in placed:
            host = placed[node.name].host
            taken[host] = taken[host] + demand(node)
    assert all(not use.missing(Usage(4, 8 * GIB)) for use in taken.values())
    assert (len(placed) == len(cluster.nodes)) is (not refused)


def test_a_node_that_its_host_could_never_have_is_refused_by_one_reason() -> None:
    _, reasons = growing(9)
    assert reasons == [], "`plan.refuse` tells that the host has not so much"
    cluster = read(f"hosts: {{a: {{{EXACT}, drained: true}}}}\nnodes: [{{memory: 6GiB}}, {{}}]")
    there = {"node-0": "a", "node-1": "a"}
    standing = dict.fromkeys(there, Usage(1, 4 * GIB, 10 * GIB))
    _, reasons = place(cluster, there, {"a": replace(FACTS, memory=6 * GIB)}, {}, standing=standing)
    assert len(reasons) == 1, "also on a host that takes nobody new"


def planned(first: str, *, unmade: set[str], nodes: str = "count: 3, memory: 2GiB") -> str:
    """The hosts of three nodes that were all decided to be on `a`."""
    cluster = read(f"hosts: {{a: {{{first}}}, b: {{{EXACT}}}}}\nnodes: [{{{nodes}}}]")
    before = Allocations(hosts=dict.fromkeys(("node-0", "node-1", "node-2"), "a"))
    given, reasons = allocate(
        cluster, before, Occupied(), facts={"a": FACTS, "b": FACTS}, unmade=unmade
    )
    assert not reasons
    return "".join(given.hosts[name] for name in sorted(given.hosts))


def test_what_was_planned_and_never_made_goes_where_it_was_to_go() -> None:
    assert planned(EXACT, unmade={"node-1"}) == "aaa"


def test_what_was_never_made_leaves_a_host_that_is_drained() -> None:
    assert planned(f"drained: true, {EXACT}", unmade={"node-1"}) == "aba"


def test_what_was_never_made_goes_where_there_is_room_for_it_now() -> None:
    assert planned(EXACT, unmade={"node-1"}, nodes="count: 3, memory: 3GiB") == "aba"


def test_what_was_never_made_gives_way_where_others_would_be_homeless() -> None:
    """`large` fits the host alone on which `small` was to be."""
    cluster = read(
        f"hosts: {{a: {{{EXACT}}}, b: {{{EXACT}}}}}\n"
        "nodes: [{name: small, memory: 4GiB}, {name: large, memory: 8GiB}]"
    )
    known = {"a": replace(FACTS, memory=4 * GIB), "b": FACTS}
    before = Allocations(hosts={"small": "b"})
    given, reasons = allocate(cluster, before, Occupied(), facts=known, unmade={"small"})
    assert (given.hosts, reasons) == ({"small": "a", "large": "b"}, [])


def test_a_node_goes_only_where_its_kind_is_made_and_the_refusal_says_what_is_made_there() -> None:
    both = "hosts: {real: {}, sim: simulated}\nnodes: [{kind: container, image: r}, {name: b}]"
    assert hosts(read(both))["node-0"] == "sim"
    (refused,) = refusals(read("nodes: [{kind: container, image: r, count: 2}]"))
    assert refused == (
        "node node-0 and 1 like it fit on no host. here: qemu:///system makes no node of kind "
        "container, only baremetal and vm. Write `lxc: true` or `docker: true` beside the host's "
        "`libvirt: qemu:///system`, or give the file a cloud."
    )


def test_a_node_of_another_kind_than_before_leaves_a_host_that_does_not_make_it() -> None:
    cluster = read("hosts: {real: {}, sim: simulated}\nnodes: [{kind: container, image: r}]")
    placed, refused = place(cluster, {"node-0": "real"}, {}, {})
    assert not refused
    assert placed["node-0"].host == "sim"


def of_image(text: str, kind: HypervisorType) -> Cluster:
    """A cluster whose nodes begin with the loaded image `r` for this machine type."""
    facts = ImageFacts("0" * 64, "tar", 1, kind)
    return with_image_types(read(text), {"store:r": facts})


BOTH = "hosts: {real: {libvirt: 'qemu:///system', lxc: true}, sim: simulated}\n"


def test_a_node_goes_where_its_image_is_run_and_the_plan_says_so() -> None:
    text = BOTH + "nodes: [{kind: container, image: 'store:r', count: 2}]"
    cluster = of_image(text, HypervisorType.DOCKER)
    placed, refused = place(cluster, {}, {}, {})
    assert not refused
    assert {each.host for each in placed.values()} == {"sim"}
    assert placed["node-0"].why.startswith("runs images for docker; spread:")
    assert set(hosts(of_image(text, HypervisorType.LXC)).values()) == {"real:lxc", "sim"}
    with_docker = text.replace("lxc: true", "lxc: true, docker: true")
    found = hosts(of_image(with_docker, HypervisorType.DOCKER))
    assert set(found.values()) == {"real:docker", "sim"}


def test_a_refusal_says_which_host_could_run_an_image() -> None:
    pinned = BOTH + "nodes: [{kind: container, host: '{host}', image: 'store:r'}]"
    docker = of_image(pinned.replace("{host}", "real:lxc"), HypervisorType.DOCKER)
    (refused,) = refusals(docker)
    assert refused == (
        "node node-0 fits on no host. real:lxc: lxc runs no image for docker, only for lxc. "
        "sim could."
    )
    (refused,) = refusals(of_image(pinned.replace("{host}", "real"), HypervisorType.LXC))
    assert "qemu:///system runs no image for lxc, only for baremetal, kvm, qemu. " in refused
    assert refused.endswith("real:lxc, sim could.")
    alone = "hosts: {real: {libvirt: 'qemu:///system', lxc: true}}\n"
    alone += "nodes: [{kind: container, image: 'store:r'}]"
    (refused,) = refusals(of_image(alone, HypervisorType.DOCKER))
    assert "No host of the file could." in refused


def test_a_node_leaves_a_host_that_does_not_run_its_new_image() -> None:
    text = BOTH + "nodes: [{kind: container, image: 'store:r'}]"
    placed, refused = place(of_image(text, HypervisorType.DOCKER), {"node-0": "real:lxc"}, {}, {})
    assert (placed["node-0"].host, refused) == ("sim", [])


CLOUD = "cloud: {openstack: {cloud: {name: c, auth: {auth_url: 'http://192.0.2.1/'}}}}"


def of_root(hosts: str, kind: str) -> Cluster:
    """A cluster with a container whose root is a tar or an ext4 file system ("raw")."""
    text = f"hosts: {{{hosts}}}\nnodes: [{{kind: container, image: r}}]"
    return with_image_types(read(text), {"r": ImageFacts("0" * 64, kind, 1)})


def test_a_container_goes_where_its_root_is_begun_with() -> None:
    real = "real: {libvirt: 'qemu:///system', lxc: true}"
    both = f"{real}, {CLOUD}"
    assert hosts(of_root(both, "tar")) == {"node-0": "real:lxc"}
    assert hosts(of_root(both, "raw")) == {"node-0": "cloud"}
    (refused,) = refusals(of_root(CLOUD, "tar"))
    assert (
        "makes containers of an ext4 file system, and the image is a packed root (tar). "
        "`nospoon image build --as ext4` makes one." in refused
    )
    (refused,) = refusals(of_root(real, "raw"))
    assert "makes containers of a packed root (tar), and the image is an ext4 file" in refused
    text = f"hosts: {{{both}}}\nnodes: [{{kind: container, image: 'store:r'}}]"
    docker = {"store:r": ImageFacts("0" * 64, "raw", 1, HypervisorType.DOCKER)}
    (refused,) = refusals(with_image_types(read(text), docker))
    assert "runs no image for docker" in refused
    lxc = {"store:r": ImageFacts("0" * 64, "raw", 1, HypervisorType.LXC)}
    placed, _ = place(with_image_types(read(text), lxc), {}, {}, {})
    why = "runs images for lxc; makes containers of an ext4 file system; spread: "
    assert placed["node-0"].why.startswith(why)


def test_a_refusal_says_what_the_host_with_the_most_has_left() -> None:
    cluster = read(f"hosts: {{a: {{{EXACT}}}, b: {{{EXACT}}}}}\nnodes: [{{name: big, cpus: 5}}]")
    used = {"a": Usage(2.5, 0), "b": Usage(1, 0)}
    _, reasons = place(cluster, {}, {"a": FACTS, "b": replace(FACTS, cpus=3)}, used)
    assert reasons == [
        (
            "node big fits on no host. a, b: not enough CPUs left (`overcommit.cpus` is 1): "
            "5 asked for, 2 of 3 left on b"
        )
    ]


@pytest.mark.parametrize(
    ("node", "used", "passes"),
    [
        ("cpus: 4", Usage(cpus=1), [True]),
        ("memory: 8GiB", Usage(memory=GIB), [True]),
        ("cpus: 5", Usage(cpus=1), [False]),
        ("count: 3, cpus: 2", Usage(cpus=1), [False]),
        ("cpus: 4, memory: 16GiB", Usage(cpus=1), [False]),
        ("cpus: 3", Usage(cpus=1), []),
    ],
)
def test_want_of_capacity_passes_where_all_nodes_fit_without_others(
    node: str, used: Usage, passes: list[bool]
) -> None:
    cluster = read(f"hosts: {{a: {{{EXACT}}}}}\nnodes: [{{{node}}}]")
    _, refused = place(cluster, {}, {"a": FACTS}, {"a": used})
    assert [isinstance(each, NoCapacity) for each in refused] == passes


@pytest.mark.parametrize(
    ("node", "passes"), [("memory: 6GiB", [True]), ("memory: 9GiB", [False]), ("host: b", [True])]
)
def test_a_host_that_is_drained_may_take_nodes_again(node: str, passes: list[bool]) -> None:
    hosts = f"{{a: {{{EXACT}}}, b: {{{EXACT}, drained: true}}}}"
    cluster = read(f"hosts: {hosts}\nnodes: [{{{node}}}]")
    facts = {"a": replace(FACTS, memory=4 * GIB), "b": FACTS}
    _, refused = place(cluster, {}, facts, {})
    assert [isinstance(each, NoCapacity) for each in refused] == passes


def test_a_host_that_is_unreachable_may_be_reached_again() -> None:
    cluster = read("hosts: {a: {}}\nnodes: [{}]")
    _, (refused,) = place(cluster, {}, {"a": replace(FACTS, away="no route")}, {})
    assert isinstance(refused, NoCapacity)


def test_what_others_of_a_project_use_can_be_given_back() -> None:
    cluster = read(f"hosts: {{a: {{{EXACT}}}}}\nnodes: [{{cpus: 2}}]")
    for most, passes in ((2, True), (1, False)):
        quota = Quota({QuotaName.CPUS: Share(most, used=most - 1)})
        (refused,) = refusals(cluster, a=replace(FACTS, cpus=1, quota=quota))
        assert isinstance(refused, NoCapacity) == passes


def test_a_refusal_passes_where_all_of_its_reasons_do() -> None:
    many = [NoCapacity(f"reason {number}") for number in range(300)]
    assert PlanRefused(many).passes
    assert not PlanRefused([*many, "no firmware"]).passes
    assert not PlanRefused([]).passes
