"""Machines that others made get BMCs, and are left as they were."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import bcrypt
import pytest
import sushy

from nospoon.model.cluster import Firmware
from nospoon.plan.identity import bridge_name
from nospoon.providers.libvirt.owner import NAMESPACE
from nospoon.testing import guests
from nospoon.testing.bench import free_port
from nospoon.testing.ironic import until
from nospoon.testing.rack import BIN, Rack
from nospoon.testing.redfish import System
from nospoon.testing.serial import Serial

THREE = "hosts: {sim: {simulated: {machines: [lab-a, lab-b, Other_VM]}}}\n"


def cluster(rack: Rack, body: str, name: str = "") -> tuple[str, str]:
    name = name or rack.name()
    return name, rack.file(f"cluster: {name}\n{rack.bmc()}{body}", f"{name}.yaml")


def test_machines_of_others_are_claimed_by_name_and_by_pattern_and_released(shared: Rack) -> None:
    name, file = cluster(
        shared,
        f"{THREE}nodes:\n- {{adopt: {{match: 'lab-*'}}, labels: {{rack: left}}}}\n"
        "- {adopt: Other_VM, name: odd}\n- {count: 1, disks: [1GiB]}\n",
    )
    planned = shared.run("plan", file).stdout
    assert "+ (claim) machine lab-a on sim  2 CPUs, 2 GiB, uefi" in planned
    assert "0 to delete, 3 to claim; 0 unchanged" in planned
    shared.run("up", "--yes", file)
    assert "Nothing to do" in shared.run("plan", file).stdout
    bmcs = shared.bmcs(name)
    assert sorted(bmcs) == ["lab-a", "lab-b", "node-0", "odd"]
    shared.ipmitool(bmcs["lab-b"], "chassis", "power", "on")
    states = {row["node"]: row["power"] for row in shared.json("node", "list", "--cluster", name)}
    assert states == {"lab-a": "off", "lab-b": "on", "node-0": "off", "odd": "off"}
    exported = shared.run("export", "--to", "ansible", name).stdout
    assert bmcs["odd"]["uuid"] in exported
    refused = shared.run("node", "power", f"{name}/gone", "on", status=2).stderr
    assert "no node" in refused
    told = shared.run("down", "--yes", name).stderr
    assert "3 to release" in told
    assert "machine/lab-b@sim: release" in told
    again, file = cluster(shared, f"{THREE}nodes: [{{adopt: lab-b}}]\n")
    shared.run("up", "--yes", file)
    (row,) = shared.json("node", "list", "--cluster", again)
    assert row["power"] == "on", "it was left as it was"
    assert shared.bmcs(again)["lab-b"]["uuid"] == bmcs["lab-b"]["uuid"]


def test_what_cannot_be_adopted_is_told_with_what_is_there(shared: Rack) -> None:
    first, file = cluster(shared, f"{THREE}nodes: [{{adopt: lab-a}}, {{count: 1, name: own}}]\n")
    shared.run("up", "--yes", file)
    own = shared.bmcs(first)["own"]["uuid"]
    _, file = cluster(
        shared,
        f"{THREE}nodes: [{{adopt: lab-a}}, {{adopt: '{own}'}}, {{adopt: lab-c}}, "
        "{adopt: lab-b}, {adopt: Other_VM, name: lab-b}]\n",
    )
    said = shared.run("plan", file, status=1).stderr
    assert "adopt lab-a: lab-a on host sim: it is a node of another cluster" in said
    assert f"adopt {own}: own on host sim: nospoon made it: it is a node already" in said
    assert "adopt lab-c: no such machine on sim. There: Other_VM, lab-a, lab-b, own." in said
    assert "Other_VM on host sim would be node lab-b, which is lab-b on host sim" in said
    assert said.count(f"{file}:") == 4, "each with its place in the file"


def test_other_adoptions_are_other_nodes(shared: Rack) -> None:
    name = shared.name()
    head = f"cluster: {name}\n{shared.bmc()}"

    def file(machines: str, adopt: str) -> str:
        hosts = f"hosts: {{sim: {{simulated: {{machines: [{machines}]}}}}}}\n"
        return shared.file(f"{head}{hosts}nodes: [{{adopt: {adopt}}}]\n", f"{name}.yaml")

    def planned(machines: str, adopt: str) -> list[tuple[str, str]]:
        steps = shared.json("plan", file(machines, adopt))["steps"]
        return [(each["action"], each["name"]) for each in steps if each["kind"] == "machine"]

    shared.run("up", "--yes", file("a1, b1", "a1"))
    assert planned("a1, b1", "b1") == [("claim", "b1"), ("release", "a1")]
    assert planned("a1, b1", "{match: '[ab]*'}") == [("claim", "b1")]
    shared.run("up", "--yes", file("a1, b1", "{match: '[ab]*'}"))
    assert planned("a1, b1", "{match: 'b*'}") == [("release", "a1")]
    assert planned("a1, b1, a2", "{match: '[ab]*'}") == [("claim", "a2")]
    shared.run("up", "--yes", file("a1, b1, a2", "{match: '[ab]*'}"))
    assert {row["node"] for row in shared.json("status", name)} == {"a1", "a2", "b1"}
    renamed = file("a1, b1, a2", "{machine: a1}, name: other")
    refused = shared.run("plan", renamed, status=1).stderr
    assert "it is node a1 of this cluster, and would be other" in refused


def test_the_shape_of_an_adopted_machine_is_its_owners(shared: Rack) -> None:
    _, file = cluster(shared, f"{THREE}nodes:\n- {{adopt: lab-a, memory: 4GiB, disks: [9GiB]}}\n")
    said = shared.run("plan", file, status=2).stderr
    assert "an adopted machine is as its owner made it: drop disks, memory" in said
    assert ":5:3: nodes[0]" in said


def test_what_was_adopted_outlives_the_daemon(rack: Rack) -> None:
    name, file = cluster(rack, f"{THREE}nodes: [{{adopt: lab-a}}]\n")
    rack.run("up", "--yes", file)
    uuid = rack.bmcs(name)["lab-a"]["uuid"]
    rack.run("daemon", "stop")
    assert "Nothing to do" in rack.run("plan", file).stdout
    found = rack.run("orphans", file).stdout
    assert "lab-a" not in found
    assert rack.bmcs(name)["lab-a"]["uuid"] == uuid


def test_what_would_change_what_is_its_owners_is_refused(shared: Rack) -> None:
    name, file = cluster(shared, f"{THREE}nodes: [{{adopt: lab-a}}]\n")
    shared.run("up", "--yes", file)
    bmc = shared.bmcs(name)["lab-a"]
    with pytest.raises(urllib.error.HTTPError) as caught:
        System(bmc).ask("POST", "/Storage/0/Volumes", {"CapacityBytes": 1 << 20})
    assert caught.value.code == 409
    assert b"An adopted machine is given no volumes" in caught.value.read()
    refused = shared.run("snapshot", "create", name, "s", status=5).stderr
    assert "adopted machines, whose disks are their owners': lab-a" in refused


def test_firmware_is_changed_as_a_bmc_is_asked(shared: Rack) -> None:
    name, file = cluster(shared, f"{THREE}nodes: [{{adopt: lab-a}}]\n")
    shared.run("up", "--yes", file)
    bmc = shared.bmcs(name)["lab-a"]
    system = System(bmc).ask("GET", "")
    targets = system["Boot"]["BootSourceOverrideTarget@Redfish.AllowableValues"]
    assert {"Cd", "BiosSetup"} <= set(targets)
    assert System(bmc).ask("GET", "/SecureBoot")["SecureBootMode"] == "SetupMode"
    shared.ipmitool(bmc, "chassis", "bootdev", "bios")
    assert "Setup" in shared.ipmitool(bmc, "chassis", "bootparam", "get", "5")
    shared.run("node", "boot", f"{name}/lab-a", "setup")


class Domain:
    """A domain that nospoon did not make, with a disk that says that it was booted."""

    def __init__(self, directory: Path, name: str) -> None:
        self.directory, self.name, self.uuid = directory, name, uuid4()
        self.serial = directory / f"{name}.log"

    def define(self, xml: str, disk: bytes) -> None:
        image = self.directory / f"{self.name}.img"
        image.write_bytes(disk)
        path = self.directory / f"{self.name}.xml"
        path.write_text(xml.format(name=self.name, uuid=self.uuid, disk=image, serial=self.serial))
        virsh("define", str(path))

    @property
    def xml(self) -> str:
        return virsh("dumpxml", "--inactive", "--security-info", self.name)

    @property
    def state(self) -> str:
        return virsh("domstate", self.name).strip()

    def remove(self) -> None:
        virsh("destroy", self.name, check=False)
        virsh("undefine", "--nvram", "--snapshots-metadata", self.name, check=False)
        for pool in virsh("pool-list", "--all", "--name").split():  # virt-install makes one
            if f"<path>{self.directory}</path>" in virsh("pool-dumpxml", pool, check=False):
                virsh("pool-destroy", pool, check=False)
                virsh("pool-undefine", pool)


def virsh(*argv: str, check: bool = True) -> str:
    done = subprocess.run(
        ["virsh", "-c", "qemu:///system", *argv], text=True, capture_output=True, check=False
    )
    assert not check or done.returncode == 0, f"{argv}: {done.stderr}"
    return done.stdout


@pytest.fixture
def domain(rack: Rack) -> Iterator[Domain]:
    made = Domain(rack.directory, f"{rack.name()}-VM")
    yield made
    made.remove()


SERIAL = "<serial type='pty'><log file='{serial}' append='on'/></serial><console type='pty'/>"
BY_CLASS = f"""<domain type='qemu'><name>{{name}}</name><uuid>{{uuid}}</uuid>
<memory unit='MiB'>96</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='pc'>hvm</type><boot dev='hd'/><bios useserial='yes'/></os>
<features><acpi/></features>
<devices>
<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='{{disk}}'/>
<target dev='vda' bus='virtio'/></disk>
<interface type='user'><model type='virtio'/></interface>
<interface type='user'><model type='e1000'/></interface>
{SERIAL}
</devices></domain>"""
"""BIOS, no CD drive, no metadata, boot order by class of device."""
WITH_METADATA = BY_CLASS.replace(
    "</uuid>", "</uuid><metadata><a:of xmlns:a='urn:own'/></metadata>", 1
)
BY_DEVICE = f"""<domain type='qemu' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
<name>{{name}}</name><uuid>{{uuid}}</uuid>
<metadata><own:note xmlns:own='http://example.org/own'>mine</own:note></metadata>
<memory unit='MiB'>256</memory><vcpu>1</vcpu>
<os firmware='efi'><type arch='x86_64' machine='q35'>hvm</type>
<firmware><feature enabled='no' name='secure-boot'/></firmware></os>
<features><acpi/></features>
<devices>
<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='{{disk}}'/>
<target dev='vda' bus='virtio'/><boot order='1'/></disk>
<disk type='file' device='cdrom'><driver name='qemu' type='raw' cache='none'/>
<target dev='sda' bus='sata'/><readonly/><alias name='ua-mine'/></disk>
<interface type='user'><model type='virtio'/><boot order='2'/></interface>
{SERIAL}
</devices>
<qemu:commandline><qemu:env name='OWN' value='1'/></qemu:commandline></domain>"""
"""UEFI, an empty CD drive, boot order by device, metadata and settings that are its owner's."""


