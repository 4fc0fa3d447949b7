"""Flavors of a file, as Nova is to have them."""

from __future__ import annotations

from uuid import UUID

import pytest

from nospoon.errors import SpecError
from nospoon.model.nova import NovaFlavor
from nospoon.plan.enrol import values
from nospoon.plan.nova import nova_flavors, resource_name
from nospoon.spec.load import load

ID = UUID("5d0f2f0e-0000-4000-8000-000000000001")
CLOUD = "cluster: dev\nhosts: {sim: simulated}\nironic: {cloud: {auth: {auth_url: 'http://h'}}}\n"


def flavor(nova: str, nodes: str = "[{count: 1}]") -> NovaFlavor:
    cluster = load(f"{CLOUD}nova: {{flavors: {{f: {nova}}}}}\nnodes: {nodes}", file="x")
    (made,) = nova_flavors(cluster, ID)
    assert isinstance(made.shape, NovaFlavor)
    return made.shape


def test_a_resource_class_has_the_name_that_placement_gives_it() -> None:
    assert resource_name("baremetal-gold.1") == "CUSTOM_BAREMETAL_GOLD_1"


def test_a_flavor_asks_for_one_node_and_nothing_else_of_a_virtual_machine() -> None:
    told = values(flavor("{resource_class: g, traits: {CUSTOM_A: forbidden}}").settings)
    assert told == {
        "resources:CUSTOM_G": "1", "resources:VCPU": "0", "resources:MEMORY_MB": "0",
        "resources:DISK_GB": "0", "trait:CUSTOM_A": "forbidden",
    }  # fmt: skip


def test_sizes_are_those_of_the_smallest_node_of_the_class_or_the_files() -> None:
    nodes = "[{name: a, memory: 8GiB, ironic: {resource_class: g}}, {name: b, cpus: 3,"
    nodes += " memory: 2GiB, disks: [7GiB], ironic: {resource_class: g}}, {name: c}]"
    made = flavor("{resource_class: g}", nodes)
    assert (made.vcpus, made.ram, made.disk) == (3, 2048, 7)
    said = flavor("{resource_class: g, vcpus: 9, disk: 0}", nodes)
    assert (said.vcpus, said.ram, said.disk) == (9, 2048, 0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nova: {flavors: {f: {resource_class: g}}}\n", "names none"),
        (
            "ironic: {endpoint: 'http://h'}\nnova: {flavors: {f: {resource_class: g}}}\n",
            "names none",
        ),
        ("nova: {flavors: {f: {resource_class: g, traits: {CUSTOM_A: wanted}}}}\n", "forbidden"),
        ("nova: {flavors: {f: {}}}\n", "resource_class"),
    ],
)
def test_flavors_that_cannot_be_are_refused(text: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        load(f"cluster: dev\nhosts: {{sim: simulated}}\n{text}nodes: [{{count: 1}}]\n", file="x")
