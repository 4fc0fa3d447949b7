"""A real Ironic deploys a node that is a server of a real cloud, by IPMI and PXE, again and again.

It runs in a namespace in the place of an undercloud: on the nodes' provisioning network, which
leads nowhere else, and on the network of the cloud by which it reaches their BMCs.
"""

from __future__ import annotations

import json
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from openstack.network.v2.port import Port
from tests.cloud.test_rack import everything
from tests.cloud.test_relay import undercloud
from tests.cloud.test_virtual_ips import Guest, connection, inside

from nospoon.dev.disk_image import HELLO
from nospoon.testing.bench import free_port
from nospoon.testing.cloud import FULL, OwnCloud
from nospoon.testing.ironic import Api, until
from nospoon.testing.rack import Rack
from nospoon.testing.trees import remove_tree

pytestmark = [
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack"),
    pytest.mark.skipif(
        not FULL,
        reason="a deployment of a server of a cloud by a real Ironic takes minutes: make "
        "test-openstack-full",
    ),
]
FILE = """
cluster: {name}
hosts:
  cloud:
    openstack: {{cloud: nospoon-cloud, flavors: [metal.small], boot_address: 172.24.5.1}}
networks: {{lab: {{nat: true}}, pxe: {{}}}}
ironic: {ironic}
nodes:
  - {{name: m, cpus: 2, memory: 3GiB, firmware: uefi, disks: [10GiB],
     nics: [{{network: lab}}, {{network: pxe}}]}}
"""
LINK, OUTSIDE = "under0", "under1"
AGENT = "nospoon-agent: hello"
PARAMETERS = "%default% virtio_net.csum=0"
"""Open vSwitch's datapath in this cloud fills in no checksums that a guest leaves to its NIC."""


@contextmanager
def outside(cloud: OwnCloud, guest: Guest, port: Port) -> Iterator[str]:
    """An interface of the namespace on another network, by its address."""
    ids = [f"iface-id={port.id}", f"attached-mac={port.mac_address}", "iface-status=active"]
    address = str(port.fixed_ips[0]["ip_address"])

    def run(*argv: str) -> None:
        subprocess.run([*inside(cloud), *argv], check=True, capture_output=True)

    run(
        "ovs-vsctl", "add-port", "br-int", OUTSIDE, "--", "set", "Interface", OUTSIDE,
        "type=internal", *(f"external_ids:{each}" for each in ids),
    )  # fmt: skip
    try:
        run("ip", "link", "set", OUTSIDE, "netns", guest.link)
        guest.run("ip", "link", "set", OUTSIDE, "address", port.mac_address, "up")
        guest.run("ip", "address", "add", f"{address}/24", "dev", OUTSIDE)
        guest.run("ip", "link", "set", "lo", "up")
        yield address
    finally:
        run("ovs-vsctl", "--if-exists", "del-port", OUTSIDE)


@contextmanager
def ironic_in(cloud: OwnCloud, guest: Guest, address: str, ports: tuple[int, int]) -> Iterator[Api]:
    """As it is reached from outside. `ports`: of its API and of its files."""
    state = Path(tempfile.mkdtemp(prefix="nospoon-ironic-"))
    enter = ["nsenter", f"--net=/proc/{cloud.first}/root/run/netns/{guest.link}", "--"]
    made = Rack.at(state, NOSPOON_STATE_DIR=str(state / "state"))
    made.prefix = enter
    port, files = ports
    try:
        made.run(
            *("dev", "ironic", "up", "--address", "0.0.0.0", "--advertise", guest.address),
            *("--port", str(port), "--files-port", str(files)),
            *("--set", "deploy.erase_devices_priority=0"),
        )
        yield Api(f"http://{address}:{port}")
    finally:
        log = state / "state/dev/ironic/ironic.log"
        if log.exists():
            told = [line for line in log.read_text().splitlines() if " INFO " not in line]
            print("\n".join(told)[-8000:])  # noqa: T201  (shown of a test that fails)
        made.run("dev", "ironic", "down")
        remove_tree(state)


