"""Desired state as the store has it: every value comes back, and of a group little is kept."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from nospoon.clusterfile.load import load
from nospoon.model.cluster import Adoption, Cluster, Host, Network, Node
from nospoon.model.lab import Lab
from nospoon.model.service import Service
from nospoon.store.desired import LONG, packed, unpacked

LIMIT = (1 << 63) - 1  # of whole numbers in files
EXAMPLES = Path(__file__).parents[2] / "examples"
FIRST = Path(__file__).with_name("desired-3.json")
GROUPS = f"""\
cluster: large
hosts: {{here: simulated}}
networks: {{lan: {{}}}}
flavors:
  a: {{kind: vm, disks: [{{image: /a.qcow2}}], user_data: "#!{"a" * 10_000}"}}
  b: {{kind: vm, disks: [{{image: /b.qcow2}}], user_data: "#!{"b" * 10_000}"}}
nodes:
"""


@pytest.fixture(scope="module", autouse=True)
def numbers() -> Iterator[None]:
    """Those that files may have."""
    st.register_type_strategy(int, st.integers(-LIMIT, LIMIT))
    st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))
    yield
    st.register_type_strategy(int, st.integers())
    st.register_type_strategy(float, st.floats())


def some(of: type) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(st.from_type(of), max_size=2).map(tuple)


def clusters() -> st.SearchStrategy[Cluster]:
    return st.builds(
        Cluster,
        hosts=some(Host),
        networks=some(Network),
        nodes=some(Node),
        labs=some(Lab),
        adoptions=some(Adoption),
        services=some(Service),
    )


@given(st.deferred(clusters))  # when `numbers` hold
@settings(phases=[Phase.generate])  # to shrink one takes minutes
def test_every_value_comes_back(cluster: Cluster) -> None:
    found = unpacked(packed(cluster))
    for each in fields(Cluster):
        assert getattr(found, each.name) == getattr(cluster, each.name), each.name


def test_the_clusters_of_the_examples_come_back() -> None:
    for file in EXAMPLES.rglob("*.yaml"):
        cluster = load(file.read_text(), file=str(file), default_uri="qemu:///system")
        assert unpacked(packed(cluster)) == cluster


def test_nodes_in_turn_keep_and_share_what_their_flavors_give_them() -> None:
    nodes = "".join(f"- {{name: n{n}, flavor: {'ab'[n % 2]}, nics: lan}}\n" for n in range(1000))
    cluster = load(GROUPS + nodes, file="c.yaml", default_uri="qemu:///system")
    kept = packed(cluster)
    assert len(zlib.decompress(kept)) < 100_000
    found = unpacked(kept)
    assert found == cluster
    assert len({id(node.cloud_init) for node in found.nodes}) == 2


def test_texts_that_nodes_share_by_aliases_are_kept_once() -> None:
    """A file of 140 KB took 6 GiB and half a minute at each start of the daemon."""
    text = "\U0001f600" * 30_000
    others = "".join(f"- {{name: n{n}, flavor: a, user_data: *{'xy'[n % 2]}}}\n" for n in range(64))
    keys = "".join(
        f"- {{name: k{n}, flavor: a, user_data: *x, ssh_keys: [ssh-ed25519 AAAA{n:02}==]}}\n"
        for n in range(64)
    )
    first = "".join(
        f"- {{name: {each}, flavor: a, user_data: &{each} '#!{each}{text}'}}\n" for each in "xy"
    )
    cluster = load(GROUPS + first + others + keys, file="c.yaml", default_uri="qemu:///system")
    kept = packed(cluster)
    assert len(zlib.decompress(kept)) < 3 * len(json.dumps(text))
    found = unpacked(kept)
    assert found == cluster
    assert len({id(node.cloud_init.user_data) for node in found.nodes}) == 2


@given(st.lists(st.text("~1", max_size=3) | st.text(min_size=LONG), max_size=4))
def test_texts_that_look_like_places_of_others_come_back(values: list[str]) -> None:
    node = Node("n", labels=tuple(zip(values, values, strict=True)))
    found = unpacked(packed(Cluster("c", hosts=(), networks=(), profiles=(), nodes=(node,))))
    assert found is not None
    assert found.nodes == (node,)


def test_what_another_format_has_is_nothing() -> None:
    assert unpacked(b"") is None
    assert unpacked(zlib.compress(b'{"format": 0}\n{}\n')) is None


def test_what_an_earlier_version_packed_is_read() -> None:
    """Where this fails, give the next version another `FORMAT`."""
    found = unpacked(zlib.compress(FIRST.read_bytes()))
    file = FIRST.with_suffix(".yaml")  # what it was packed of: examples go on
    assert found == load(file.read_text(), file=str(file), default_uri="qemu:///system")