@pytest.mark.libvirt
@pytest.mark.boots
def test_a_bios_domain_obeys_its_bmc_and_is_given_back_as_it_was(
    rack: Rack, domain: Domain, tmp_path: Path
) -> None:
    domain.define(BY_CLASS, guests.speaking_disk())
    before = domain.xml
    name, file = cluster(rack, f"nodes: [{{adopt: {domain.name}, name: vm}}]\n", rack.names[0])
    rack.run("up", "--yes", file)
    assert domain.state == "shut off"
    bmc, serial = rack.bmcs(name)["vm"], Serial(domain.serial)
    assert bmc["uuid"] == str(domain.uuid)
    rack.ipmitool(bmc, "chassis", "power", "on")
    assert serial.hears(guests.BOOTED) == guests.BOOTED
    rack.ipmitool(bmc, "chassis", "bootdev", "pxe")
    rack.ipmitool(bmc, "chassis", "power", "cycle")
    assert serial.hears(b"initialising devices", guests.BOOTED) == b"initialising devices"
    rack.ipmitool(bmc, "chassis", "power", "reset")
    assert serial.hears(guests.BOOTED) == guests.BOOTED, "once is once"
    rack.crash()
    disc = asyncio.run(guests.speaking_cd(tmp_path, firmware=Firmware.BIOS))
    rack.run("node", "media", "insert", f"{name}/vm", str(disc))
    assert "device='cdrom'" in domain.xml
    (domain.directory / f"{domain.name}.img").write_bytes(bytes(1 << 20))
    rack.ipmitool(bmc, "chassis", "bootdev", "cdrom")
    rack.ipmitool(bmc, "chassis", "power", "reset")
    assert serial.hears(guests.BOOTED) == guests.BOOTED, "the disc says it: the disk is blank"
    assert "Nothing to do" in rack.run("plan", file).stdout
    rack.run("down", "--yes", name)
    assert domain.xml == before
    assert domain.state == "running"


