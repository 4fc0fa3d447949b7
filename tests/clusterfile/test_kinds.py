"""Kinds of nodes in the file: what each may say, where it is refused; the schema agrees."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from nospoon.cli.files import read_cluster
from nospoon.clusterfile.kinds import OF_DISKS, OF_NICS, REFUSED
from nospoon.clusterfile.load import load
from nospoon.clusterfile.schema import json_schema
from nospoon.errors import SpecError
from nospoon.model.boot import BootDevice
from nospoon.model.node_kind import NodeKind

VALIDATOR = Draft202012Validator(json_schema())
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ8 me@here"
VALUES: dict[str, Any] = {
    "image": "root.img",
    "user_data": "#cloud-config\n",
    "ssh_keys": [KEY],
    "rollback": False,
    "boot": "p",
    "boot_order": ["disk"],
    "ironic": {"driver": "ipmi"},
    "portgroups": {"b": {}},
    "arch": "x86_64",
    "firmware": "bios",
    "tpm": True,
}
OF_A_NIC: dict[str, Any] = {
    "pxe": True, "portgroup": "b", "model": "e1000", "address": "dhcp",
}  # fmt: skip
OF_A_DISK: dict[str, Any] = {
    "bus": "sata", "cache": "none", "discard": "ignore", "format": "raw", "rotational": False,
    "serial": "S1", "volume": "p/v", "mount": "/a",
}  # fmt: skip


def refusals(text: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load(text, file="x.yaml")
    return [str(each) for each in caught.value.problems]


def test_a_vm_has_its_image_as_root_boots_from_disk_and_has_no_bmc_unless_it_is_given_one() -> None:
    cluster = load(
        "cluster: a\nflavors: {v: {kind: vm, image: root.qcow2, ssh_keys: '" + KEY + "'}}\n"
        "nodes: [{name: a, user_data: '#cloud-config'}, {name: b, bmc: ipmi}]",
        file="x",
    )
    first, second = cluster.nodes
    assert first.kind is NodeKind.VM
    assert [disk.image for disk in first.disks] == ["root.qcow2"]
    assert first.boot_order == (BootDevice.DISK,)
    assert first.bmc == ()
    assert first.cloud_init.user_data == "#cloud-config"
    assert first.cloud_init.ssh_authorized_keys == (KEY,)
    assert [str(each) for each in second.bmc] == ["ipmi"]


def test_a_container_has_a_root_with_a_limit() -> None:
    text = "cluster: a\nnodes: [{kind: container, image: r.tar}, {kind: container, name: b, %s}]"
    usual, own = load(text % "disks: [{image: r.tar, size: 2GiB}]", file="x").nodes
    assert [disk.size >> 30 for disk in (*usual.disks, *own.disks)] == [10, 2]


def test_a_group_may_say_another_kind_than_its_flavor() -> None:
    text = "cluster: a\nflavors: {v: {cpus: 2}}\nnodes: [{kind: vm, image: r}, {name: b}]"
    assert [each.kind for each in load(text, file="x").nodes] == [NodeKind.VM, NodeKind.BAREMETAL]


def test_an_image_is_short_for_the_only_disk_also_where_a_flavor_has_others() -> None:
    text = "cluster: a\nflavors: {v: {kind: container, disks: [{image: old.tar, size: 4GiB}]}}\n"
    text += "nodes: [{image: new.tar, count: 2, overrides: {node-1: {image: third.tar}}}, {}]"
    roots = [[disk.image for disk in node.disks] for node in load(text, file="x").nodes]
    assert roots == [["new.tar"], ["third.tar"], ["old.tar"]]


@pytest.mark.parametrize(
    ("kind", "key"), [(kind, key) for kind, keys in REFUSED.items() for key in keys]
)
def test_what_a_kind_has_not_is_refused_at_its_place_by_loader_and_schema(
    kind: NodeKind, key: str
) -> None:
    group = {"kind": str(kind), key: VALUES[key]}
    if kind is not NodeKind.BAREMETAL:
        group["image"] = "root.img"
    value = {"cluster": "a", "boot": {"p": {"kernel": "k"}}, "nodes": [group]}
    assert not VALIDATOR.is_valid(value)
    text = json.dumps(value)
    (found,) = (each for each in refusals(text) if f"has no {key}:" in each)
    column = text.index(json.dumps(VALUES[key]), text.index(f'"{key}"', text.index("nodes"))) + 1
    assert found.startswith(
        f"x.yaml:1:{column}: nodes[0].{key}: a node of kind {kind} has no {key}"
    )


@pytest.mark.parametrize(
    ("kind", "part", "key"),
    [(kind, "nics", key) for kind, keys in OF_NICS.items() for key in keys]
    + [(kind, "disks", key) for kind, keys in OF_DISKS.items() for key in keys],
)
def test_so_is_what_its_nics_and_disks_have_not(kind: NodeKind, part: str, key: str) -> None:
    usual = {"network": "provision"} if part == "nics" else {"image": "r"}
    if key == "volume":
        usual = {}
    values = OF_A_NIC if part == "nics" else OF_A_DISK
    group = {"kind": str(kind), part: [{**usual, key: values[key]}]}
    if part == "nics" and kind is not NodeKind.BAREMETAL:
        group["image"] = "r"
    value = {"cluster": "a", "nodes": [group]}
    assert not VALIDATOR.is_valid(value)
    where = f"nodes[0].{part}[0].{key}: a node of kind {kind} has no {key}"
    found = refusals(json.dumps(value))
    # a format of no volume is refused for that already
    assert any(where in each for each in found) or key in {"format", "rotational"}


def test_what_comes_from_the_flavor_is_refused_there() -> None:
    text = "cluster: a\nflavors:\n  f:\n    tpm: true\nnodes: [{kind: container, image: r}]"
    (found,) = refusals(text)
    assert found.startswith("x.yaml:4:10: flavors.f.tpm: a node of kind container has no tpm")


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ("{kind: vm}", "expected an image for 'node-0', which is of kind vm"),
        ("{kind: vm, image: r, disks: [1GiB]}", "expected image or disks, got both"),
        (
            "{kind: container, disks: [{image: r}, 1GiB]}",
            "nodes[0].disks[1]: each disk of a container after its root needs a `mount`",
        ),
        (
            "{kind: container, disks: [{image: r, mount: /a}]}",
            "nodes[0].disks[0].mount: the first disk of a container is its root",
        ),
        (
            "{kind: container, disks: [image: r, {size: 1B, mount: /a}, {size: 1B, mount: /a/b}]}",
            "nodes[0].disks[2].mount: /a/b and /a (disk 1) are in one another",
        ),
        (
            "{kind: container, disks: [{image: r}, {image: r, mount: /a}]}",
            "nodes[0].disks[1].image: a volume of a container begins with what the image has at",
        ),
        (
            "{kind: container, disks: [{image: r}, {size: 1GiB, mount: /sys/a}]}",
            "nodes[0].disks[1].mount: /sys/a is filled by the kernel",
        ),
        (
            "{kind: container, disks: [{image: r}, {size: 1KiB, mount: /a}]}",
            "nodes[0].disks[1].size: expected at least 1MiB, got 1024 bytes",
        ),
        (
            "{kind: container, disks: [{image: r, size: 1KiB}]}",
            "nodes[0].disks[0].size: expected at least 1MiB, got 1024 bytes",
        ),
        (
            "{kind: container, disks: [{image: r}, {size: 1GiB, mount: /var/run/mysqld}]}",
            "nodes[0].disks[1].mount: /var/run/mysqld is filled by the kernel",
        ),
        *(
            (
                f"{{kind: container, disks: [{{image: r}}, {{size: 1GiB, mount: {place}}}]}}",
                f"nodes[0].disks[1].mount: {place} has what cloud-init is given",
            )
            for place in ("/var", "/var/lib", "/var/lib/cloud", "/var/lib/cloud/seed")
        ),
        (
            "{kind: container, disks: [{image: r}, {size: 1GiB, mount: /a/../b}]}",
            "nodes[0].disks[1].mount: ",
        ),
        (
            "{kind: vm, disks: [{image: r}, {size: 1GiB, mount: /a}]}",
            "nodes[0].disks[1].mount: a node of kind vm has no mount: its guest mounts its disks",
        ),
        ("{kind: lxc, image: r}", "expected"),
        ("{kind: vm, image: r, user_data: hello}", "expected user data of cloud-init, got 'hello'"),
        ("{kind: vm, image: r, user_data: {file: u}}", "only the nospoon command reads a file"),
        ("{kind: vm, image: r, ssh_keys: [nokey]}", "expected a public ssh key in one line"),
        (
            "{kind: vm, image: r, nics: [{network: provision, address: 10.0.0.0/24}]}",
            "expected the address of a host, got 10.0.0.0/24",
        ),
        (
            "{kind: vm, image: r, nics: [{network: provision, address: 10.0.0.1}]}",
            "expected dhcp, or an address with its prefix length such as 172.30.0.10/24",
        ),
        ("{adopt: m, kind: vm}", "an adopted machine is as its owner made it: drop kind"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_write(nodes: str, message: str) -> None:
    (found,) = (each for each in refusals(f"cluster: a\nnodes:\n  - {nodes}") if message in each)
    assert found.startswith("x.yaml:3:")


def test_what_the_file_says_of_ironic_is_for_bare_metal_alone() -> None:
    text = (
        "cluster: a\nironic: {endpoint: 'http://i', driver: ipmi, state: active%s}\n"
        "nodes: [{kind: vm, image: r}, {name: metal%s}]"
    )
    cluster = load(text % ("", ", ironic: {image: 'http://h/i'}"), file="x")
    assert [node.name for node in cluster.baremetal] == ["metal"]
    (found,) = refusals(text % ("", ""))
    assert "state 'active' of 'metal' needs an `image`" in found


def test_machines_of_a_lab_are_bare_metal() -> None:
    text = (
        "cluster: a\nflavors: {v: {kind: vm, image: r}}\n"
        "labs: {l: {flavors: [v]}}\nnodes: [{flavor: v}]"
    )
    assert any("machines of labs are bare metal" in each for each in refusals(text))


def test_the_client_writes_a_named_file_of_user_data_into_the_cluster_file(tmp_path: Path) -> None:
    content = "#cloud-config\npassword: 'a\\b \"ü'\n"
    (tmp_path / "u.yaml").write_text(content)
    file = tmp_path / "c.yaml"
    file.write_text(
        "cluster: a\nnodes:\n  - kind: vm\n    user_data:\n      file: u.yaml\n    image: r\n"
        "    overrides: {node-0: {user_data: {file: u.yaml}}}\n    cpus: 0\n"
    )
    with pytest.raises(SpecError, match=r"c\.yaml:8:11: nodes\[0\]\.cpus"):  # as in the file
        read_cluster(str(file))
    file.write_text(file.read_text().replace("cpus: 0", "cpus: 1"))
    (node,) = read_cluster(str(file)).nodes
    assert node.cloud_init.user_data == content


@pytest.mark.parametrize("content", [None, b"\xff", b"#" * 70000])
def test_user_data_that_cannot_be_read_is_refused_where_it_is_named(
    tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "u").write_bytes(content)
    file = tmp_path / "c.yaml"
    file.write_text("cluster: a\nnodes: [{kind: vm, image: r, user_data: {file: u}}]")
    with pytest.raises(SpecError, match=r"nodes\[0\]\.user_data: cannot read user data: .*u"):
        read_cluster(str(file))


@given(
    st.fixed_dictionaries(
        {"kind": st.sampled_from([*map(str, NodeKind), None])},
        optional={
            **{key: st.just(value) for key, value in VALUES.items()},
            "nics": st.lists(
                st.fixed_dictionaries(
                    {"network": st.just("provision")},
                    optional={key: st.just(value) for key, value in OF_A_NIC.items()},
                ),
                max_size=2,
            ),
        },
    ),
    st.booleans(),
)
def test_what_the_loader_takes_of_any_kind_the_schema_takes(
    section: dict[str, Any],
    in_flavor: bool,  # noqa: FBT001
) -> None:
    value: dict[str, Any] = {"cluster": "a", "nodes": [{} if in_flavor else section]}
    if in_flavor:
        value["flavors"] = {"f": section}
    try:
        load(yaml.safe_dump(value), file="x")
    except SpecError:
        return
    VALIDATOR.validate(value)


@pytest.mark.parametrize(
    ("node", "why"),
    [
        ("{disks: [{image: 'glance:x', size: 1GiB}]}", "only roots of VMs and containers start"),
        (
            "{kind: vm, disks: [{image: 'glance:', size: 1GiB}]}",
            "expected glance:NAME or glance:ID",
        ),
        ("{kind: vm, image: 'glance:x'}", "the root of 'node-0' needs a size"),
    ],
)
def test_an_image_of_a_cloud_is_a_root_with_a_size(node: str, why: str) -> None:
    assert why in refusals(f"cluster: a\nnodes: [{node}]")[0]
    (kept,) = load("cluster: a\nnodes: [{kind: container, image: 'glance:x'}]", file="x").nodes
    assert kept.disks[0].image == "glance:x"
