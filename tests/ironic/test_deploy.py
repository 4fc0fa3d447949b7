"""A real machine that a real Ironic deploys: its agent runs in the machine, and the image boots."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import pytest

from nospoon.dev.disk_image import HELLO
from nospoon.plan.identity import bridge_name
from nospoon.testing.alone import held
from nospoon.testing.ironic import Api, until
from nospoon.testing.rack import CACHE, Rack
from nospoon.testing.trees import remove_tree

pytestmark = [pytest.mark.libvirt, pytest.mark.boots, pytest.mark.timeout(1800)]

NETWORK, BRIDGE = "10.197.{}.0/24", "10.197.{}.1"
"""Outside of where the plan looks for free networks: other tests have some of those meanwhile."""
EVERY_CYCLE = bool(os.environ.get("NOSPOON_FULL_CYCLES"))
"""As `make test-ironic-full` wants it."""
HOW = {"m": ("redfish", "redfish-virtual-media"), "p": ("ipmi", "ipxe")}
"""Node -> driver, and the interface that boots it."""
if EVERY_CYCLE:
    HOW["r"] = ("redfish", "ipxe")  # each half of it is tested by another node, too
ADOPTED = {"v": HOW["m"], "i": HOW["p"]}
"""The same of domains that nospoon does not make: their BMCs are those of the others."""
FULL = "".join(HOW) if EVERY_CYCLE else "m"
"""The nodes that are inspected and cleaned, too."""


class Provisioning(NamedTuple):
    rack: Rack
    api: Api
    network: str
    """No other test has it meanwhile."""
    script: str
    """The address of Ironic's first iPXE script, as machines reach it."""
    cluster: UUID
    """Its id: domains of others name a bridge of its."""


@pytest.fixture
def provisioning(rack: Rack, free_port: int, another_port: int) -> Iterator[Provisioning]:
    """An Ironic that machines reach on a network of the rack's, and what it deploys with."""
    rack.directory.chmod(0o711)  # the hypervisor opens disks below it
    names = {"NOSPOON_STATE_DIR": tempfile.mkdtemp(prefix="nospoon-ironic-")}
    number, holder = next(
        (number, holder)
        for number in range(64, 256)
        if (holder := held(f"network-10.197.{number}")) is not None
    )
    bridge = BRIDGE.format(number)
    ours = Rack(rack.directory, {**rack.environment, **names})
    ours.run(
        *("dev", "ironic", "up", "--address", "0.0.0.0", "--advertise", bridge),
        *("--port", str(free_port), "--files-port", str(another_port)),
        *("--set", "deploy.fast_track=true", "--set", "deploy.erase_devices_priority=0"),
    )
    try:
        script = f"http://{bridge}:{another_port}/boot.ipxe"
        api = Api(f"http://127.0.0.1:{free_port}")
        yield Provisioning(rack, api, NETWORK.format(number), script, uuid4())
    finally:
        log = Path(names["NOSPOON_STATE_DIR"], "dev", "ironic", "ironic.log")
        told = [line for line in log.read_text().splitlines() if " INFO " not in line]
        print("\n".join(told)[-8000:])  # noqa: T201  (shown of a test that fails)
        for name in rack.names:
            rack.run("down", "--yes", "--purge", "--forget-enrolment", name)
        ours.run("dev", "ironic", "down")
        remove_tree(Path(names["NOSPOON_STATE_DIR"]))
        os.close(holder)


@pytest.fixture(scope="session")
def built() -> dict[str, str]:
    """What the product builds, from the cache where it is there."""
    directory = Path(tempfile.mkdtemp(prefix="nospoon-ipa-"))
    found: dict[str, str] = Rack.at(directory, NOSPOON_CACHE_DIR=str(CACHE)).json(
        "dev", "ipa", "build"
    )
    remove_tree(directory)
    return found


DOMAIN = """<domain type='qemu'><name>{name}</name><uuid>{uuid}</uuid>
<memory unit='MiB'>2560</memory><vcpu>2</vcpu>
<os firmware='efi'><type arch='x86_64' machine='q35'>hvm</type>
<firmware><feature enabled='no' name='secure-boot'/></firmware><boot dev='hd'/></os>
<features><acpi/></features><cpu mode='maximum'/>
<devices>
<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='{disk}'/>
<target dev='vda' bus='virtio'/></disk>
<interface type='bridge'><source bridge='{bridge}'/><model type='virtio'/></interface>
<serial type='pty'><log file='{serial}' append='on'/></serial><console type='pty'/>
<rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>
</devices></domain>"""


@pytest.fixture
def domains(provisioning: Provisioning) -> Iterator[dict[str, str]]:
    """Node -> the name of a domain that somebody else defined, without a CD drive."""
    rack = provisioning.rack
    names = {node: f"{rack.directory.name}-{node}" for node in ADOPTED}
    bridge = bridge_name(provisioning.cluster, "prov")
    try:
        for name in names.values():
            disk = rack.directory / f"{name}.raw"
            with disk.open("wb") as file:
                file.truncate(5 << 30)
            serial = _serial(rack, name)
            xml = DOMAIN.format(name=name, uuid=uuid4(), disk=disk, bridge=bridge, serial=serial)
            (rack.directory / f"{name}.xml").write_text(xml)
            virsh("define", str(rack.directory / f"{name}.xml"))
        yield names
    finally:
        for name in names.values():
            subprocess.run([*VIRSH, "destroy", name], check=False, capture_output=True)
            subprocess.run([*VIRSH, "undefine", "--nvram", name], check=False, capture_output=True)


