"""`ironic:` of the cluster file: layers, and what is refused."""

from __future__ import annotations

import json

import pytest

from nospoon.clusterfile.load import load
from nospoon.errors import SpecError
from nospoon.model.cluster import Cluster
from nospoon.model.ironic import Settings, Standing

HEAD = "cluster: t\nhosts: {sim: simulated}\n"


def read(text: str) -> Cluster:
    return load(HEAD + text, file="f.yaml")


def told(settings: Settings) -> dict[str, object]:
    return {each.name: json.loads(each.value) for each in settings}


def test_what_is_said_nearer_to_a_node_holds_and_mappings_add_up() -> None:
    cluster = read(
        "ironic: {endpoint: 'http://h:6385/', state: manageable, owner: all, extra: {a: 1, b: 1}}\n"
        "flavors: {f: {ironic: {owner: flavor, extra: {b: 2, c: 2}}}}\n"
        "nodes: [{name: 'n{n}', count: 2, flavor: f, ironic: {extra: {c: [3]}},"
        " overrides: {n1: {ironic: {state: available}}}}]\n"
    )
    first, second = (node.enrolment for node in cluster.nodes)
    assert (first.owner, first.state, second.state) == (
        "flavor", Standing.MANAGEABLE, Standing.AVAILABLE,
    )  # fmt: skip
    assert told(first.extra) == told(second.extra) == {"a": 1, "b": 2, "c": [3]}
    assert cluster.ironic is not None
    assert cluster.ironic.where == ("http://h:6385", "")


@pytest.mark.parametrize(
    ("ironic", "said"),
    [
        ("{}", "expected one of endpoint and cloud"),
        ("{endpoint: 'http://h', cloud: x}", "expected one of endpoint and cloud"),
        ("{endpoint: h:6385}", "expected a URL"),
        ("{endpoint: 'http://h', auth: http_basic}", "expected username and password"),
        ("{endpoint: 'http://h', driver_info: {ipmi_password: p}}", "leave out 'ipmi_password'"),
        ("{endpoint: 'http://h', driver_info: {snmp_community: p}}", "leave out 'snmp_community'"),
        ("{endpoint: 'http://h', extra: {nospoon: 1}}", "whose a node is"),
        ("{endpoint: 'http://h', interfaces: {bot: ipxe}}", "interfaces"),
        ("{endpoint: 'http://h', state: rescued}", "state"),
        (
            "{endpoint: 'http://h', volumes: {targets: [{volume_id: a}, {volume_id: b}]}}",
            "a boot_index of its own",
        ),
        (
            "{endpoint: 'http://h', volumes: {targets: [{volume_id: a, properties: {secret: p}}]}}",
            "leave out 'secret'",
        ),
    ],
)
def test_what_cannot_be_is_refused_where_it_stands(ironic: str, said: str) -> None:
    with pytest.raises(SpecError) as refused:
        read(f"ironic: {ironic}\nnodes: [{{count: 1}}]\n")
    assert said in str(refused.value)
    assert "f.yaml:3:" in str(refused.value)


def test_a_password_is_in_no_words_about_a_place() -> None:
    cluster = read(
        "ironic: {cloud: {name: c, auth: {auth_url: 'http://k/v3', password: hush}}}\n"
        "nodes: [{count: 1}]\n"
    )
    assert cluster.ironic is not None
    assert cluster.ironic.where == ("http://k/v3", "")
    assert "hush" not in f"{cluster.ironic} {cluster.ironic!r}"


@pytest.mark.parametrize(("driver", "bmc"), [("snmp", "[ipmi]"), ("redfish", "[ipmi, pdu]")])
def test_a_driver_for_what_the_bmc_does_not_speak_is_refused(driver: str, bmc: str) -> None:
    with pytest.raises(SpecError, match=f"driver '{driver}' needs '(pdu|redfish)' in `bmc`"):
        read(f"nodes: [{{count: 2, bmc: {bmc}, ironic: {{driver: {driver}}}}}]\n")


def test_what_is_deployed_is_told_by_name_or_as_ironic_has_it_and_must_be_something() -> None:
    cluster = read(
        "ironic: {endpoint: 'http://h', state: active, instance_info: {root_gb: 4}}\n"
        "flavors: {default: {ironic: {image: 'http://f/i', checksum: abc}}}\n"
        "nodes: [{count: 1}]\n"
    )
    assert told(cluster.nodes[0].enrolment.instance) == {
        "image_source": "http://f/i", "image_checksum": "abc", "root_gb": 4,
    }  # fmt: skip
    with pytest.raises(SpecError, match=r"f.yaml:4.*state 'active' of 'node-0' needs an `image`"):
        read("ironic: {endpoint: 'http://h', state: active}\nnodes: [{count: 2}]\n")
