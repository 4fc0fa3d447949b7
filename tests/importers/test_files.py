"""Other tools' files become cluster files, which load; what is left out is told."""

from __future__ import annotations

import json

import pytest

from nospoon.clusterfile.load import load
from nospoon.errors import UsageError
from nospoon.importers import READERS, Imported, Source
from nospoon.model.boot import BootDevice
from nospoon.model.cluster import BmcProtocol, Cluster, Firmware, Node

EXAMPLE = """---
node_types:
  type0:
    memory_mb: 1024
    vcpus: 1
    volumes:
      - capacity: 2GB
    physical_networks:
      - physnet0

specs:
  - type: type0
    count: 3
    ironic_config:
      resource_class: my_rc

physnet_mappings:
  physnet0: brfoo
"""
"""Tenks's own ansible/override.yml.example, without its comments."""

WIDE = """
default_boot_mode: bios
default_ironic_driver: redfish
node_types:
  Big_One:
    memory_mb: 4096
    vcpus: 4
    cpu_mode: host-model
    console_log_enabled: true
    volumes: [{capacity: 10G}, {capacity: 20GiB, dev: vdb}, {image: seed.qcow2}]
    physical_networks: [physnet0, Physnet1]
  small: {ironic_driver: ipmi, volumes: [{capacity: 512M}], physical_networks: [physnet0]}
specs:
  - {type: Big_One, count: 2, node_name_prefix: rack-a}
  - type: small
    count: 20
    ironic_config:
      resource_class: small
      traits: [CUSTOM_FAST]
      properties: {capabilities: "boot_mode:uefi"}
nova_flavors: [{resource_class: small, node_type: small}]
physnet_mappings: {physnet0: eth1, Physnet1: br1}
ipmi_username: me
unheard_of: 1
"""


def imported(text: str, **more: object) -> tuple[Cluster, Imported]:
    made = READERS["tenks"](Source("override.yml", text, "t", **more))  # type: ignore[arg-type]
    return load(made.text, file="made", local_file=None), made


def test_tenks_example_gives_the_same_nodes_networks_volumes_and_bmcs() -> None:
    cluster, made = imported(EXAMPLE)
    assert [node.name for node in cluster.nodes] == ["tk0", "tk1", "tk2"]
    node = cluster.nodes[0]
    assert (node.cpus, node.memory, node.firmware) == (1, 1 << 30, Firmware.UEFI)
    assert [disk.size for disk in node.disks] == [2 * 10**9]
    assert node.bmc == (BmcProtocol.IPMI,)
    assert node.boot_order == (BootDevice.DISK, BootDevice.CDROM, BootDevice.NETWORK)
    assert (node.credentials.username, node.credentials.password) == ("username", "password")
    (network,) = cluster.networks
    assert network.physnet == node.nics[0].network == "physnet0"
    assert dict(cluster.hosts[0].physnets) == {"physnet0": "brfoo"}
    assert cluster.addressing.ports == (6230, 6240)
    assert node.enrolment.resource_class == "my_rc"
    assert cluster.ironic is None
    (left,) = made.left_out
    assert left.startswith("enrollment in Ironic: name the cloud with --cloud")


def test_what_has_no_place_is_told_and_choices_are_commented() -> None:
    cluster, made = imported(WIDE)
    assert len(cluster.nodes) == 22
    assert cluster.nodes[1].name == "rack-a1"
    assert [disk.size for disk in cluster.nodes[0].disks] == [10 << 30, 20 << 30, 0]
    assert cluster.nodes[0].bmc == (BmcProtocol.REDFISH,)
    small = cluster.nodes[-1]
    assert (small.firmware, small.traits, small.bmc) == (
        Firmware.UEFI, ("CUSTOM_FAST",), (BmcProtocol.IPMI,),
    )  # fmt: skip
    assert cluster.addressing.ports == (6230, 6251)
    assert "6230-6240 is too small for 22 nodes" in made.text
    assert set(made.left_out) == {
        "node_types.Big_One.cpu_mode",
        "node_types.Big_One.volumes[1].dev",
        "enrollment in Ironic: name the cloud with --cloud (envvars: that of OS_*)",
        "nova_flavors: name the cloud with --cloud (envvars: that of OS_*)",
        "unheard_of",
    }
    assert all(each in made.text for each in made.left_out)


