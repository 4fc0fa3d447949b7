"""A real machine that a real Ironic deploys: its agent runs in the machine, and the image boots."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nospoon.dev.disk_image import HELLO
from nospoon.testing.ironic import Api, until
from nospoon.testing.rack import CACHE, Rack

pytestmark = [pytest.mark.libvirt, pytest.mark.boots, pytest.mark.timeout(1800)]

NETWORK, BRIDGE = "172.30.91.0/24", "172.30.91.1"


@pytest.fixture
def provisioning(rack: Rack, free_port: int) -> Iterator[tuple[Rack, Api]]:
    """An Ironic that machines reach on a network of the rack's, and what it deploys with."""
    rack.directory.chmod(0o711)  # the hypervisor opens disks below it
    names = {"NOSPOON_STATE_DIR": tempfile.mkdtemp(prefix="nospoon-ironic-")}
    ours = Rack(rack.directory, {**rack.environment, **names})
    ours.run(
        *("dev", "ironic", "up", "--address", "0.0.0.0", "--advertise", BRIDGE),
        *("--port", str(free_port), "--files-port", str(free_port + 1)),
    )
    try:
        yield rack, Api(f"http://127.0.0.1:{free_port}")
    finally:
        for name in rack.names:
            rack.run("down", "--yes", "--purge", "--forget-enrolment", name)
        ours.run("dev", "ironic", "down")
        shutil.rmtree(names["NOSPOON_STATE_DIR"])


@pytest.fixture(scope="session")
def built() -> dict[str, str]:
    """What the product builds, from the cache where it is there."""
    directory = Path(tempfile.mkdtemp(prefix="nospoon-ipa-"))
    found: dict[str, str] = Rack.at(directory, NOSPOON_CACHE_DIR=str(CACHE)).json(
        "dev", "ipa", "build"
    )
    shutil.rmtree(directory)
    return found


def cluster_file(rack: Rack, name: str, built: dict[str, str], api: Api) -> str:
    """A node that Ironic boots from a medium by Redfish, and one from the network by IPMI."""
    told: dict[str, Any] = {
        "endpoint": api.endpoint,
        "automated_clean": False,
        "interfaces": {"deploy": "direct"},
        "deploy_kernel": f"file://{built['deploy_kernel']}",
        "deploy_ramdisk": f"file://{built['deploy_ramdisk']}",
        "state": "active",
        "image": f"file://{built['image']}",
        "checksum": built["image_sha256"],
        "instance_info": {"image_type": "whole-disk", "image_disk_format": "raw"},
    }
    files = int(api.endpoint.rpartition(":")[2]) + 1
    text = (
        f"cluster: {name}\nnetworks: {{prov: {{cidr: {NETWORK}, netboot: builtin}}}}\n"
        f"boot: {{ironic: {{script: 'http://{BRIDGE}:{files}/boot.ipxe'}}}}\n"
        f"{rack.bmc()}ironic: {json.dumps(told)}\n"
        "flavors: {uefi: {firmware: uefi, memory: 2560MiB, cpus: 2, disks: [5GiB]}}\n"
        "nodes:\n"
        "- {name: m, ironic: {driver: redfish, interfaces: {boot: redfish-virtual-media}}}\n"
        "- {name: p, boot: ironic, ironic: {driver: ipmi, interfaces: {boot: ipxe}}}\n"
    )
    return rack.file(text, f"{name}.yaml")


def test_machines_are_deployed_from_a_medium_and_the_network_and_boot_their_image(
    built: dict[str, str], provisioning: tuple[Rack, Api]
) -> None:
    rack, api = provisioning
    name = rack.name()
    file = cluster_file(rack, name, built, api)
    rack.run("up", "--yes", file, seconds=1500)
    assert {api.nodes()[node]["provision_state"] for node in "mp"} == {"active"}
    for node in "mp":
        until(lambda node=node: HELLO in console(rack, name, node), 120)  # type: ignore[misc]
        assert console(rack, name, node).index(AGENT) < console(rack, name, node).index(HELLO)
    rack.run("down", "--yes", "--purge", "--force", name, seconds=600)
    assert api.nodes() == {}


AGENT = "nospoon-agent: hello"


def console(rack: Rack, name: str, node: str) -> str:
    return rack.run("node", "console", "--log", f"{name}/{node}").stdout
