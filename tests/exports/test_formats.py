"""Each format says what its reader asks for; readers that run here read it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import jsonschema
import pytest
import yaml
from tests.exports.conftest import inventory_of

from nospoon.clusterfile.load import load
from nospoon.control.planning.exports import WRITERS
from nospoon.exports.formats import FORMATS, Syntax
from nospoon.exports.inventory import Inventory, LeftOut, summed
from nospoon.importers import READERS, Source
from nospoon.model.cluster import BmcProtocol, Firmware

SECRET = "pass-{{word}}"
HERE = Path(__file__).parent
Make = Callable[[str], Inventory]


def text_of(inventory: Inventory, to: str) -> str:
    return WRITERS[FORMATS[to].syntax](FORMATS[to].make(inventory).value)


def left_out_of(to: str, inventory: Inventory) -> list[str]:
    return [str(each) for each in FORMATS[to].make(inventory).left_out]


def ansible(path: Path, **environment: str) -> Any:
    """What Ansible makes of an inventory; warnings are errors."""
    argv = ["ansible-inventory", "--list", "-i", str(path)]
    env = {"PATH": "/usr/bin:/bin", "HOME": str(path.parent), **environment}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
    assert "ERROR" not in done.stderr
    assert "Unable to parse" not in done.stderr
    return json.loads(done.stdout)


def test_what_ironic_creates_has_its_ports_in_their_portgroups(mixed: Inventory) -> None:
    told = json.loads(text_of(mixed, "ironic"))
    alone, bonded, redfish, manual = told["nodes"]
    assert alone["driver_info"]["ipmi_password"] == SECRET
    assert [port["pxe_enabled"] for port in alone["ports"]] == [True, False]
    assert "portgroups" not in alone
    (group,) = bonded["portgroups"]
    assert "ports" not in bonded
    assert {port["portgroup_uuid"] for port in group["ports"]} == {group["uuid"]}
    assert redfish["driver_info"]["redfish_password"] == SECRET
    assert (redfish["resource_class"], redfish["boot_interface"]) == (
        "gold", "redfish-virtual-media",
    )  # fmt: skip
    assert (manual["driver"], manual["driver_info"]) == ("manual-management", {})
    (first, *_) = left_out_of("ironic", mixed)
    assert "CUSTOM_GOLD" in first


def test_an_instackenv_is_imported_again_as_the_same_nodes(mixed: Inventory) -> None:
    imported = READERS["instackenv"](Source("x.json", text_of(mixed, "instackenv"), "again"))
    untold = {each.rpartition(".")[2] for each in imported.left_out}
    of_the_bmc_and_its_switch = {"pm_system_id", "local_link_connection"}
    assert untold == {"resource_class", "kernel_id"} | of_the_bmc_and_its_switch | {
        f"{each}_interface" for each in ("boot", "deploy")
    }
    cluster = load(imported.text, file="again")
    for before, after in zip(mixed.places, cluster.nodes, strict=True):
        assert (after.name, after.cpus, after.memory) == (
            before.name, before.node.cpus, before.node.memory,
        )  # fmt: skip
        assert [nic.mac for nic in after.nics] == [nic.mac for nic in before.machine.nics]
        assert (after.firmware is Firmware.BIOS) is (before.node.firmware is Firmware.BIOS)
    first, _, redfish, _ = cluster.nodes
    assert (first.credentials.username, first.credentials.password) == ("admin", SECRET)
    assert redfish.bmc == (BmcProtocol.REDFISH,)


def test_an_instackenv_has_what_tripleo_makes_driver_info_of(mixed: Inventory) -> None:
    first, _, redfish, _ = json.loads(text_of(mixed, "instackenv"))["nodes"]
    assert (first["pm_type"], first["pm_addr"]) == ("ipmi", mixed.places[0].bmc.address)
    assert first["pm_port"] == str(mixed.places[0].bmc.ipmi_port)
    assert redfish["pm_addr"] == f"http://{mixed.places[2].bmc.redfish}"
    assert redfish["pm_system_id"].endswith(str(mixed.places[2].machine.uuid))
    assert (redfish["kernel_id"], redfish["root_device"]) == (
        "http://192.0.2.1/k", {"serial": "A1", "size": 10},
    )  # fmt: skip
    assert "portgroups of i1" in left_out_of("instackenv", mixed)


BIFROST = HERE.parents[1] / "contrib/bifrost/inventory.py"


def test_bifrosts_machines_are_hosts_in_bifrosts_inventory(
    mixed: Inventory, tmp_path: Path
) -> None:
    (tmp_path / "baremetal.json").write_text(text_of(mixed, "bifrost"))
    command = tmp_path / "nospoon"
    command.write_text(f'#!/bin/sh\n[ "$*" = "export --to bifrost dev" ] && cat {tmp_path}/*.json')
    command.chmod(0o755)
    given = {"NOSPOON": str(command), "NOSPOON_CLUSTER": "dev"}
    told = ansible(BIFROST, **given)
    assert told["baremetal"]["hosts"] == ["i0", "i1", "r0", "q0"]
    assert told["localhost"]["hosts"] == ["127.0.0.1"]
    variables = told["_meta"]["hostvars"]
    assert variables["i0"]["driver_info"]["ipmi_password"] == SECRET
    assert variables["i0"]["properties"]["ram"] == "4096"
    assert variables["i0"]["ansible_ssh_host"] == "172.30.7.2"
    assert variables["i0"]["provisioning_ipv4_address"] == "172.30.7.2"
    assert variables["q0"]["addressing_mode"] == "dhcp"
    assert UUID(variables["r0"]["uuid"]) == mixed.places[2].machine.uuid
    chosen = ansible(BIFROST, **given, DEFAULT_HOST_GROUPS="rack nova", BIFROST_NODE_NAMES="r0,q0")
    assert chosen["rack"]["hosts"] == chosen["nova"]["hosts"] == ["r0", "q0"]
    assert "baremetal" not in chosen
    assert "i0" not in chosen["_meta"]["hostvars"]


def test_kayobes_hosts_have_the_variables_that_its_playbook_asserts(
    mixed: Inventory, tmp_path: Path
) -> None:
    path = tmp_path / "baremetal-compute.yml"
    path.write_text(text_of(mixed, "kayobe"))
    told = ansible(path)
    assert told["baremetal-compute"]["hosts"] == ["i0", "i1", "r0", "q0"]
    needed = {"ironic_driver", "ironic_driver_info", "ironic_properties", "ironic_resource_class"}
    for variables in told["_meta"]["hostvars"].values():
        assert needed <= variables.keys()
        for part in ("ironic_driver_info", "ironic_properties"):
            assert not [v for v in variables[part].values() if isinstance(said(v), dict | list)]
    gold = told["_meta"]["hostvars"]["r0"]
    assert json.loads(gold["ironic_properties"]["root_device"]) == {"serial": "A1", "size": 10}
    assert said(told["_meta"]["hostvars"]["i0"]["ironic_driver_info"]["ipmi_password"]) == SECRET


def said(value: Any) -> Any:
    """Text that Ansible is told to take as it is, it shows so."""
    return value["__ansible_unsafe"] if isinstance(value, dict) else value


def test_ansible_has_groups_addresses_and_passwords_that_are_no_templates(
    mixed: Inventory, tmp_path: Path
) -> None:
    path = tmp_path / "hosts.yaml"
    path.write_text(text_of(mixed, "ansible"))
    told = ansible(path)
    assert told["role_control"]["hosts"] == told["trait_custom_gold"]["hosts"] == ["i0", "i1"]
    assert told["cluster_dev"]["hosts"] == ["i0", "i1", "r0", "q0"]
    variables = told["_meta"]["hostvars"]
    assert (variables["i1"]["ansible_host"], variables["i1"]["bmc_ipmi_port"]) == (
        "172.30.7.3", mixed.places[1].bmc.ipmi_port,
    )  # fmt: skip
    assert variables["r0"]["ansible_ssh_common_args"] == "-o ProxyJump=root@rack2"
    assert "ansible_host" not in variables["q0"]
    show = ["ansible", "-i", str(path), "i0", "-c", "local", "-m", "ansible.builtin.debug"]
    done = subprocess.run(
        [*show, "-a", "var=bmc_password"], capture_output=True, text=True, check=True
    )
    assert f'"bmc_password": "{SECRET}"' in done.stdout


@pytest.mark.parametrize("mark", ["{{", "{%", "{#"])
def test_what_begins_a_template_is_marked_as_none(mark: str) -> None:
    """Ansible leaves out comments, too, and with them the rest of a password."""
    assert "!unsafe" in WRITERS[Syntax.YAML]({"bmc_password": f"a{mark}b"})


def test_labels_that_are_no_names_of_groups_are_told_apart(tmp_path: Path) -> None:
    labels = "{all: '', n0: '', '1x': '2', rack: '7'}"
    text = f"hosts: {{a: simulated}}\nnodes: [{{name: n0, labels: {labels}}}]\n"
    path = tmp_path / "hosts.yaml"
    path.write_text(text_of(inventory_of(text), "ansible"))
    groups = {name for name in ansible(path) if "label" in name or "rack" in name}
    assert groups == {"label_all", "label_n0", "label_1x_2", "rack_7"}


def test_bare_metal_hosts_are_valid_and_find_their_secrets(mixed: Inventory) -> None:
    documents = list(yaml.safe_load_all(text_of(mixed, "bmh")))
    hosts = {each["metadata"]["name"]: each for each in documents if "spec" in each}
    secrets = {each["metadata"]["name"]: each for each in documents if each["kind"] == "Secret"}
    schema = json.loads((HERE / "baremetalhost.json").read_text())
    for each in hosts.values():
        jsonschema.validate(each, schema)
        login = secrets[each["spec"]["bmc"]["credentialsName"]]["stringData"]
        assert login == {"username": "admin", "password": SECRET}
    assert set(hosts) == {"i0", "i1", "r0"}
    ipmi, redfish = hosts["i0"]["spec"], hosts["r0"]["spec"]
    assert ipmi["bmc"]["address"] == f"ipmi://{mixed.places[0].bmc.ipmi}"
    assert ipmi["rootDeviceHints"] == {"serialNumber": mixed.places[0].machine.disks[0].serial}
    assert ipmi["bootMACAddress"] == mixed.places[0].machine.nics[0].mac
    system = f"/redfish/v1/Systems/{mixed.places[2].machine.uuid}"
    address = f"redfish-virtualmedia+http://{mixed.places[2].bmc.redfish}{system}"
    assert (redfish["bmc"]["address"], redfish["bootMode"]) == (address, "UEFISecureBoot")
    assert redfish["rootDeviceHints"] == {"serialNumber": "A1"}, "exactly 10 GiB cannot be said"


def test_the_schema_of_bare_metal_hosts_refuses_what_the_cluster_would(mixed: Inventory) -> None:
    schema = json.loads((HERE / "baremetalhost.json").read_text())
    (_, host, *_) = yaml.safe_load_all(text_of(mixed, "bmh"))
    for wrong in ({"bootMode": "uefi"}, {"rootDeviceHints": {"serial": "A"}}, {"online": None}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**host, "spec": {**host["spec"], **wrong}}, schema)


@pytest.mark.parametrize(
    ("bmc", "ironic", "address"),
    [
        ("{protocols: [ipmi, redfish]}", "{}", "redfish+http://"),
        ("{protocols: [ipmi, redfish]}", "{driver: ipmi}", "ipmi://"),
        ("{protocols: [redfish]}", "{interfaces: {boot: redfish-virtual-media}}",
         "redfish-virtualmedia+http://"),
        ("{protocols: [redfish]}", "{interfaces: {boot: redfish-https}}",
         "redfish-uefihttp+http://"),
    ],
)  # fmt: skip
def test_metal3_is_told_redfish_unless_the_file_says_otherwise(
    made: Make, bmc: str, ironic: str, address: str
) -> None:
    inventory = made(f"nodes: [{{count: 1, bmc: {bmc}, ironic: {ironic}}}]")
    (_, host) = yaml.safe_load_all(text_of(inventory, "bmh"))
    assert host["spec"]["bmc"]["address"].startswith(address)
    assert "disableCertificateVerification" not in host["spec"]["bmc"]


def test_metal3_does_not_verify_certificates_that_bmcs_made_themselves(made: Make) -> None:
    inventory = made("bmc: {tls: true}\nnodes: [{count: 1}]")
    (_, host) = yaml.safe_load_all(text_of(inventory, "bmh"))
    assert host["spec"]["bmc"]["address"].startswith("redfish://")
    assert host["spec"]["bmc"]["disableCertificateVerification"] is True


def test_hints_that_metal3_cannot_say_are_told(made: Make) -> None:
    hints = "{size: '>= 10', vendor: 's== ACME', by_path: x, model: QEMU}"
    inventory = made(f"nodes: [{{count: 1, ironic: {{root_device: {hints}}}}}]")
    result = FORMATS["bmh"].make(inventory)
    said = {"minSizeGigabytes": 10, "vendor": "ACME", "model": "QEMU"}
    assert result.value[1]["spec"]["rootDeviceHints"] == said
    assert [str(each) for each in result.left_out if each.what.startswith("root device hint")] == [
        "root device hint by_path of node-0: Metal3 has none like 'x'",
        "root device hint model of node-0: Metal3 takes it for a part of the model",
        "root device hint vendor of node-0: Metal3 takes it for a part of the vendor",
    ]


PATH = "/dev/disk/by-path/pci-0000:01:00.0-scsi-0:2:0:0"


@pytest.mark.parametrize(
    ("hints", "said", "left"),
    [
        ({"model": "<in> QEMU"}, {"model": "QEMU"}, []),
        ({"vendor": "<in> ACME"}, {"vendor": "ACME"}, []),
        ({"wwn": "<in> 0x5"}, {}, ["wwn"]),
        ({"by_path": PATH}, {"deviceName": PATH}, []),
        ({"by_path": f"s== {PATH}"}, {"deviceName": PATH}, []),
        ({"name": "/dev/vda", "by_path": PATH}, {"deviceName": "/dev/vda"}, ["by_path"]),
        ({"name": PATH}, {}, ["name"]),
    ],
)
def test_metal3_makes_the_same_hints_of_it_for_ironic(
    made: Make, hints: dict[str, str], said: dict[str, str], left: list[str]
) -> None:
    made_of = FORMATS["bmh"].make(
        made(f"nodes: [{{count: 1, ironic: {{root_device: {json.dumps(hints)}}}}}]")
    )
    assert made_of.value[1]["spec"].get("rootDeviceHints", {}) == said
    assert [each.what.split()[3] for each in made_of.left_out if "root device" in each.what] == left


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        ("'>= 9'", {"minSizeGigabytes": 9}),
        ("'= 9'", {"minSizeGigabytes": 9}),
        ("20", {"serialNumber": "1"}),
        ("'<= 9'", {"serialNumber": "0"}),
        ("'> 100'", {}),
    ],
)
def test_a_size_that_metal3_cannot_say_becomes_the_serial_number_of_that_disk(
    made: Make, hint: str, said: dict[str, Any]
) -> None:
    disks = "[{size: 5GiB, serial: '0'}, {size: 20GiB, serial: '1'}]"
    ironic = f"{{root_device: {{size: {hint}}}}}"
    inventory = made(f"nodes: [{{count: 1, disks: {disks}, ironic: {ironic}}}]")
    spec = FORMATS["bmh"].make(inventory).value[1]["spec"]
    assert spec.get("rootDeviceHints", {}) == said


SAYING = """
nodes:
  - name: n0
    nics: [provision, {network: provision, pxe: false}]
    ironic:
      interfaces: {boot: ipxe}
      extra: {asset: 7}
      volumes: {targets: [{volume_id: root}]}
      rescue_kernel: "file:///k"
      properties: {rack: r7, unit: 0}
      capabilities: {x: y}