def test_hosts_come_from_the_inventory() -> None:
    inventory = {
        "libvirt": {"hosts": ["localhost", "Rack2"]},
        "_meta": {
            "hostvars": {
                "localhost": {"ansible_connection": "local", "ansible_host": "127.0.0.1"},
                "Rack2": {
                    "ansible_host": "10.0.0.2",
                    "ansible_user": "stack",
                    "physnet_mappings": {"physnet0": "br9"},
                },
            }
        },
    }
    cluster, _ = imported(EXAMPLE, inventory=inventory)
    local, remote = cluster.hosts
    assert (local.name, local.where, local.ssh) == ("localhost", "qemu:///system", "")
    assert remote.where == "qemu+ssh://stack@10.0.0.2/system"
    assert (remote.ssh, dict(remote.physnets)) == ("stack@10.0.0.2", {"physnet0": "br9"})


STATE = """
localhost:
  physnet_indices: {physnet0: 0}
  nodes:
    - {name: tk0, type: type0, ipmi_port: 6230, ironic_driver: ipmi,
       ironic_config: {resource_class: testing-rc, traits: [CUSTOM_GOLD]}}
    - {name: tk1, type: gone, ipmi_port: 6231, state: absent}
    - {name: tk7, type: type0, ipmi_port: 6237}
"""


def test_nodes_of_a_running_cluster_are_taken_as_they_are() -> None:
    made = READERS["tenks"](Source("override.yml", EXAMPLE, "tenks", state=STATE))
    cluster = load(made.text, file="made")
    assert [node.name for node in cluster.nodes] == ["tk0", "tk7"], "tk1 is absent, of no type"
    assert {node.host for node in cluster.nodes} == {cluster.hosts[0].name}
    assert cluster.nodes[0].traits == ("CUSTOM_GOLD",)
    assert "Tenks has it on port 6237" in made.text
    elsewhere = STATE.replace("tk0,", "tk0, vcpus: 8,") + "hv9: {nodes: [{name: t, type: type0}]}\n"
    told = READERS["tenks"](Source("override.yml", EXAMPLE, "tenks", state=elsewhere)).left_out
    assert set(told) - set(made.left_out) == {
        "state of localhost: no such host in the inventory; its nodes go to here",
        "state of hv9: no such host in the inventory; its nodes go to here",
        "state: vcpus 8 of node tk0: its type has 1",
    }
    with pytest.raises(UsageError, match=r"state of localhost: nodes\[0\]: expected a node"):
        READERS["tenks"](Source("o", EXAMPLE, "c", state=STATE.replace("type0", "type9")))


def test_instackenv_gives_nodes_with_their_macs_and_accounts() -> None:
    text = """{"nodes": [
      {"name": "Control_0", "pm_type": "ipmi", "pm_addr": "192.168.24.1", "pm_port": "6230",
       "pm_user": "admin", "pm_password": "pw", "cpu": "4", "memory": "6144", "disk": "40",
       "arch": "x86_64", "mac": ["00:0b:d0:69:7e:59"], "capabilities": "boot_mode:uefi,x:y"},
      {"pm_type": "redfish", "ports": [{"address": "00:0b:d0:69:7e:58",
       "physical_network": "ctlplane"}], "disk": "0", "root_device": {"name": "/dev/vda"}}]}"""
    made = READERS["instackenv"](Source("instackenv.json", text, "tripleo"))
    cluster = load(made.text, file="made")
    first, second = cluster.nodes
    assert (first.name, first.cpus, first.memory) == ("control-0", 4, 6 << 30)
    assert (first.firmware, first.nics[0].mac) == (Firmware.UEFI, "00:0b:d0:69:7e:59")
    assert (first.credentials.password, first.bmc) == ("pw", (BmcProtocol.IPMI,))
    assert (second.name, second.firmware) == ("node-1", Firmware.BIOS)
    assert second.bmc == (BmcProtocol.REDFISH,)
    assert (len(first.disks), second.disks) == (1, ())
    assert [(each.name, each.value) for each in first.enrolment.capabilities] == [("x", '"y"')]
    assert "# BMCs have new addresses" in made.text
    (hint,) = second.enrolment.properties
    assert (hint.name, json.loads(hint.value)) == ("root_device", {"name": "/dev/vda"})
    assert made.left_out == ()