def _serial(rack: Rack, domain: str) -> Path:
    """What its serial port says: its owner's definition has it logged."""
    return rack.directory / f"{domain}.serial"


VIRSH = ("virsh", "-c", "qemu:///system")


def virsh(*argv: str) -> str:
    return subprocess.run([*VIRSH, *argv], check=True, capture_output=True, text=True).stdout


def cluster_file(
    place: Provisioning,
    name: str,
    built: dict[str, str],
    *,
    first: str = "active",
    domains: dict[str, str] | None = None,
) -> str:
    """Nodes that Ironic boots each its own way. `first`: how far those in `FULL` are to come; the
    others are deployed at once. `domains`: of those that are adopted, in place of others.
    """
    told: dict[str, Any] = {
        "endpoint": place.api.endpoint,
        "automated_clean": False,
        "interfaces": {"deploy": "direct"},
        "deploy_kernel": f"file://{built['deploy_kernel']}",
        "deploy_ramdisk": f"file://{built['deploy_ramdisk']}",
        "state": "active",
        "image": f"file://{built['image']}",
        "checksum": built["image_sha256"],
        "instance_info": {"image_type": "whole-disk", "image_disk_format": "raw"},
    }
    enrolled: dict[str, dict[str, Any]] = {
        node: {"driver": how[0], "interfaces": {"boot": how[1]}}
        for node, how in (HOW if domains is None else ADOPTED).items()
    }
    for node in FULL if domains is None else "":
        enrolled[node] |= {"state": first, "automated_clean": True}
        enrolled[node]["interfaces"] |= {"inspect": "agent"}
    nodes: list[dict[str, Any]] = [
        {"name": node, "ironic": each} for node, each in enrolled.items()
    ]
    for each in nodes:
        if each["ironic"]["interfaces"]["boot"] == "ipxe":
            each["boot"] = "ironic"
        if domains is not None:
            each["adopt"] = domains[each["name"]]
    text = (
        f"cluster: {name}\nid: {place.cluster}\n"
        f"networks: {{prov: {{cidr: {place.network}, netboot: builtin, host_ports: all}}}}\n"
        f"boot: {{ironic: {{script: '{place.script}'}}}}\n"
        f"{place.rack.bmc()}ironic: {json.dumps(told)}\n"
        "flavors: {uefi: {firmware: uefi, memory: 2560MiB, cpus: 2, disks: [5GiB]}}\n"
        f"nodes: {json.dumps(nodes)}\n"
    )
    return place.rack.file(text, f"{name}.yaml")


def test_machines_are_inspected_cleaned_and_deployed_and_boot_their_image(
    built: dict[str, str], provisioning: Provisioning
) -> None:
    """Those in `FULL` go all the way, with the real agent; the others are deployed alone."""
    rack, api = provisioning.rack, provisioning.api
    name = rack.name()
    file = cluster_file(provisioning, name, built, first="inspected")
    rack.run("up", "--yes", file, seconds=1500)
    for node in FULL:
        found = api("GET", f"/nodes/{node}/inventory")["inventory"]
        assert found["cpu"]["count"] == 2
        assert [disk["size"] for disk in found["disks"]] == [5 << 30]
        assert found["memory"]["physical_mb"] == 2560
    file = cluster_file(provisioning, name, built)
    rack.run("up", "--yes", file, seconds=1500)
    assert {api.nodes()[node]["provision_state"] for node in HOW} == {"active"}
    for node in FULL:
        assert (
            "erase_devices_metadata"
            in rack.run("node", "console", "--log", f"{name}/{node}").stdout
        )
    for node in HOW:
        until(lambda node=node: HELLO in console(rack, name, node), 120)  # type: ignore[misc]
        assert console(rack, name, node).index(AGENT) < console(rack, name, node).index(HELLO)
    rack.run("down", "--yes", "--purge", "--force", name, seconds=600)
    assert api.nodes() == {}


@pytest.mark.skipif(
    not EVERY_CYCLE,
    reason="an adopted domain's whole cycle in an emulated VM takes minutes: make test-ironic-full",
)
def test_domains_of_others_are_deployed_through_their_bmcs_and_given_back_as_they_were(
    built: dict[str, str], provisioning: Provisioning, domains: dict[str, str]
) -> None:
    rack, api = provisioning.rack, provisioning.api
    name = rack.name()
    before = {domain: virsh("dumpxml", "--inactive", domain) for domain in domains.values()}
    file = cluster_file(provisioning, name, built, domains=domains)
    rack.run("up", "--yes", file, seconds=1500)
    found = api.nodes()
    assert {node: found[node]["provision_state"] for node in ADOPTED} == dict.fromkeys(
        ADOPTED, "active"
    )
    assert {node: (found[node]["driver"], found[node]["boot_interface"]) for node in ADOPTED} == (
        ADOPTED
    )
    for domain in domains.values():
        log = _serial(rack, domain)
        until(lambda log=log: HELLO in log.read_text(errors="replace"), 240)  # type: ignore[misc]
        said = log.read_text(errors="replace")
        assert said.index(AGENT) < said.index(HELLO)
        assert "no_timer_check" in said[: said.index(AGENT)], "on its kernel's command line"
    rack.run("down", "--yes", "--purge", "--force", name, seconds=600)
    assert api.nodes() == {}
    assert {each: virsh("dumpxml", "--inactive", each) for each in before} == before


AGENT = "nospoon-agent: hello"


def console(rack: Rack, name: str, node: str) -> str:
    return rack.run("node", "console", "--log", f"{name}/{node}").stdout