@pytest.mark.libvirt
@pytest.mark.boots
@pytest.mark.parametrize(
    ("xml", "firmware", "loads"),
    [
        (BY_CLASS, Firmware.BIOS, b"initialising devices"),
        (BY_DEVICE, Firmware.UEFI, b"PXE over IPv4"),
    ],
    ids=["bios, order by class", "uefi, order by device"],
)
def test_a_persistent_override_boots_each_time_from_the_network_until_the_machine_is_given_back(
    rack: Rack, domain: Domain, tmp_path: Path, xml: str, firmware: Firmware, loads: bytes
) -> None:
    is_bios = firmware is Firmware.BIOS
    disk = guests.speaking_disk() if is_bios else asyncio.run(guests.speaking_uefi_disk(tmp_path))
    domain.define(xml, disk)
    before = domain.xml
    name, file = cluster(rack, f"nodes: [{{adopt: {domain.name}, name: vm}}]\n", rack.names[0])
    rack.run("up", "--yes", file)
    bmc, serial = rack.bmcs(name)["vm"], Serial(domain.serial)
    how = "options=persistent" if is_bios else "options=persistent,efiboot"
    rack.ipmitool(bmc, "chassis", "bootdev", "pxe", how)
    rack.ipmitool(bmc, "chassis", "power", "on")
    assert serial.hears(loads, guests.BOOTED) == loads
    rack.crash()
    virsh("reset", domain.name)
    serial.skip()
    assert serial.hears(loads, guests.BOOTED) == loads, "without a daemon, too"
    assert rack.json("node", "show", "vm")["boot"] == "network (Continuous)"
    rack.ipmitool(bmc, "chassis", "power", "off")
    until(lambda: domain.state == "shut off")
    serial.skip()
    rack.ipmitool(bmc, "chassis", "power", "on")
    assert serial.hears(loads, guests.BOOTED) == loads
    rack.run("down", "--yes", name)
    assert domain.xml == before
    virsh("destroy", domain.name)
    serial.skip()
    virsh("start", domain.name)
    assert serial.hears(loads, guests.BOOTED) == guests.BOOTED, "by its owner's order again"


@pytest.mark.libvirt
def test_snapshots_of_a_domain_stay_its_owners(rack: Rack, domain: Domain, tmp_path: Path) -> None:
    domain.define(BY_CLASS.replace("name='qemu' type='raw'", "name='qemu' type='qcow2'"), b"")
    image = domain.directory / f"{domain.name}.img"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", image, "1M"], check=True)
    virsh("snapshot-create-as", domain.name, "before")
    before, snapshot = domain.xml, virsh("snapshot-dumpxml", domain.name, "before")
    name, file = cluster(rack, f"nodes: [{{adopt: {domain.name}, name: vm}}]\n", rack.names[0])
    rack.run("up", "--yes", file)
    disc = tmp_path / "any.iso"
    disc.write_bytes(bytes(4096))
    rack.run("node", "media", "insert", f"{name}/vm", str(disc))
    rack.ipmitool(rack.bmcs(name)["vm"], "chassis", "power", "on")
    until(lambda: domain.state == "running")
    rack.run("down", "--yes", name)
    virsh("destroy", domain.name)
    assert domain.xml == before
    assert virsh("snapshot-list", "--name", domain.name).split() == ["before"]
    assert virsh("snapshot-dumpxml", domain.name, "before") == snapshot
    virsh("snapshot-revert", domain.name, "before")
    virsh("snapshot-delete", domain.name, "before")