def tripleo(**node: object) -> tuple[Node, Imported]:
    """A node of instackenv.json with these keys, as it is loaded."""
    text = json.dumps({"nodes": [node]})
    made = READERS["instackenv"](Source("instackenv.json", text, "tripleo"))
    return load(made.text, file="made").nodes[0], made


def test_accounts_that_no_bmc_takes_are_left_out_and_the_rest_of_the_node_loads() -> None:
    node, made = tripleo(pm_user="a-name-of-17-bytes", pm_password="p" * 21)
    assert (node.credentials.username, node.credentials.password) == ("admin", "")
    assert set(made.left_out) == {
        "nodes[0].pm_user: a BMC takes 1 to 16 bytes without colons",
        "nodes[0].pm_password: a BMC takes 1 to 20 bytes",
    }
    assert "p" * 21 not in made.text
    node, made = tripleo(pm_password=12345678)
    assert (node.credentials.password, made.left_out) == ("12345678", ())


def test_what_is_left_of_ports_and_where_the_bmc_was_is_told() -> None:
    link = {"switch_id": "00:00:00:00:00:01", "port_id": "p1"}
    port = {"address": "52:54:00:AA:BB:02", "local_link_connection": link, "pxe_enabled": True}
    node, made = tripleo(ports=[port], pm_system_id="/redfish/v1/Systems/5", pm_addr="h")
    assert node.nics[0].mac == "52:54:00:aa:bb:02"
    assert made.left_out == (
        "nodes[0].pm_system_id",
        "nodes[0].ports[0].local_link_connection",
        "nodes[0].ports[0].pxe_enabled",
    )
    assert all(f"#   {each}\n" in made.text for each in made.left_out)


def test_firmware_is_what_the_architecture_has_and_another_bmc_is_told() -> None:
    node, made = tripleo(arch="aarch64", pm_type="idrac")
    assert node.firmware is Firmware.UEFI
    assert made.left_out == ("nodes[0].pm_type 'idrac': its BMC speaks IPMI here",)
    node, made = tripleo(pm_type="fake_pxe")
    assert (node.bmc, made.left_out) == ((), ())


def test_an_account_of_tenks_that_no_bmc_takes_is_left_out() -> None:
    cluster, made = imported(EXAMPLE + "ipmi_username: a:b\nipmi_password: " + "p" * 21)
    credentials = cluster.nodes[0].credentials
    assert (credentials.username, credentials.password) == ("admin", "")
    assert "ipmi_username: a BMC takes 1 to 16 bytes without colons" in made.left_out
    assert "ipmi_password: a BMC takes 1 to 20 bytes" in made.left_out


def test_names_of_volumes_are_told() -> None:
    _, made = imported(EXAMPLE.replace("count: 3", "count: 3\n    vol_name_prefix: data"))
    assert "specs[0].vol_name_prefix" in made.left_out


