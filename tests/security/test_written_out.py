"""A short file makes little work: of what aliases repeat, of what is wrong in it, and of what each
of many nodes is given.

Half a megabyte of wrong values, which an alias repeated, stopped all threads for 20 s and took
3 GB; one of long texts by aliases, as JSON, took all memory.
"""

from __future__ import annotations

import pytest

from nospoon.clusterfile import ironic, models, sections
from nospoon.clusterfile.command_line import LONGEST
from nospoon.clusterfile.compose import MAX_TEXT
from nospoon.clusterfile.load import load
from nospoon.clusterfile.section import MAX_ERRORS, MAX_KEYS
from nospoon.errors import SpecError

BEGIN = "cluster: c\nhosts: {sim: simulated}\n"
IRONIC = "ironic: {endpoint: 'http://127.0.0.1:1'"


def refused(rest: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load(BEGIN + rest, file="x")
    return [each.message for each in caught.value.problems]


def items(count: int, *, of: str = "x") -> str:
    return f"[{', '.join([of] * count)}]"


def keys(count: int, *, value: str = "1") -> str:
    return f"{{{', '.join(f'x{number}: {value}' for number in range(count))}}}"


TOO_MANY = f"more than {MAX_ERRORS} problems, which are not listed"


def test_of_errors_that_an_alias_repeats_few_are_made() -> None:
    """In each of many sections of one piece: less than would be too many in one of them."""
    wrong = "&w {cpus: x, memory: x, tpm: x, arch: x}"
    count = MAX_ERRORS // 4 + 1
    more = ", ".join(f"node-{number}: *w" for number in range(1, count))
    nodes = f"nodes: [{{count: {count}, overrides: {{node-0: {wrong}, {more}}}}}]"
    assert refused(nodes) == [TOO_MANY]


def test_some_errors_are_listed() -> None:
    nodes = "nodes: [{overrides: {node-0: {cpus: x, memory: x}, node-1: {cpus: x}}}]"
    assert len(refused(nodes)) == 3


@pytest.mark.parametrize(
    "rest",
    [
        f"nodes: [{keys(MAX_KEYS + 1)}]",
        f"nodes: []\nflavors: {{f: {keys(MAX_KEYS + 1)}}}",
        f"nodes: []\nbmc: {keys(MAX_KEYS + 1)}",
    ],
)
def test_unknown_keys_of_a_section_are_not_counted_to_the_end(rest: str) -> None:
    assert refused(rest) == [TOO_MANY]


@pytest.mark.parametrize(
    "said",
    [
        f"boot_order: {items(6, of='disk')}",
        f"traits: [{', '.join(f'CUSTOM_{number}' for number in range(1001))}]",
        f"nics: [{{network: n, trunk: {items(4095, of='1')}}}]",
        f"portgroups: {keys(17, value='{}')}",
        f"portgroups: {{b: {{properties: {keys(65)}}}}}",
        f"ironic: {{capabilities: {keys(257, value='y')}}}",
        f"ironic: {{volumes: {{connectors: {items(65, of='{type: ip, id: i}')}}}}}",
        f"ironic: {{name: {'n' * 256}}}",
        f"placement: {{affinity: {items(65)}}}",
    ],
)
def test_lists_of_a_node_are_bounded(said: str) -> None:
    (message,) = refused(f"networks: {{n: {{bridge: b, switch: ovs}}}}\nnodes: [{{{said}}}]")
    assert message.startswith("expected at most")


def test_a_command_line_is_as_long_as_kernels_take() -> None:
    """A file with it is written for each node whose loader cannot ask."""
    for length in (LONGEST, LONGEST + 1):
        profile = f"{{script: 'http://a/b', cmdline: {'x' * length}}}"
        said = f"boot: {{b: {profile}}}\nnodes: [{{}}]"
        if length == LONGEST:
            assert len(load(BEGIN + said, file="x").profiles[0].cmdline) == length
        else:
            assert refused(said) == [f"expected at most {LONGEST} characters, got {length}"]


def test_groups_of_no_nodes_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sections, "MAX_CLUSTER", 10)
    groups = items(11, of="{count: 0}")
    assert refused(f"nodes: {groups}") == ["expected at most 10 groups of nodes, got 11"]


@pytest.mark.parametrize("key", ["extra", "properties", "driver_info", "instance_info"])
def test_what_is_written_as_json_is_measured_with_aliases_written_out(key: str) -> None:
    text = "t" * 1024
    many = items(ironic.MAX_VALUES // 1024, of="*t")
    said = f"{IRONIC}, {key}: {{t: &t {text}, l: {many}}}}}\nnodes: [{{}}]"
    (message,) = refused(said)
    assert message == f"expected at most {ironic.MAX_VALUES} characters, with aliases written out"


@pytest.mark.parametrize(
    "nodes",
    [
        "[{count: %d}]",
        "[{count: %d, overrides: {%s}}]",
        "[{count: %d, nics: [{network: n, trunk: &v [%s]}]}]",
        "[{count: %d, traits: [%s]}]",
    ],
)
def test_what_nodes_are_given_is_bounded_together(nodes: str) -> None:
    """Of 20,000 nodes a megabyte each was written out."""
    size, many = 16 << 10, 6200
    more = {
        "{%s}": ", ".join(f"node-{n}: {{}}" for n in range(many)),
        "trunk": ", ".join(map(str, range(1, 4000))),
        "traits": ", ".join(f"CUSTOM_{n:0200}" for n in range(90)),
    }
    filled = next((text for word, text in more.items() if word in nodes), None)
    given = nodes % ((many,) if filled is None else (many, filled))
    said = f"{IRONIC}, extra: {{t: {'x' * (16 if '[%s]' in nodes else size)}}}}}\n"
    said += f"networks: {{n: {{bridge: b, switch: ovs}}}}\nnodes: {given}"
    (message,) = refused(said)
    assert message.startswith(f"expected at most {models.MAX_DESCRIBED} characters in what")
    if "overrides" not in nodes:
        assert len(load(BEGIN + said.replace(str(many), "10", 1), file="x").nodes) == 10


def test_names_that_are_filled_in_are_counted() -> None:
    """Those of nodes and clusters have up to 63 characters."""
    text = "{node}" * 40
    targets = ", ".join(
        f"{{boot_index: {n}, volume_id: '{text}', properties: {{a: '{text}'}}}}" for n in range(4)
    )
    said = f"{IRONIC}, volumes: {{targets: [{targets}]}}}}\nbmc: {{pool: 127.64.0.0/16}}\n"
    (message,) = refused(f"{said}nodes: [{{count: 5000}}]")
    assert message.startswith(f"expected at most {models.MAX_DESCRIBED} characters in what")


def test_flavors_of_labs_are_counted() -> None:
    """An alias has a setting made again for each."""
    extra = f"{{extra: {{t: {'x' * 1_000_000}}}}}"
    more = "".join(f", f{number}: {{ironic: *i}}" for number in range(101))
    flavors = f"flavors: {{f: {{ironic: &i {extra}}}{more}}}\n"
    (message,) = refused(f"{IRONIC}}}\nlabs: {{l: {{}}}}\n{flavors}nodes: []")
    assert message.startswith(f"expected at most {models.MAX_DESCRIBED} characters in what")


def test_a_value_has_so_many_characters() -> None:
    assert refused(f"nodes: []\nid: {'x' * (MAX_TEXT + 1)}") == [
        f"a value of more than {MAX_TEXT} characters"
    ]