"""


@pytest.mark.parametrize(
    ("kind", "left_out"),
    [
        ("kayobe", {"boot_interface", "extra", "volumes", "ports"}),
        (
            "bifrost",
            {
                "extra",
                "volumes",
                "ports.pxe_enabled",
                "ports.physical_network",
                "ports.local_link_connection",
            },
        ),
        (
            "instackenv",
            {
                "extra",
                "volumes",
                "ports.pxe_enabled",
                "driver_info.rescue_kernel",
                "properties.rack",
                "properties.unit",
            },
        ),
        (
            "bmh",
            {
                "boot_interface",
                "extra",
                "volumes",
                "ports.pxe_enabled",
                "ports.physical_network",
                "ports.local_link_connection",
                "driver_info.rescue_kernel",
                "properties.rack",
                "properties.unit",
            },
        ),
    ],
)
def test_what_a_format_has_no_place_for_is_told(made: Make, kind: str, left_out: set[str]) -> None:
    told = {each for each in left_out_of(kind, made(SAYING)) if "password" not in each}
    if kind == "bmh":
        told -= {"ports of n0 but that of bootMACAddress", "properties.capabilities of n0: x:y"}
    assert told == {f"{each} of n0" for each in left_out}


def test_of_ports_and_capabilities_metal3_has_what_it_boots_by(made: Make) -> None:
    left_out = left_out_of("bmh", made(SAYING))
    assert "ports of n0 but that of bootMACAddress" in left_out
    assert "properties.capabilities of n0: x:y" in left_out


def test_metal3_is_told_to_boot_from_media_and_of_nodes_that_boot_from_no_port(made: Make) -> None:
    by_media = "ironic: {interfaces: {boot: redfish-virtual-media}}"
    inventory = made(
        f"nodes: [{{name: n0, nics: [{{network: provision, pxe: false}}], {by_media}}}]"
    )
    left_out = left_out_of("bmh", inventory)
    assert "bootMACAddress of n0: no port to boot from" in left_out
    assert "boot_interface of n0" not in left_out


def test_what_many_nodes_lack_is_one_line() -> None:
    many = [LeftOut("ports", f"n{i}", " but that of bootMACAddress") for i in range(5)]
    few = [LeftOut("", f"n{i}", ": no known address") for i in range(3)]
    all_of_many = [LeftOut("", f"n{i}", ": it is not there") for i in range(4)]
    assert list(summed([*many, *few, *all_of_many, LeftOut("traits", "n7")])) == [
        "ports of 5 nodes (n0, n1, n2, …) but that of bootMACAddress",
        "node n0: no known address",
        "node n1: no known address",
        "node n2: no known address",
        "4 nodes (n0, n1, n2, …): it is not there",
        "traits of n7",
    ]


def test_nodes_whose_address_nobody_knows_are_told(made: Make) -> None:
    inventory = made("networks: {lan: {}}\nnodes: [{name: n0, nics: [lan]}]")
    assert inventory.places[0].address == ""
    (told,) = left_out_of("prometheus-sd", inventory)
    assert told == "node n0: no known address"


def test_ssh_reaches_nodes_by_name_and_through_their_host(mixed: Inventory, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(text_of(mixed, "ssh-config"))

    def settings(host: str) -> dict[str, str]:
        argv = ["ssh", "-G", "-F", str(path), host]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)

    assert settings("dev-i0")["hostname"] == settings("i0.dev")["hostname"] == "172.30.7.2"
    assert "proxyjump" not in settings("dev-i0")
    assert settings("dev-r0")["proxyjump"] == "root@rack2"
    assert settings("dev-r0")["userknownhostsfile"] == "/dev/null"
    assert settings("dev-q0")["hostname"] == "dev-q0"


def test_prometheus_has_targets_as_strings_and_no_secrets(mixed: Inventory) -> None:
    text = text_of(mixed, "prometheus-sd")
    assert SECRET not in text
    told = json.loads(text)
    for each in told:
        assert each.keys() == {"targets", "labels"}
        assert all(":" in target for target in each["targets"])
        assert all(isinstance(value, str) for value in each["labels"].values())
    found = {
        (each["labels"]["__meta_nospoon_node"], each["labels"]["__meta_nospoon_endpoint"]): each
        for each in told
    }
    assert found["i0", "ipmi"]["targets"] == [mixed.places[0].bmc.ipmi]
    assert found["i0", "node"]["targets"] == ["172.30.7.2:9100"]
    assert found["r0", "redfish"]["labels"]["__meta_nospoon_scheme"] == "http"
    assert not [name for name in found if name[0] == "q0"]


def test_formats_without_passwords_have_none(mixed: Inventory) -> None:
    told = {name: SECRET in text_of(mixed, name) for name in FORMATS}
    assert told == {name: each.secrets for name, each in FORMATS.items()}