@pytest.mark.libvirt
@pytest.mark.boots
def test_what_the_owner_of_a_uefi_domain_changes_is_told_and_kept(
    rack: Rack, domain: Domain, tmp_path: Path
) -> None:
    domain.define(BY_DEVICE, asyncio.run(guests.speaking_uefi_disk(tmp_path)))
    virsh("autostart", domain.name)
    virsh("start", domain.name)
    serial = Serial(domain.serial)
    assert serial.hears(guests.BOOTED) == guests.BOOTED
    before = domain.xml
    name, file = cluster(
        rack, f"nodes: [{{adopt: {{match: '{domain.name[:9]}-*'}}}}]\n", rack.names[0]
    )
    rack.run("up", "--yes", file)
    (row,) = rack.json("node", "list")
    assert (row["node"], row["power"]) == (domain.name.lower(), "on")
    assert "Nothing to do" in rack.run("plan", file).stdout
    redfish = System(rack.bmcs(name)[row["node"]])
    assert redfish.ask("GET", "")["MemorySummary"]["TotalSystemMemoryGiB"] == 0.25
    disc = tmp_path / "any.iso"
    disc.write_bytes(bytes(4096))
    rack.run("node", "media", "insert", row["node"], str(disc))
    once = {"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"}
    redfish.ask("PATCH", "", {"Boot": once})
    redfish.ask("POST", "/Actions/ComputerSystem.Reset", {"ResetType": "PowerCycle"})
    assert serial.hears(b"PXE over IPv4", guests.BOOTED) == b"PXE over IPv4"
    virsh("setmaxmem", domain.name, "393216", "--config")
    (shown,) = rack.json("status", name)
    assert shown["state"] == "drifted"
    assert "its owner changed memory: 256 MiB -> 384 MiB" in shown["drift"]
    assert f"memory of node {row['node']}, by its machine's owner" in rack.run("plan", file).stdout
    rack.run("up", "--yes", file)
    assert redfish.ask("GET", "")["MemorySummary"]["TotalSystemMemoryGiB"] == 0.375
    rack.run("down", "--yes", name)
    changed = domain.xml
    assert "<memory unit='KiB'>393216</memory>" in changed
    virsh("setmaxmem", domain.name, "262144", "--config")
    virsh("setmem", domain.name, "262144", "--config")
    assert domain.xml == before
    assert "Autostart:      enable" in virsh("dominfo", domain.name)


@pytest.mark.libvirt
def test_a_domain_that_its_owner_removes_is_told_and_nothing_else_is_removed(
    rack: Rack, domain: Domain
) -> None:
    domain.define(BY_CLASS, guests.speaking_disk())
    name, file = cluster(rack, f"nodes: [{{adopt: '{domain.uuid}', name: vm}}]\n", rack.names[0])
    rack.run("up", "--yes", file)
    disk = domain.directory / "more.img"
    disk.write_bytes(bytes(1 << 20))
    virsh("attach-disk", domain.name, str(disk), "vdb", "--config")
    (shown,) = rack.json("status", name)
    assert "its owner changed disks" in shown["drift"]
    virsh("undefine", domain.name)
    assert "no such machine on here" in rack.run("plan", file, status=1).stderr
    (row,) = rack.json("node", "list")
    assert row["power"] == "absent"
    (shown,) = rack.json("status", name)
    assert (shown["node"], shown["state"]) == ("vm", "missing")
    assert f"its owner removed {domain.name}" in shown["drift"]
    assert "disk_sizes" not in shown["drift"]
    domain.define(BY_CLASS, guests.speaking_disk())
    before = domain.xml
    (shown,) = rack.json("status", name)
    assert f"its owner defined {domain.name} again, without nospoon's tag" in shown["drift"]
    rack.run("up", "--yes", file)
    assert domain.xml != before, "it is claimed once more"
    (row,) = rack.json("node", "list")
    assert row["power"] == "off"
    rack.run("down", "--yes", name)
    assert domain.xml == before


@pytest.mark.libvirt
def test_a_domain_that_runs_and_has_no_definition_any_more_obeys_until_it_is_off(
    rack: Rack, domain: Domain
) -> None:
    """libvirt keeps it as a transient domain. Its BMC answered that it was gone."""
    domain.define(WITH_METADATA, guests.speaking_disk())
    virsh("start", domain.name)
    name, file = cluster(rack, f"nodes: [{{adopt: '{domain.uuid}', name: vm}}]\n", rack.names[0])
    rack.run("up", "--yes", file)
    bmc = rack.bmcs(name)["vm"]
    virsh("undefine", domain.name)
    for _ in range(2):
        (shown,) = rack.json("status", name)
        assert f"its owner removed {domain.name}: it is transient" in shown["drift"]
        assert rack.ipmitool(bmc, "chassis", "power", "status").strip() == "Chassis Power is on"
        rack.run("daemon", "stop")  # the next one knows it, too
    rack.run("daemon", "start")
    rack.ipmitool(bmc, "chassis", "power", "off")
    until(lambda: domain.name not in virsh("list", "--all", "--name"))
    until(lambda: [row["power"] for row in rack.json("node", "list")] == ["absent"])


