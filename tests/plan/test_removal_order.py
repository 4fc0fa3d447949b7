"""What `down` removes last: that on which an Ironic of the cluster's own may run."""

from __future__ import annotations

from uuid import UUID

from nospoon.clusterfile.load import load
from nospoon.model.resources.keys import IRONIC, Key, Kind
from nospoon.model.resources.resource import Observed
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.addresses.allocate import Allocations, Occupied, allocate
from nospoon.plan.diff.diff import removal
from nospoon.plan.order.order import Half, Move, MoveId, moves
from nospoon.plan.resolution.around import ImageFacts, Surroundings
from nospoon.plan.resolution.resolve import resolve

CLUSTER = UUID(int=7)
IMAGE = "root.tar"
FILE = """
cluster: c
hosts: {here: {libvirt: "qemu:///system", lxc: true}}
networks: {control: {netboot: builtin}}
ironic: {endpoint: "http://i"}
nodes:
  - {name: metal, disks: [1GiB]}
  - {name: box, kind: container, host: "here:lxc", image: root.tar}
"""


def found() -> list[Observed]:
    cluster = load(FILE, file="x")
    allocations, reasons = allocate(cluster, Allocations(), Occupied())
    assert not reasons
    around = Surroundings(
        {"here": "/p", "here:lxc": "/p"}, {IMAGE: ImageFacts("ab" * 32, "tar", 1)}, {}
    )
    return [
        Observed(key, each.shape, OwnerTag("d", CLUSTER))
        for key, each in resolve(cluster, CLUSTER, allocations, around).items()
    ]


def before(order: dict[MoveId, Move], id_: MoveId) -> set[MoveId]:
    """All that a move waits for."""
    return set(order[id_].waits).union(*(before(order, each) for each in order[id_].waits))


def test_containers_and_the_names_of_their_network_outlast_what_is_enrolled() -> None:
    order = moves(removal(cluster="c", cluster_id=CLUSTER, observed=found()))
    enrolled = {id_ for id_ in order if id_[0].place == IRONIC}
    assert {key.name for key, _ in enrolled} == {"metal", "metal-0"}
    box = (Key(Kind.MACHINE, "here:lxc", "box"), Half.REMOVE)
    (names,) = (id_ for id_ in order if id_[0].kind is Kind.NETBOOT)
    assert enrolled <= before(order, box)
    assert enrolled <= before(order, names)
