"""Nodes as servers of a real cloud, made, powered and booted as a member of an ordinary project."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from openstack.connection import Connection

import openstack
from nospoon.testing.cloud import OwnCloud
from nospoon.testing.ironic import until
from nospoon.testing.rack import Rack, private_rack

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")
HOST = """
cluster: {name}
hosts:
  cloud:
    openstack: {{cloud: nospoon-cloud, flavors: [metal.tiny], boot_address: 172.24.5.1}}
    physnets: {{external: rack}}
networks: {{external: {{physnet: external}}, provision: {{}}}}
nodes:
  - {{name: b, cpus: 1, memory: 512MiB, firmware: bios, disks: [1GiB],
     nics: [{{network: external}}, {{network: provision}}]}}
"""


@pytest.fixture
def rack(cloud: OwnCloud) -> Iterator[Rack]:
    with private_rack(OS_CLIENT_CONFIG_FILE=str(cloud.told["clouds"])) as made:
        yield made


def connection(cloud: OwnCloud) -> Connection:
    return openstack.connect(
        load_yaml_config=False, load_envvars=False, **cloud.login("nospoon-cloud")
    )


def everything(member: Connection) -> dict[str, list[str]]:
    """What the project has, by kind; ports of Neutron's own DHCP apart."""
    owner = "network:dhcp"
    return {
        "servers": sorted(each.id for each in member.compute.servers()),
        "ports": sorted(p.id for p in member.network.ports() if p.device_owner != owner),
        "networks": sorted(each.id for each in member.network.networks()),
        "subnets": sorted(each.id for each in member.network.subnets()),
        "images": sorted(each.id for each in member.image.images()),
    }


@pytest.mark.timeout(600, func_only=True)
def test_a_node_is_a_server_that_boots_what_its_bmc_says(cloud: OwnCloud, rack: Rack) -> None:
    member, name = connection(cloud), rack.name()
    before = everything(member)
    file = rack.file(HOST.format(name=name) + rack.bmc())
    plan = rack.run("plan", file).stdout
    assert "flavor metal.tiny" in plan
    assert "asks at http://172.24.5.1:" in plan
    rack.run("up", file, "--yes")
    assert "Nothing to do" in rack.run("plan", file).stdout
    (server,) = member.compute.servers()
    assert server.status == "SHUTOFF"
    (port,) = [p for p in member.network.ports(device_id=server.id) if not p.fixed_ips]
    assert not port.is_port_security_enabled

    bmc = rack.bmcs(name)["b"]
    assert (
        rack.ipmitool(bmc, "mc", "guid").lower().replace("-", "").count(server.id.replace("-", ""))
    )
    (verdict,) = rack.json("verify", file)
    assert (verdict["verdict"], verdict["nics"]) == ("as declared", 2), verdict

    rack.ipmitool(bmc, "power", "on")
    until(lambda: "is on" in rack.ipmitool(bmc, "power", "status"), 60)
    member.compute.stop_server(server.id)  # somebody else does
    until(lambda: "is off" in rack.ipmitool(bmc, "power", "status"), 60)
    rack.ipmitool(bmc, "power", "on")
    until(lambda: "is on" in rack.ipmitool(bmc, "power", "status"), 60)
    rack.ipmitool(bmc, "power", "off")
    until(lambda: _is(member, server.id, "SHUTOFF"), 60)

    rack.run("down", name, "--yes")
    assert everything(member) == before


def _is(member: Connection, id_: str, status: str) -> bool:
    return bool(member.compute.get_server(id_).status == status)


def test_what_a_cloud_cannot_do_is_refused_with_numbers(cloud: OwnCloud, rack: Rack) -> None:
    del cloud
    text = HOST.format(name=rack.name()) + rack.bmc()
    refusals: dict[str, Any] = {
        "cpus: 1,": ("cpus: 64,", "no flavor has 64 CPUs"),
        "provision: {}": ("provision: {nat: true}", "nospoon makes no routers"),
        "external: rack": ("external: nowhere", "has no network nowhere that its project sees"),
        "flavors: [metal.tiny]": ("flavors: [none]", "has no flavor none"),
        "name: b": ("count: 99", "the quota of its project leaves"),
        "nics: [{network: external}, ": ("nics: [", "leads nowhere"),
    }
    for old, (new, said) in refusals.items():
        assert old in text
        refused = rack.run("plan", rack.file(text.replace(old, new)), status=1)
        assert said in refused.stderr, refused.stderr