@pytest.mark.libvirt
def test_a_domain_on_a_network_of_its_cluster_boots_there_as_the_clusters_own_do(
    rack: Rack, domain: Domain
) -> None:
    id_ = uuid4()
    nic = f"<interface type='bridge'><source bridge='{bridge_name(id_, 'prov')}'/>"
    user = "<interface type='user'><model type='virtio'/></interface>"
    domain.define(
        BY_CLASS.replace("<interface type='user'><model type='e1000'/></interface>\n", "").replace(
            user, f"{nic}<model type='virtio'/></interface>"
        ),
        b"",
    )
    before = domain.xml
    networks = "networks: {prov: {netboot: builtin}}"
    body = f"id: {id_}\n{networks}\nnodes: [{{adopt: {domain.name}, name: vm}}]\n"
    name, file = cluster(rack, body)
    rack.run("up", "--yes", file)
    assert "Nothing to do" in rack.run("plan", file).stdout
    (bmc,) = rack.bmcs(name).values()
    rack.ipmitool(bmc, "chassis", "bootdev", "pxe")
    rack.ipmitool(bmc, "chassis", "power", "on")
    log = rack.directory / "state" / "nospoond.log"

    def sent() -> bool:
        events = map(json.loads, log.read_text().splitlines())
        told = (each for each in events if each.get("uuid") == str(domain.uuid))
        return any(each["event"] == "sent boot script" for each in told)

    until(sent, 120)
    address = rack.run("export", "--to", "ssh-config", name).stdout
    assert "HostName" in address, "its address is known, as those of the cluster's own are"
    rack.run("down", "--yes", name)
    virsh("destroy", domain.name)
    assert domain.xml == before


@pytest.mark.libvirt
@pytest.mark.parametrize("metadata", [False, True], ids=["without metadata", "with metadata"])
def test_a_running_domain_is_given_back_as_it_was(
    rack: Rack, domain: Domain, *, metadata: bool
) -> None:
    domain.define(WITH_METADATA if metadata else BY_CLASS, guests.speaking_disk())
    virsh("start", domain.name)
    before = domain.xml, virsh("dumpxml", "--security-info", domain.name)
    name, file = cluster(rack, f"nodes: [{{adopt: '{domain.uuid}', name: vm}}]\n", rack.names[0])
    rack.run("up", "--yes", file)
    assert NAMESPACE in domain.xml
    assert (NAMESPACE in virsh("dumpxml", domain.name)) == metadata
    rack.run("down", "--yes", name)
    assert (domain.xml, virsh("dumpxml", "--security-info", domain.name)) == before


@pytest.mark.libvirt
def test_a_domain_that_its_owner_makes_again_or_renames_is_the_same_node(
    rack: Rack, domain: Domain
) -> None:
    domain.define(BY_CLASS, guests.speaking_disk())
    name, file = cluster(rack, f"nodes: [{{adopt: {domain.name}, name: vm}}]\n", rack.names[0])
    rack.run("up", "--yes", file)
    first = rack.bmcs(name)["vm"]
    virsh("domrename", domain.name, f"{domain.name}-2")
    (shown,) = rack.json("status", name)
    assert (shown["node"], shown["state"]) == ("vm", "drifted")
    assert "its owner changed name" in shown["drift"]
    assert f"write '{domain.name}-2'" in rack.run("plan", file, status=1).stderr
    assert rack.ipmitool(first, "chassis", "power", "status").strip() == "Chassis Power is off"
    domain.uuid = uuid4()
    domain.define(BY_CLASS, guests.speaking_disk())
    rack.run("up", "--yes", file)
    virsh("undefine", f"{domain.name}-2")
    second = rack.bmcs(name)["vm"]
    assert second == {**first, **{key: second[key] for key in ("uuid", "redfish")}}
    assert second["uuid"] == str(domain.uuid)
    assert rack.ipmitool(first, "chassis", "power", "status").strip() == "Chassis Power is off"
    with pytest.raises(urllib.error.HTTPError):
        System(first).ask("GET", "")
    assert System(second).ask("GET", "")["UUID"] == second["uuid"]
    assert "Nothing to do" in rack.run("plan", file).stdout


@pytest.mark.libvirt
def test_orphans_that_were_adopted_are_released_and_not_removed(rack: Rack, domain: Domain) -> None:
    domain.define(BY_CLASS, guests.speaking_disk())
    before = domain.xml
    name, file = cluster(rack, f"nodes: [{{adopt: {domain.name}, name: vm}}]\n", rack.names[0])
    rack.run("up", "--yes", file)
    rack.run("daemon", "stop")
    for each in (rack.directory / "state").glob("nospoon.db*"):
        each.unlink()
    rack.run("recover", file)
    planned = rack.run("plan", file).stdout
    assert "1 to create, 0 to change, 0 to replace, 0 to delete; 2 unchanged." in planned
    assert "+ bmc vm" in planned
    rack.run("daemon", "stop")
    for each in (rack.directory / "state").glob("nospoon.db*"):
        each.unlink()
    assert "vm" in rack.run("orphans", file).stdout
    rack.run("orphans", "--reap", "--yes", "--grace", "0.1", file)
    assert domain.xml == before
    rack.names.remove(name)


@contextlib.contextmanager
def logged_in(url: str, password: str) -> Iterator[sushy.Sushy]:
    """Its session ends here: sushy would end it when Python looks for garbage, in the midst of any
    later test, for which it asks a server that is gone ten times.
    """
    with sushy.auth.SessionOrBasicAuth(username="admin", password=password) as login:
        yield sushy.Sushy(url, auth=login)


