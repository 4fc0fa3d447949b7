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


def cluster_file(rack: Rack, name: str, built: dict[str, str], endpoint: str) -> str:
    told: dict[str, Any] = {
        "endpoint": endpoint,
        "driver": "redfish",
        "automated_clean": False,
        "interfaces": {"boot": "redfish-virtual-media", "deploy": "direct"},
        "deploy_kernel": f"file://{built['deploy_kernel']}",
        "deploy_ramdisk": f"file://{built['deploy_ramdisk']}",
        "state": "active",
        "image": f"file://{built['image']}",
        "checksum": built["image_sha256"],
        "instance_info": {"image_type": "whole-disk-image", "image_disk_format": "raw"},
    }
    text = (
        f"cluster: {name}\nnetworks: {{prov: {{cidr: {NETWORK}, netboot: builtin}}}}\n"
        f"{rack.bmc()}ironic: {json.dumps(told)}\n"
        "nodes: [{name: m, count: 1, firmware: uefi, memory: 2560MiB, cpus: 2, disks: [5GiB]}]\n"
    )
    return rack.file(text, f"{name}.yaml")


def test_a_machine_is_deployed_from_virtual_media_and_boots_its_image(
    built: dict[str, str], provisioning: tuple[Rack, Api]
) -> None:
    rack, api = provisioning
    name = rack.name()
    file = cluster_file(rack, name, built, api.endpoint)
    rack.run("up", "--yes", file, seconds=1500)
    assert api.nodes()["m"]["provision_state"] == "active"
    until(lambda: HELLO in rack.run("node", "console", "--log", f"{name}/m").stdout, 120)
    record = rack.run("node", "console", "--log", f"{name}/m").stdout
    assert "nospoon-agent: hello" in record
    assert record.index("nospoon-agent: hello") < record.index(HELLO)
    rack.run("down", "--yes", "--purge", "--force", name)
    assert api.nodes() == {}
