"""A cluster as the daemon would hand it to a format: decided, with secrets, and nothing made."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from nospoon.clusterfile.load import load
from nospoon.exports.inventory import Inventory, Place
from nospoon.model.resources.bmcs import Bmc, Secrets
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.plan.addresses.addresses import known_addresses
from nospoon.plan.addresses.allocate import Allocations, Occupied, allocate
from nospoon.plan.resolution.around import Surroundings
from nospoon.plan.resolution.resolve import resolve

ID = UUID("5d0f2f0e-0000-4000-8000-000000000001")
SECRET = "pass-{{word}}"
MIXED = """
hosts:
  here: {libvirt: "qemu:///system", physnets: {public: br-ex}}
  far: {ssh: root@rack2, libvirt: "qemu+ssh://root@rack2/system"}
networks: {provision: {cidr: 172.30.7.0/24, netboot: builtin}, public: {physnet: public}}
bmc: {username: admin}
nodes:
  - {name: "i{n}", count: 2, host: here, bmc: [ipmi], memory: 4GiB, cpus: 2, disks: [20GiB],
     nics: [provision, public], traits: [CUSTOM_GOLD], labels: {role: control},
     portgroups: {b: {mode: 802.3ad}}, overrides: {i1: {nics: [{network: provision, portgroup: b},
     {network: provision, portgroup: b}]}, i0: {portgroups: {}}}}
  - {name: r0, host: far, bmc: [redfish], firmware: uefi-secure, nics: [provision],
     ironic: {resource_class: gold, automated_clean: false, description: mine,
     interfaces: {boot: redfish-virtual-media, deploy: direct},
     deploy_kernel: "http://192.0.2.1/k", root_device: {serial: A1, size: 10}}}
  - {name: q0, host: here, bmc: [], nics: [public], firmware: bios}
"""


def inventory_of(text: str) -> Inventory:
    cluster = load(f"cluster: dev\n{text}", file="x")
    allocations, reasons = allocate(cluster, Allocations(), Occupied())
    assert not reasons
    around = Surroundings({host.name: "/pools" for host in cluster.hosts}, {}, {})
    desired = {key: made.shape for key, made in resolve(cluster, ID, allocations, around).items()}
    addresses = known_addresses(cluster, allocations)
    hosts = {host.name: host for host in cluster.hosts}
    places = []
    for node in cluster.nodes:
        where = allocations.hosts[node.name]
        machine, bmc = (desired[Key(kind, where, node.name)] for kind in (Kind.MACHINE, Kind.BMC))
        assert isinstance(machine, Machine)
        assert isinstance(bmc, Bmc)
        nics = tuple(addresses.get((node.name, i), "") for i in range(len(node.nics)))
        secrets = Secrets(SECRET, pdu_secret="community")
        places.append(Place(node, hosts[where], machine, bmc, secrets, addresses=nics))
    return Inventory(cluster, tuple(places))


@pytest.fixture
def made() -> Callable[[str], Inventory]:
    return inventory_of


@pytest.fixture
def mixed() -> Inventory:
    """Nodes with IPMI (one with a bond), with Redfish on a host over ssh, and with neither."""
    return inventory_of(MIXED)