@contextmanager
def dhcp(guest: Guest, script: str) -> Iterator[None]:
    """That of the undercloud, which names the script, and neither a router nor a name server."""
    first = guest.address.rpartition(".")[0]
    argv = guest.command(
        "dnsmasq", "--no-daemon", "--conf-file=/dev/null", "--port=0", "--bind-interfaces",
        f"--interface={LINK}", f"--dhcp-range={first}.200,{first}.250,10m",
        "--dhcp-option=3", "--dhcp-option=6", f"--dhcp-boot={script}", "--leasefile-ro",
        "--user=root",
    )  # fmt: skip
    with subprocess.Popen(argv, stderr=subprocess.DEVNULL):
        try:
            yield
        finally:
            guest.kill()


def enrolled(api: Api, built: dict[str, str], state: str) -> str:
    """The file's section."""
    told: dict[str, Any] = {
        "endpoint": api.endpoint,
        "driver": "ipmi",
        "interfaces": {"boot": "ipxe", "deploy": "direct"},
        "driver_info": {"kernel_append_params": PARAMETERS},
        "automated_clean": False,
        "deploy_kernel": f"file://{built['deploy_kernel']}",
        "deploy_ramdisk": f"file://{built['deploy_ramdisk']}",
        "image": f"file://{built['image']}",
        "checksum": built["image_sha256"],
        "instance_info": {"image_type": "whole-disk", "image_disk_format": "raw"},
        "state": state,
    }
    return json.dumps(told)


def said(rack: Rack, text: str) -> int:
    return rack.run("node", "console", "m", "--log").stdout.count(text)


def has_booted(rack: Rack, times: int) -> bool:
    return said(rack, HELLO) >= times


@pytest.mark.timeout(5400, func_only=True)
def test_an_ironic_deploys_a_server_undeploys_it_and_deploys_it_again(
    cloud: OwnCloud, rack: Rack
) -> None:
    member, name, bmc = connection(cloud), rack.name(), rack.bmc(address="172.24.5.1")
    before = everything(member)
    built: dict[str, str] = rack.json("dev", "ipa", "build")
    # a network of its own that leads nowhere is there once the cluster is
    without = FILE.format(name=name, ironic="{}").replace("ironic: {}\n", "")
    rack.run("up", rack.file(without + bmc), "--yes")
    with ExitStack() as stack:
        under = stack.enter_context(undercloud(cloud, member, LINK, "pxe"))
        port = stack.enter_context(port_of(cloud, "rack"))
        address = stack.enter_context(outside(cloud, under, port))
        ports = free_port(socket.SOCK_STREAM), free_port(socket.SOCK_STREAM)
        script = f"http://{under.address}:{ports[1]}/boot.ipxe"
        stack.enter_context(dhcp(under, script))
        api = stack.enter_context(ironic_in(cloud, under, address, ports))

        def up(state: str) -> dict[str, Any]:
            text = FILE.format(name=name, ironic=enrolled(api, built, state))
            file = rack.file(text + bmc)
            rack.run("up", file, "--yes", seconds=2400)
            assert "Nothing to do" in rack.run("plan", file).stdout
            return api.nodes()["m"]

        found = up("available")
        assert (found["driver"], found["provision_state"]) == ("ipmi", "available")
        assert found["uuid"] == rack.bmcs(name)["m"]["uuid"]
        for times in (1, 2):
            assert up("active")["provision_state"] == "active"
            until(partial(has_booted, rack, times), 900)
            assert said(rack, AGENT) >= times
            assert said(rack, script) >= times, "PXE of the undercloud"
            found = up("available")
            assert (found["provision_state"], found["instance_info"]) == ("available", {})
        rack.run("up", rack.file(without + bmc), "--yes", seconds=900)
        assert api.nodes() == {}
    rack.run("down", name, "--yes")
    assert everything(member) == before


@contextmanager
def port_of(cloud: OwnCloud, network: str) -> Iterator[Port]:
    """One of a network of the cloud, where its servers are."""
    member, admin = connection(cloud), connection(cloud, "nospoon-cloud-admin")
    found = next(member.network.networks(name=network))
    made = member.network.create_port(network_id=found.id, port_security_enabled=False)
    server = next(iter(member.compute.servers()))
    other = next(member.network.ports(device_id=server.id))
    admin.network.update_port(
        made.id, binding_host_id=admin.network.get_port(other.id).binding_host_id
    )
    yield made
    member.network.delete_port(made)
