"""Flavors of a file, as Nova is to have them."""

from __future__ import annotations

from uuid import UUID

import pytest

from nospoon.clusterfile import check
from nospoon.clusterfile.load import load
from nospoon.errors import SpecError
from nospoon.model.nova import NovaFlavor, NovaInventory
from nospoon.plan.enrollment.enrol import values
from nospoon.plan.enrollment.nova import in_nova, inventories, resource_name

ID = UUID("5d0f2f0e-0000-4000-8000-000000000001")
CLOUD = "cluster: dev\nhosts: {sim: simulated}\nironic: {cloud: {auth: {auth_url: 'http://h'}}}\n"


def flavor(nova: str, nodes: str = "[{count: 1}]") -> NovaFlavor:
    cluster = load(f"{CLOUD}nova: {{flavors: {{f: {nova}}}}}\nnodes: {nodes}", file="x")
    made, *_ = in_nova(cluster, ID)
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


WAITING = """[
  {name: a, traits: [CUSTOM_A], ironic: {resource_class: g}},
  {name: b, traits: [CUSTOM_A, CUSTOM_B], ironic: {resource_class: g}},
  {name: c, ironic: {resource_class: g}},
  {name: d, traits: [CUSTOM_A]},
  {name: e, traits: [CUSTOM_A], ironic: {resource_class: g, state: manageable}},
  {name: f, traits: [CUSTOM_A], bmc: [ipmi], ironic: {resource_class: g, enrolment: discover}}]"""


@pytest.mark.parametrize(
    ("traits", "names"),
    [
        ("{}", ["a", "b", "c"]),
        ("{CUSTOM_A: required}", ["a", "b"]),
        ("{CUSTOM_A: required, CUSTOM_B: forbidden}", ["a"]),
        ("{CUSTOM_A: required, COMPUTE_NODE: required}", ["a", "b"]),
        ("{CUSTOM_C: required}", []),
    ],
)
def test_placement_is_to_have_the_available_nodes_that_a_flavor_gives(
    traits: str, names: list[str]
) -> None:
    nova = f"nova: {{flavors: {{x: {{resource_class: g, traits: {traits}}}}}, wait: WAIT}}\n"
    text = f"{CLOUD}{nova}nodes: {WAITING}"
    made = list(inventories(load(text.replace("WAIT", "5s"), file="x"), ID))
    assert [
        [name for name, _ in each.shape.nodes]
        for each in made
        if isinstance(each.shape, NovaInventory)
    ] == ([names] if names else [])
    needs = [f"ironic-standing/{name}@Ironic" for name in names]
    assert [str(key) for each in made for key in each.needs] == needs
    assert not list(inventories(load(text.replace("WAIT", "0s"), file="x"), ID))


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


def test_a_node_of_a_thousand_flavors_counts_a_thousand_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Flavors of one class and 20,000 nodes took gigabytes, and minutes of the event loop."""
    monkeypatch.setattr(check, "MAX_GIVEN", 5)
    nova = "nova: {flavors: {f: {resource_class: g}, h: {resource_class: g}}}\n"
    nodes = "nodes: [{count: %d, ironic: {resource_class: g}}, {count: 9}]\n"
    assert len(load(f"{CLOUD}{nova}{nodes % 2}", file="x").nova) == 2
    with pytest.raises(
        SpecError, match=r"expected at most 5 nodes in the resource classes.* got 6"
    ):
        load(f"{CLOUD}{nova}{nodes % 3}", file="x")