@pytest.mark.libvirt
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside sushy-emulator"])
def test_what_virtualbmc_served_is_served_at_the_same_port_with_the_same_account(
    rack: Rack, domain: Domain, *, beside: bool
) -> None:
    domain.define(BY_CLASS, guests.speaking_disk())
    port = rack.bmc().partition("ports: ")[2].split("-")[0].removesuffix("}")
    place = rack.directory / ".vbmc" / domain.name
    place.mkdir(parents=True)
    told = {
        "username": "admin", "password": "secret", "address": "127.0.0.1", "active": "True",
        "domain_name": domain.name, "libvirt_uri": "qemu:///system", "port": port,
    }  # fmt: skip
    lines = "".join(f"{name} = {value}\n" for name, value in told.items())
    (place / "config").write_text(f"[VirtualBMC]\n{lines}")
    file = str(rack.directory / "imported.yaml")
    directory, name = str(rack.directory / ".vbmc"), rack.names[0]
    redfish = free_port(socket.SOCK_STREAM)
    config = rack.directory / "conf.py"
    config.write_text(
        f"SUSHY_EMULATOR_LISTEN_IP = '127.0.0.1'\nSUSHY_EMULATOR_LISTEN_PORT = {redfish}\n"
        f"SUSHY_EMULATOR_ALLOWED_INSTANCES = ['{domain.name}']\n"
    )
    source = ["--from", "virtualbmc", directory]
    if beside:
        source = ["--from", "sushy-tools", "--virtualbmc", directory, str(config)]
    Path(file).unlink(missing_ok=True)
    rack.run("import", "--name", name, "-o", file, *source)
    rack.run("up", "--yes", file)
    bmc = {"ipmi": f"127.0.0.1:{port}", "username": "admin", "password": "secret"}
    rack.ipmitool(bmc, "chassis", "power", "on")
    until(lambda: domain.state == "running")
    until(lambda: "Power is on" in rack.ipmitool(bmc, "chassis", "power", "status"))
    if beside:
        root = f"http://127.0.0.1:{redfish}"
        with logged_in(root, "secret") as client:
            system = client.get_system(f"/redfish/v1/Systems/{domain.uuid}")
            system.reset_system(sushy.RESET_FORCE_OFF)
        until(lambda: domain.state == "shut off")