@pytest.mark.parametrize(
    ("capacity", "size"),
    [("10g", 10 << 30), ("10Gib", 10 << 30), ("2gb", 2 * 10**9), ("4096", 4096), ("1p", 1 << 50)],
)
def test_capacities_are_those_that_libvirt_takes(capacity: str, size: int) -> None:
    cluster, _ = imported(EXAMPLE.replace("2GB", capacity))
    assert cluster.nodes[0].disks[0].size == size


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (
            "instackenv",
            '{"nodes": [{"memory": "6GB"}]}',
            r"in: nodes\[0\]\.memory: expected a whole number, got '6GB'",
        ),
        (
            "tenks",
            EXAMPLE + "ipmi_port_range_start: low\n",
            "in: ipmi_port_range_start: expected a whole number, got 'low'",
        ),
        (
            "tenks",
            EXAMPLE.replace("  physnet0: brfoo", "  - brfoo"),
            r"in: physnet_mappings: expected a mapping .*, got \['brfoo'\]",
        ),
        (
            "tenks",
            EXAMPLE.replace("2GB", "10x"),
            r"in: node_types\.type0\.volumes\[0\]\.capacity: expected a size .*, got '10x'",
        ),
        (
            "tenks",
            EXAMPLE.replace("vcpus: 1", "vcpus: 0"),
            r"in: node_types\.type0\.vcpus: expected at least 1, got 0",
        ),
        (
            "tenks",
            EXAMPLE + "ipmi_address: hv1.example\n",
            "in: ipmi_address: expected an IPv4 or IPv6 address, got 'hv1.example'",
        ),
        (
            "tenks",
            EXAMPLE + "ipmi_port_range_end: 70000\n",
            "in: ipmi_port_range_start: expected ports from 1 to 65535",
        ),
        (
            "tenks",
            EXAMPLE + "default_boot_mode: efi\n",
            "in: default_boot_mode: expected one of bios, uefi, .*got 'efi'",
        ),
        (
            "instackenv",
            '{"nodes": [{"arch": "ppc64le"}]}',
            r"in: nodes\[0\]\.arch: expected one of x86_64, aarch64, got 'ppc64le'",
        ),
        (
            "instackenv",
            '{"nodes": [{"ports": [{"physical_network": "ctlplane"}]}]}',
            r"in: nodes\[0\]\.ports\[0\]\.address: expected a MAC address .*, got nothing",
        ),
        (
            "instackenv",
            '{"nodes": [{"mac": ["52:54:00:aa:bb:02", "none"]}]}',
            r"in: nodes\[0\]\.mac\[1\]: expected a MAC address .*, got 'none'",
        ),
        (
            "instackenv",
            '{"nodes": [{"root_device": "/dev/vda"}]}',
            r"in: nodes\[0\]\.root_device: expected a mapping of hints",
        ),
        (
            "instackenv",
            '{"nodes": [{"mac": "52:54:00:aa:bb:02"}]}',
            r"in: nodes\[0\]\.mac: expected a list, got '52:54:00:aa:bb:02'",
        ),
        (
            "instackenv",
            (
                '{"nodes": [{"ports": [{"address": "52:54:00:aa:bb:02", "physical_network": "p_1"},'
                '{"address": "52:54:00:aa:bb:03", "physical_network": "p-1"}]}]}'
            ),
            r"in: physical networks: one name in a cluster file for p_1 and p-1 \(p-1\)",
        ),
        (
            "tenks",
            EXAMPLE.replace("specs:", "  Type.0: {}\n  type-0: {}\nspecs:"),
            r"in: node_types: one name in a cluster file for Type\.0 and type-0 \(type-0\)",
        ),
        (
            "tenks",
            EXAMPLE.replace("  physnet0: brfoo", "  physnet0: brfoo\n  Physnet0: br2"),
            r"in: physical networks: .* for Physnet0 and physnet0 \(physnet0\)",
        ),
        (
            "tenks",
            EXAMPLE.replace("      - physnet0", "      physnet0: 1"),
            r"in: node_types\.type0\.physical_networks: expected a list, got",
        ),
    ],
)
def test_a_value_of_the_wrong_kind_names_its_place(kind: str, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        READERS[kind](Source("in", text, "cluster"))


ENROLLED = """
node_types:
  type0: {memory_mb: 1024, vcpus: 1, volumes: [{capacity: 2GB}], physical_networks: [physnet0]}
specs:
  - type: type0
    count: 2
    ironic_config:
      resource_class: my_rc
      traits: [CUSTOM_GOLD]
      deploy_interface: direct
      network_interface: noop
      properties: {capabilities: "boot_mode:bios,fast:yes", vendor: acme, cpus: 1}
      conductor_group: rack1
      unheard_of: 1
  - {type: type0, count: 1, node_name_prefix: bare}
nova_flavors:
  - resource_class: my_rc
    node_type: type0
    name: gold
    required_traits: [CUSTOM_GOLD]
    forbidden_traits: [CUSTOM_SLOW]
    custom_specs: {"capabilities:boot_mode": bios}
  - {resource_class: other, node_type: type0, color: red}
deploy_kernel_uuid: 0a1b
deploy_ramdisk: http://images/ramdisk
physnet_mappings: {physnet0: brfoo}
"""


def test_enrolment_and_flavors_of_tenks_are_carried_over_to_a_cloud() -> None:
    made = READERS["tenks"](Source("override.yml", ENROLLED, "t", cloud="envvars"))
    text = made.text.replace("cloud: envvars", "cloud: {name: x, auth: {}}")
    cluster = load(text, file="made", local_file=None)
    enrolment = cluster.nodes[0].enrolment
    assert (enrolment.resource_class, enrolment.conductor_group) == ("my_rc", "rack1")
    assert (cluster.nodes[0].firmware, cluster.nodes[0].traits) == (Firmware.BIOS, ("CUSTOM_GOLD",))
    said = {each.name: json.loads(each.value) for each in enrolment.interfaces}
    assert said == {"deploy": "direct", "network": "noop"}
    assert 'properties: {vendor: acme}, capabilities: {fast: "yes"}' in made.text
    assert 'deploy_kernel: "0a1b"' in made.text
    gold, other = cluster.nova
    assert (gold.name, gold.resource_class) == ("gold", "my_rc")
    assert dict(gold.traits) == {"CUSTOM_GOLD": "required", "CUSTOM_SLOW": "forbidden"}
    assert "capabilities:boot_mode" in [each.name for each in gold.specs]
    assert other.name == "other"
    assert made.left_out == (
        "specs of type type0: ironic_config.unheard_of",
        "nova_flavors[1].color",
        "specs of type type0: Tenks enrolls none of them, `ironic` here enrolls all",
    )


def test_templates_of_ansible_are_refused_with_their_places() -> None:
    text = EXAMPLE.replace("1024", '"{{ memory }}"').replace("2GB", '"{{ size }}"')
    with pytest.raises(UsageError) as caught:
        READERS["tenks"](Source("override.yml", text, "t"))
    assert "override.yml: node_types.type0.memory_mb: '{{ memory }}'" in str(caught.value)
    assert "override.yml: node_types.type0.volumes[0].capacity: '{{ size }}'" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("memory_mb: 1024", "memory_mb: much"), r"node_types\.type0\.memory_mb: expected a whole"),
        (("vcpus: 1", "vcpus: few"), r"node_types\.type0\.vcpus: expected a whole number"),
        (("resource_class: my_rc\n    node_type", "node_type"), r"nova_flavors\[0\]: expected"),
    ],
)
def test_what_tenks_itself_could_not_use_is_refused(change: tuple[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        READERS["tenks"](Source("override.yml", ENROLLED.replace(*change), "t"))


@pytest.mark.parametrize("text", ["", "specs: []", "nodes: [{pm_type: ipmi}]"])
def test_a_tenks_override_without_nodes_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected nodes of a type under `specs`"):
        READERS["tenks"](Source("o.yml", text, "dev", {}, "", ""))
