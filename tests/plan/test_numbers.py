"""Addresses of machines stay while nodes come and go around them."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from uuid import UUID

from nospoon.clusterfile.load import load
from nospoon.model.cluster import Cluster
from nospoon.model.resources.networks import Link
from nospoon.plan.addresses.addresses import known_addresses, reserved
from nospoon.plan.addresses.allocate import Allocations, Occupied, allocate
from nospoon.plan.addresses.numbers import HostNumbers, in_order, of_host
from nospoon.plan.resolution.around import Surroundings
from nospoon.plan.resolution.resolve import resolve

LAN = "networks: {lan: {netboot: builtin, cidr: [10.9.0.0/29, 'fd00:9::/64']}}\n"


def read(nodes: str, lan: str = LAN) -> Cluster:
    return load(f"cluster: dev\nhosts: {{h: {{}}}}\n{lan}nodes: {nodes}", file="x")


def decided(cluster: Cluster, earlier: Allocations | None = None) -> Allocations:
    allocations, reasons = allocate(cluster, earlier or Allocations(), Occupied())
    assert not reasons
    return allocations


def addresses(cluster: Cluster, allocations: Allocations) -> dict[str, str]:
    return {
        f"{node}/{nic}": address
        for (node, nic), address in known_addresses(cluster, allocations).items()
    }


def test_first_they_are_in_the_order_of_the_file() -> None:
    cluster = read("[{name: a}, {name: b, nics: [lan, lan]}]")
    assert addresses(cluster, decided(cluster)) == {
        "a/0": "10.9.0.2", "b/0": "10.9.0.3", "b/1": "10.9.0.4",
    }  # fmt: skip


def test_nodes_that_come_and_go_change_nobody_elses() -> None:
    first = decided(read("[{name: a}, {name: b}, {name: c}]"))
    fewer = read("[{name: b}, {name: c}]")
    second = decided(fewer, first)
    assert addresses(fewer, second) == {"b/0": "10.9.0.3", "c/0": "10.9.0.4"}
    more = read("[{name: x}, {name: b, nics: [lan, lan]}, {name: c}]")
    third = decided(more, second)
    assert addresses(more, third) == {
        "x/0": "10.9.0.2", "b/0": "10.9.0.3", "b/1": "10.9.0.5", "c/0": "10.9.0.4",
    }  # fmt: skip


def test_what_a_smaller_network_has_no_room_for_gets_another() -> None:
    wide = LAN.replace("/29", "/24")
    many = ", ".join(f"{{name: n{n}}}" for n in range(20))
    first = decided(read(f"[{many}]", wide))
    few = read("[{name: n19}, {name: n1}]")
    assert addresses(few, decided(few, first)) == {"n19/0": "10.9.0.2", "n1/0": "10.9.0.3"}


def test_a_network_with_ipv6_alone_keeps_numbers_too() -> None:
    six = "networks: {lan: {netboot: builtin, cidr: 'fd00:9::/64'}}\n"
    first = decided(read("[{name: a}, {name: b}]", six))
    fewer = read("[{name: b}]", six)
    assert addresses(fewer, decided(fewer, first)) == {"b/0": "fd00:9::1001"}


OVERLAY = (
    "networks: {lan: {overlay: vxlan, netboot: builtin, cidr: [10.9.0.0/24, 'fd00:9::/64']}}\n"
)
ID = UUID("5d0f2f0e-0000-4000-8000-000000000001")


def far(*hosts: str, nodes: str = "[{name: w0}, {name: w1}]", lan: str = OVERLAY) -> Cluster:
    """Hosts that do not exist; those with a "-" before their names are drained."""
    named = ", ".join(
        f"{name.strip('-')}: {{ssh: x{n}, libvirt: 'qemu+ssh://x{n}/system', "
        f"address: 198.51.100.{n}, drained: {str(name.startswith('-')).lower()}}}"
        for n, name in enumerate(hosts, 1)
    )
    return load(f"cluster: dev\nhosts: {{{named}}}\n{lan}nodes: {nodes}", file="x")


def ends(cluster: Cluster, allocations: Allocations) -> dict[str, tuple[str, str]]:
    """The addresses of hosts that are used."""
    around = Surroundings({host.name: "/p" for host in cluster.hosts}, {}, {})
    return {
        key.place: (each.shape.address, each.shape.address6)
        for key, each in resolve(cluster, ID, allocations, around).items()
        if isinstance(each.shape, Link)
    }


def test_a_host_that_comes_to_an_overlay_moves_neither_machines_nor_hosts() -> None:
    before = far("a")
    first = decided(before)
    given = addresses(before, first)
    assert given == {"w0/0": "10.9.0.2", "w1/0": "10.9.0.3"}
    after = far("-d", "a")
    second = decided(after, first)
    assert addresses(after, second) == given
    assert ends(after, second) == ends(before, first) == {"a": ("10.9.0.1/24", "fd00:9::1/64")}


def test_who_comes_later_has_one_of_the_last_addresses_and_keeps_it() -> None:
    nodes = "[{name: w0}, {name: w1, host: HOST}]"
    first = decided(far("a", nodes=nodes.replace("HOST", "a")))
    more = far("d", "e", "a", nodes="[{name: w0, host: a}, {name: w1, host: e}]")
    second = decided(more, replace(first, hosts={"w0": "a", "w1": "e"}))
    at_e = ends(more, second)["e"]
    assert at_e == ("10.9.0.253/24", "fd00:9::3/64")
    fewer = far("a", "e", nodes="[{name: w0, host: a}, {name: w1, host: e}]")
    third = decided(fewer, second)
    assert ends(fewer, third) == {"a": ("10.9.0.1/24", "fd00:9::1/64"), "e": at_e}


def test_a_host_of_an_overlay_gets_no_address_of_a_machine() -> None:
    lan = OVERLAY.replace("/24", "/29")
    five = "[{name: w0}, {name: w1}, {name: w2}, {name: w3}, {name: w4}]"
    first = decided(far("a", nodes=five, lan=lan))
    first = replace(first, hosts={"w4": "a"}, numbers={"lan/w4/0": first.numbers["lan/w4/0"]})
    after = far("a", "-d", nodes="[{name: w4}, {name: x}, {name: y}, {name: z}]", lan=lan)
    then = decided(after, first)
    assert addresses(after, then) == {
        "w4/0": "10.9.0.6", "x/0": "10.9.0.2", "y/0": "10.9.0.3", "z/0": "10.9.0.4",
    }  # fmt: skip
    cidr = IPv4Network("10.9.0.0/29")
    assert of_host(after, after.networks[0], cidr, then.ends, "d") == IPv4Address("10.9.0.5")


def test_a_cluster_of_an_earlier_version_stays_as_it_is() -> None:
    cluster = far("a", "b", nodes="[{name: w0, host: b}, {name: w1, host: a}]")
    first = decided(cluster)
    assert first.ends == in_order(["a", "b"])
    assert addresses(cluster, replace(first, ends=HostNumbers())) == addresses(cluster, first)


def test_an_overlay_without_room_for_a_host_is_refused() -> None:
    lan = OVERLAY.replace("/24", "/29")
    five = "[{name: w0}, {name: w1}, {name: w2}, {name: w3}, {name: w4}]"
    first = decided(far("a", nodes=five, lan=lan))
    _, reasons = allocate(far("a", "-d", nodes=five, lan=lan), first, Occupied())
    assert reasons == [
        "network lan: 10.9.0.0/29 has no address left for host d. Take a larger `cidr`."
    ]


def test_who_left_the_file_and_is_there_keeps_its_address_while_others_are_free() -> None:
    first = decided(read("[{name: a}, {name: b}]"))
    other = read("[{name: b}, {name: x}]")
    second = decided(other, first)
    assert addresses(other, second) == {"b/0": "10.9.0.3", "x/0": "10.9.0.4"}
    later = read("[{name: b}, {name: x}, {name: y}]")
    still = decided(later, replace(second, hosts={**second.hosts, "a": "h"}))
    assert addresses(later, still)["y/0"] == "10.9.0.5"
    assert addresses(later, decided(later, second))["y/0"] == "10.9.0.2", "it is gone"


def test_a_full_network_gives_addresses_of_leavers_on() -> None:
    first = decided(read("[{name: a}, {name: b}, {name: c}, {name: d}, {name: e}]"))
    other = read("[{name: b}, {name: c}, {name: d}, {name: e}, {name: x}]")
    assert addresses(other, decided(other, first))["x/0"] == "10.9.0.2"


def test_an_overlay_without_room_for_a_node_is_refused() -> None:
    five = "[{name: w0}, {name: w1}, {name: w2}, {name: w3}, {name: w4}]"
    cluster = far("a", "b", nodes=five, lan=OVERLAY.replace("/24", "/29"))
    _, reasons = allocate(cluster, Allocations(), Occupied())
    assert reasons == [
        "network lan: 10.9.0.0/29 has no address left for node w4. Take a larger `cidr`."
    ]


def test_simulated_machines_ask_for_no_address_of_ours() -> None:
    text = "cluster: dev\nhosts: {{h: {kind}}}\nnodes: [{{count: 300}}]"
    simulated = load(text.format(kind="simulated"), file="x")
    made, reasons = allocate(simulated, Allocations(), Occupied())
    assert reasons == []
    given = [address for *_, address, _ in reserved(simulated, simulated.networks[0], made)]
    assert (len(set(given)), given.count("")) == (254, 300 - 253)
    _, reasons = allocate(load(text.format(kind="{}"), file="x"), Allocations(), Occupied())
    assert len(reasons) == 300 - 253
    assert "has no address left for node node-253. Take a larger `cidr`." in reasons[0]