@pytest.mark.libvirt
def test_the_commands_of_virtualbmc_do_what_scripts_expect(rack: Rack, domain: Domain) -> None:
    domain.define(BY_CLASS, guests.speaking_disk())
    before = domain.xml
    port = rack.bmc().partition("ports: ")[2].split("-")[0].removesuffix("}")
    rack.environment["HOME"] = str(rack.directory)
    rack.names[:] = ["vbmc-127-0-0-1"]

    def vbmc(*argv: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        return rack.run("vbmc", *argv, status=status)

    account = ("--username", "me", "--password", "secret", "--address", "127.0.0.1")
    said = vbmc("add", domain.name, "--port", port, *account).stderr
    assert "nodes: [{adopt: DOMAIN" in said
    assert "has a BMC already" in vbmc("add", domain.name, "--port", port, status=1).stderr
    by_name = ("--port", port, "--address", "localhost")  # as ci-framework gives `ipmi.utility`
    assert "no such machine" in vbmc("add", "nobody", *by_name, status=1).stderr
    sasl = ("--libvirt-sasl-username", "me", "--libvirt-sasl-password", "secret")
    assert "(SASL)" in vbmc("add", "nobody", *sasl, status=1).stderr
    assert vbmc("--no-daemon", "list", "-f", "csv").stdout.splitlines() == [
        '"Domain name","Status","Address","Port"',
        f'"{domain.name}","down","127.0.0.1",{port}',
    ]
    listed = vbmc("list", "-f", "json")
    assert json.loads(listed.stdout) == [
        {"Domain name": domain.name, "Status": "down", "Address": "127.0.0.1", "Port": int(port)}
    ]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", int(port)))
        assert port in vbmc("start", domain.name, status=1).stderr
        assert vbmc("list", "-f", "value", "-c", "Status").stdout.strip() == "down"
    vbmc("start", domain.name)
    rule, *table = vbmc("list").stdout.splitlines()
    assert set(rule) == {"+", "-"}
    assert [[cell.strip() for cell in line.strip("|").split("|")] for line in table[0:3:2]] == [
        ["Domain name", "Status", "Address", "Port"],
        [domain.name, "running", "127.0.0.1", port],
    ]
    shown = json.loads(vbmc("show", domain.name, "-f", "json").stdout)
    properties = {row["Property"]: row["Value"] for row in shown}
    assert properties["password"] == "***"
    assert (properties["username"], properties["status"]) == ("me", "running")
    bmc = {"ipmi": f"127.0.0.1:{port}", "username": "me", "password": "secret"}
    assert rack.ipmitool(bmc, "chassis", "power", "status").strip() == "Chassis Power is off"
    vbmc("stop", domain.name)
    assert vbmc("list", "-f", "value", "-c", "Status").stdout.strip() == "down"
    assert domain.xml == before
    broken = rack.directory / ".vbmc" / "broken" / "config"
    broken.parent.mkdir()
    broken.write_text("[VirtualBMC]\nport = abc\n")
    for argv in (["list"], ["start", domain.name], ["stop", domain.name]):
        assert vbmc(*argv).stderr.count("broken/config: port: expected") == 1, argv
    vbmc("delete", "broken")
    assert "no domain nobody" in vbmc("start", domain.name, "nobody", status=1).stderr
    assert vbmc("list", "-f", "value", "-c", "Status").stdout.strip() == "running"
    second = Domain(domain.directory, f"{domain.name}-2")
    second.define(BY_CLASS, guests.speaking_disk())
    try:
        last = ("--port", str(int(port) + 1), "--address", "127.0.0.1")
        vbmc("add", second.name, *last)
        vbmc("stop", domain.name)
        at_once = [
            subprocess.Popen(["nospoon", "vbmc", "start", each.name], env=rack.environment)
            for each in (domain, second)
        ]
        assert [each.wait(120) for each in at_once] == [0, 0], "one waits for the other"
        vbmc("stop", second.name)
        virsh("undefine", domain.name)
        said = vbmc("start", second.name).stderr
        assert f"The BMC of {domain.name} is not served: adopt {domain.name}: no such" in said
        states = vbmc("list", "-f", "value", "-c", "Status").stdout.split()
        assert states == ["error", "running"], "one that is gone holds up no other"
        domain.uuid = uuid4()
        domain.define(BY_CLASS, guests.speaking_disk())
        states = vbmc("list", "-f", "value", "-c", "Status").stdout.split()
        assert states == ["running", "running"], "made again under its name it has its BMC again"
        assert rack.ipmitool(bmc, "chassis", "power", "status").strip() == "Chassis Power is off"
        virsh("undefine", domain.name)
        vbmc("stop", domain.name)
        assert "no such machine" in vbmc("start", domain.name, status=1).stderr
        vbmc("stop", second.name)
        vbmc("delete", domain.name, second.name, domain.name)
    finally:
        second.remove()
    assert vbmc("list", "-f", "json").stdout.strip() == "[]"
    assert "no domain" in vbmc("show", domain.name, status=1).stderr
    assert not rack.json("status")


NO_SECURE_BOOT = "uefi,firmware.feature0.name=secure-boot,firmware.feature0.enabled=no"
MADE_BIOS = (
    *("--osinfo", "generic", "--boot", "hd,bios.useserial=on"),
    *("--disk", "device=cdrom,bus=scsi", "--network", "user"),
)
MADE_UEFI = ("--osinfo", "debian11", "--tpm", "none", "--boot", NO_SECURE_BOOT)


@pytest.mark.libvirt
@pytest.mark.boots
@pytest.mark.parametrize(
    ("options", "loads"),
    [(MADE_BIOS, b"iPXE"), (MADE_UEFI, b"PXE over IPv4")],
    ids=["bios, a CD drive on SCSI, two NICs", "uefi"],
)
def test_what_virt_install_makes_is_powered_booted_and_given_back_as_it_was(
    rack: Rack, domain: Domain, tmp_path: Path, options: tuple[str, ...], loads: bytes
) -> None:
    disk = domain.directory / f"{domain.name}.img"  # where QEMU's user comes
    disk.write_bytes(bytes(1 << 20))
    log = f"pty,log.file={domain.serial},log.append=on"
    made = subprocess.run(
        ["virt-install", "--import", "--name", domain.name, "--uuid", str(domain.uuid),
         "--memory", "256", "--disk", f"{disk},format=raw", "--network", "user",
         "--graphics", "none", "--virt-type", "qemu", "--cpu", "qemu64", "--serial", log,
         "--connect", "qemu:///system", *options, "--print-xml"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    (tmp_path / "domain.xml").write_text(made.stdout)
    virsh("define", str(tmp_path / "domain.xml"))
    before = domain.xml
    name, file = cluster(rack, f"nodes: [{{adopt: {domain.name}, name: vm}}]\n", rack.names[0])
    rack.run("up", "--yes", file)
    bmc, serial = rack.bmcs(name)["vm"], Serial(domain.serial)
    rack.ipmitool(bmc, "chassis", "bootdev", "pxe")
    rack.ipmitool(bmc, "chassis", "power", "on")
    assert serial.hears(loads) == loads
    disc = tmp_path / "any.iso"
    disc.write_bytes(bytes(4096))
    rack.run("node", "media", "insert", f"{name}/vm", str(disc))
    rack.ipmitool(bmc, "chassis", "power", "off")
    until(lambda: domain.state == "shut off")
    rack.run("down", "--yes", name)
    assert domain.xml == before


@pytest.mark.libvirt
def test_scripts_that_give_machines_to_bare_metal_operators_run_as_they_are(
    rack: Rack, domain: Domain, tmp_path: Path
) -> None:
    """The calls of baremetal-operator's vm2vbmc.sh, and files as metal3-dev-env writes them."""
    domain.define(BY_CLASS, guests.speaking_disk())
    before = domain.xml
    port = rack.bmc().partition("ports: ")[2].split("-")[0].removesuffix("}")
    alias = tmp_path / "bin" / "vbmc"
    alias.parent.mkdir()
    alias.symlink_to(Path(__file__).parents[2] / "contrib" / "vbmc")
    environment = {
        **rack.environment,
        "HOME": str(rack.directory),
        "PATH": f"{alias.parent}:{BIN}:{os.environ['PATH']}",
    }
    rack.names[:] = ["vbmc"]
    script = (
        'set -eu; vbmc add "$1" --port "$2" --address :: --libvirt-uri qemu:///system; '
        'vbmc start "$1"; vbmc list; ipmitool -I lanplus -H 127.0.0.1 -p "$2" -U admin '
        '-P password chassis power on; vbmc delete "$1"'
    )
    done = subprocess.run(
        ["sh", "-c", script, "sh", domain.name, port],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"| {domain.name} | running | ::      | {port} |" in done.stdout
    assert "Chassis Power Control: Up/On" in done.stdout
    assert domain.state == "running"
    assert domain.xml == before

    redfish = free_port(socket.SOCK_STREAM)
    users = tmp_path / "htpasswd"
    users.write_text(f"admin:{bcrypt.hashpw(b'password', bcrypt.gensalt(4)).decode()}\n")
    config = tmp_path / "conf.py"
    config.write_text(
        'SUSHY_EMULATOR_LIBVIRT_URI = "qemu:///system"\nSUSHY_EMULATOR_IGNORE_BOOT_DEVICE = False\n'
        'SUSHY_EMULATOR_VMEDIA_VERIFY_SSL = False\nSUSHY_EMULATOR_AUTH_FILE = "htpasswd"\n'
        f"SUSHY_EMULATOR_LISTEN_IP = '127.0.0.1'\nSUSHY_EMULATOR_LISTEN_PORT = {redfish}\n"
        f"SUSHY_EMULATOR_ALLOWED_INSTANCES = ['{domain.uuid}']\n"
    )
    file, name = str(tmp_path / "imported.yaml"), rack.name()
    rack.run("import", "--from", "sushy-tools", "--name", name, "-o", file, str(config))
    rack.run("up", "--yes", file)
    root = f"http://127.0.0.1:{redfish}"
    with logged_in(root, "password") as client:
        system = client.get_system(f"/redfish/v1/Systems/{domain.uuid}")
        system.reset_system(sushy.RESET_FORCE_OFF)
    until(lambda: domain.state == "shut off")
    with pytest.raises(sushy.exceptions.AccessError), logged_in(root, "guess") as client:
        client.get_system_collection()


@pytest.mark.libvirt
def test_in_place_of_sushy_emulator_machines_are_served_as_they_come_until_it_ends(
    rack: Rack, domain: Domain, tmp_path: Path
) -> None:
    port = free_port(socket.SOCK_STREAM)
    rack.names[:] = [f"sushy-{port}"]
    config = tmp_path / "sushy.conf"
    gone = str(uuid4())
    config.write_text(f"SUSHY_EMULATOR_ALLOWED_INSTANCES = {[str(domain.uuid), gone]}\n")
    argv = ["nospoon", "sushy", "--config", str(config), "-i", "127.0.0.1", "-p", str(port)]
    root = f"http://127.0.0.1:{port}/redfish/v1"
    said = tmp_path / "said"

    def systems() -> list[str]:
        try:
            with urllib.request.urlopen(f"{root}/Systems", timeout=60) as answer:
                listed = json.load(answer)["Members"]
        except OSError:
            return []
        return [each["@odata.id"].rpartition("/")[2] for each in listed]

    with (
        said.open("wb") as output,
        subprocess.Popen(argv, env=rack.environment, stderr=output) as emulator,
    ):
        try:
            until(lambda: b"no such machine" in said.read_bytes())
            domain.define(BY_CLASS, guests.speaking_disk())
            before = domain.xml
            until(lambda: systems() == [str(domain.uuid)])
            with urllib.request.urlopen(f"{root}/Systems/{domain.uuid}", timeout=60) as answer:
                assert json.load(answer)["Name"] == domain.name.lower()
            until(
                lambda: f"Not served: adopt {gone}: no such machine".encode() in said.read_bytes()
            )
            body = json.dumps({"ResetType": "On"}).encode()
            action = f"{root}/Systems/{domain.uuid}/Actions/ComputerSystem.Reset"
            headers = {"Content-Type": "application/json"}
            asked = urllib.request.Request(action, body, headers)
            urllib.request.urlopen(asked, timeout=60).close()
            until(lambda: domain.state == "running")
        finally:
            emulator.terminate()
            status = emulator.wait(120)
    assert status == 0
    assert systems() == []
    assert domain.xml == before
    shown = said.read_text()
    assert "nospoon import --from sushy-tools" in shown
    assert "answers without a login: every user and program of this machine" in shown


def test_what_is_no_configuration_or_has_no_machines_to_adopt_is_refused(
    shared: Rack, tmp_path: Path
) -> None:
    config = tmp_path / "sushy.conf"
    config.write_text("print('hello')\n")
    assert (
        "expected settings SUSHY_EMULATOR_"
        in shared.run("sushy", "--config", str(config), status=2).stderr
    )
    said = shared.run("sushy", "--os-cloud", "mine", status=2).stderr
    assert "cloud 'mine' is not in clouds.yaml" in said
    assert shared.run("sushy", "--help").stdout.count("Refused: ") == 2, "those of the next lines"
    assert "of the fake driver are not" in shared.run("sushy", "--fake", status=2).stderr
    said = shared.run("sushy", "--ironic-cloud", "mine", status=2).stderr
    assert "nodes of an Ironic are not adopted" in said
    assert "'full'" in shared.run("sushy", "--feature-set", "all", status=2).stderr
    assert not [each for each in shared.json("status") if each["name"].startswith("sushy")]


def test_certificates_of_sushy_emulator_are_found_where_it_was_started(shared: Rack) -> None:
    options = ("--ssl-certificate", "tls/gone.pem", "--ssl-key", "gone.key")
    said = shared.run("sushy", *options, status=2).stderr
    for gone in ("tls/gone.pem", "gone.key"):
        assert f"cannot read '{shared.directory / gone}'" in said
