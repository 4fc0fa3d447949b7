"""Virtual bare metal and virtual machines of one Nova: Ironic is a compute host of the cloud."""

from __future__ import annotations

import json
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from keystoneauth1.exceptions import EndpointNotFound
from openstack.compute.v2.server import Server
from openstack.connection import Connection
from tests.cloud.test_cloud import connection, partitioned
from tests.cloud.test_computes import hypervisors

from nospoon.testing.cloud import UP, OwnCloud
from nospoon.testing.guests import speaking_disk
from nospoon.testing.ironic import until
from nospoon.testing.rack import Rack

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")
HOST = "cloud-ironic"
"""Its name in Nova."""


def cluster_file(rack: Rack, cloud: OwnCloud, name: str) -> str:
    """A node whose agent obeys this Ironic, and a flavor that gives it."""
    host, conductor = [*IPv4Network(cloud.told["public"]).hosts()][:2]
    files = f"http://{conductor}:{int(cloud.told['ironic'].rpartition(':')[2]) + 1}"
    served = Path(cloud.told["clouds"]).parent / "computes" / HOST / "http"
    for each in ("kernel", "ramdisk", "esp.img"):
        (served / each).write_text(each)
    agents = {"address": str(host)}
    hosts = {"sim": {"simulated": {"boot": "1s", "agents": agents}}}
    ironic = {
        "cloud": "nospoon-cloud-admin",
        "driver": "redfish",
        "interfaces": {"boot": "redfish-virtual-media", "deploy": "direct"},
        "driver_info": {"bootloader": f"{files}/esp.img"},
        "deploy_kernel": f"{files}/kernel",
        "deploy_ramdisk": f"{files}/ramdisk",
        "resource_class": "baremetal",
    }
    nova = {"flavors": {"bm": {"resource_class": "baremetal"}}}
    return rack.file(
        f"cluster: {name}\nhosts: {json.dumps(hosts)}\n{rack.bmc(address=str(host))}"
        f"ironic: {json.dumps(ironic)}\nnova: {json.dumps(nova)}\n"
        "networks: {lan: {}}\nnodes: [{name: metal}]\n"
    )


def created(member: Connection, flavor: str, kind: str) -> Server:
    """A server, not yet booted, of an image whose property names the machine type."""
    image = member.image.create_image(
        name=kind,
        disk_format="raw",
        container_format="bare",
        data=partitioned(speaking_disk()),
        img_hv_type=kind,
    )
    network = next(member.network.networks(name="rack"))
    return member.compute.create_server(
        name=kind,
        image_id=image.id,
        flavor_id=member.compute.find_flavor(flavor, ignore_missing=False).id,
        networks=[{"uuid": network.id}],
    )


def stock(admin: Connection) -> int:
    """Nodes that Placement has of their resource class."""
    wanted = "/resource_providers?resources=CUSTOM_BAREMETAL:1"
    found = admin.placement.get(wanted, microversion="1.22")
    return len(found.json()["resource_providers"])


@pytest.mark.timeout(600, func_only=True)
def test_one_nova_serves_bare_metal_and_virtual_machines(cloud: OwnCloud, rack: Rack) -> None:
    told = cloud.rack.json(*UP, "--ironic", "--alt", "kvm")
    assert {**cloud.told, "ironic": told["ironic"]} == told
    cloud.told = told
    compute = ("dev", "cloud", "compute")
    admin, member = connection(cloud, "nospoon-cloud-admin"), connection(cloud)
    assert hypervisors(admin)["cloud-qemu"] == "QEMU"
    name = rack.name()
    rack.run("up", "--yes", cluster_file(rack, cloud, name))
    assert stock(admin) == 1
    metal, machine = created(member, "bm", "baremetal"), created(member, "tiny", "qemu")
    for each in (metal, machine):
        member.compute.wait_for_server(each, wait=600)
    there = admin.compute.get_server(metal)
    assert there.compute_host == HOST
    assert there.hypervisor_hostname == rack.bmcs(name)["metal"]["uuid"]
    assert admin.compute.get_server(machine).compute_host in {"cloud", "cloud-qemu"}
    assert admin.baremetal.get_node(there.hypervisor_hostname).instance_id == metal.id
    assert stock(admin) == 0
    refused = cloud.rack.run(*compute, "leave", HOST, status=5)
    assert "has servers: baremetal" in refused.stderr
    for each in (metal, machine):
        member.compute.delete_server(each)
    until(lambda: not [*admin.compute.servers(all_projects=True)])
    for kind in ("baremetal", "qemu"):
        member.image.delete_image(member.image.find_image(kind, ignore_missing=False).id)
    refused = cloud.rack.run(*compute, "leave", HOST, status=5)
    assert "Ironic has nodes: metal" in refused.stderr
    rack.down()
    for host in (HOST, "cloud-qemu"):
        cloud.rack.run(*compute, "leave", host)
    assert "ironic" not in cloud.rack.json("dev", "cloud", "status")
    with pytest.raises(EndpointNotFound):
        connection(cloud).session.get_endpoint(service_type="baremetal")
    assert HOST not in {each.host for each in admin.compute.services()}
    assert stock(admin) == 0
    del cloud.told["ironic"]
