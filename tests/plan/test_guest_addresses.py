"""Which of a node's addresses its host looks at, and which its user is led to."""

from __future__ import annotations

from uuid import UUID

import pytest

from nospoon.clusterfile.load import load
from nospoon.plan.addresses.addresses import GuestAddress, login_addresses, looked_at
from nospoon.plan.addresses.allocate import Allocations
from nospoon.plan.identity import bridge_name

ID = UUID(int=7)
FILE = """
cluster: c
hosts: {{a: {{libvirt: "qemu:///system"}}}}
networks:
  lan: {{cidr: 10.9.0.0/24, nat: true}}
  apart: {{cidr: 10.8.0.0/24}}
  vlan: {{bridge: br-ex, switch: ovs, vlan: 100}}
nodes:
  - name: n
    kind: vm
    disks: [{{size: 1GiB, image: /i.qcow2}}]
    nics: [{nics}]
"""
NICS = {
    "lan": "{network: lan, address: 10.9.0.5/24}",
    "apart": "{network: apart, address: 10.8.0.5/24}",
    "vlan": "{network: vlan, address: 10.7.0.5/24}",
}
BRIDGE = bridge_name(ID, "lan")


def all_of(first: GuestAddress) -> tuple[GuestAddress, ...]:
    return first, *first.others


@pytest.mark.parametrize(
    ("nics", "looks", "login"),
    [
        (("lan", "vlan"), ["10.9.0.5"], "10.9.0.5"),
        (("vlan", "lan"), ["10.7.0.5", "10.9.0.5"], "10.9.0.5"),
        (("apart", "lan"), ["10.9.0.5"], "10.9.0.5"),
        (("apart", "vlan"), ["10.7.0.5"], "10.7.0.5"),
        (("apart",), [], "10.8.0.5"),
        ((), [], ""),
    ],
)
def test_a_host_finds_a_node_where_it_has_an_address_too(
    nics: tuple[str, ...], looks: list[str], login: str
) -> None:
    """A VLAN of others may have none of its: the first NIC's address is not the one to take."""
    cluster = load(FILE.format(nics=", ".join(NICS[each] for each in nics)), file="f")
    given = Allocations(hosts={"n": "a"}, cidrs={"lan": "10.9.0.0/24", "apart": "10.8.0.0/24"})
    found = [each for first in looked_at(cluster, ID, given).values() for each in all_of(first)]
    assert [each.address for each in found] == looks
    assert [each.link for each in found if each.is_certain] == [BRIDGE] * ("lan" in nics)
    assert login_addresses(cluster, ID, given).get("n", "") == login
