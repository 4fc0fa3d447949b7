"""What an empty cloud is filled with: accounts, the catalogue, flavors, an image, a network.

A cloud that was not filled to the end is removed by the next `up`, so nothing is looked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from nospoon.dev.cloud.client import Client
from nospoon.dev.cloud.configuration import PUBLIC, RACKS, Passwords
from nospoon.dev.cloud.wanted import PROJECT, REGION, Api, Wanted
from nospoon.errors import HostUnreachable

log = structlog.get_logger()

NETWORK, OWN_NETWORK = "public", "rack"
IMAGE, IMAGE_FILE = "ipxe", Path("/usr/lib/ipxe/ipxe.iso")
"""An image that shows at once on the console that a server runs (Debian's package `ipxe`)."""
_CATALOGUE = {
    Api.PLACEMENT: ("placement", ""),
    Api.GLANCE: ("image", ""),
    Api.NEUTRON: ("network", ""),
    Api.NOVA: ("compute", "/v2.1"),
}
"""Type of each service, and the path of its endpoint. Keystone makes its own."""
_INTERFACES = "public", "internal", "admin"
_BAREMETAL = "baremetal"
"""The type of Ironic, which joins and leaves."""
_VOLUMES = "volumev3"
"""The type of Cinder by which Nova looks for it ([cinder] catalog_info)."""


@dataclass(frozen=True, slots=True)
class Flavor:
    """RAM in MiB, disks in GiB. A server that boots an ISO has its CD as root disk, and the
    ephemeral disk is its blank one.
    """

    name: str
    ram: int
    vcpus: int
    disk: int
    ephemeral: int = 0


FLAVORS = (
    Flavor("tiny", 256, 1, 1),
    Flavor("small", 2048, 1, 10),
    Flavor("medium", 4096, 2, 20),
    Flavor("metal.tiny", 512, 1, 1, 1),
    Flavor("metal.small", 3072, 2, 1, 10),
)


BOOTSTRAP_PASSWORD = "OS_BOOTSTRAP_PASSWORD"  # noqa: S105  (the variable's name)
"""Where keystone-manage reads it: arguments are seen by every user of the machine (proc(5))."""


def keystone_bootstrap(wanted: Wanted) -> list[str]:
    """Arguments of keystone-manage: roles, the administrator, and Keystone's own endpoint."""
    url = f"{wanted.url(Api.KEYSTONE)}/v3"
    return [
        "bootstrap", "--bootstrap-region-id", REGION,
        "--bootstrap-public-url", url, "--bootstrap-internal-url", url,
        "--bootstrap-admin-url", url,
    ]  # fmt: skip


async def accounts(client: Client, passwords: Passwords) -> None:
    """The services' account, the ordinary project with its user, and the catalogue."""
    listed = (await client.call("GET", Api.KEYSTONE, "/v3/roles"))["roles"]
    roles = {each["name"]: each["id"] for each in listed}
    for name, password, wanted in (
        ("service", passwords.service, ("admin", "service")),
        (PROJECT, passwords.user, ("member", "reader")),
    ):
        project = await _identity(client, "project", {"name": name})
        user = await _identity(
            client, "user", {"name": name, "password": password, "default_project_id": project}
        )
        for role in wanted:
            path = f"/v3/projects/{project}/users/{user}/roles/{roles[role]}"
            await client.call("PUT", Api.KEYSTONE, path)
    for api, (kind, path) in _CATALOGUE.items():
        await _enter(client, api, kind, client.wanted.url(api) + path)


async def _enter(client: Client, api: Api, kind: str, url: str) -> None:
    """An entry of the catalogue."""
    service = await _identity(client, "service", {"name": api, "type": kind})
    for interface in _INTERFACES:
        told = {
            "service_id": service, "interface": interface, "region_id": REGION, "url": url,
        }  # fmt: skip
        await _identity(client, "endpoint", told)


async def enter_ironic(client: Client) -> None:
    """Have Ironic in the catalogue."""
    found = (await client.call("GET", Api.KEYSTONE, "/v3/endpoints"))["endpoints"]
    known = [each["url"] for each in found]
    if known.count(client.wanted.url(Api.IRONIC)) < len(_INTERFACES):
        await remove_ironic(client)
        await _enter(client, Api.IRONIC, _BAREMETAL, client.wanted.url(Api.IRONIC))


async def enter_cinder(client: Client) -> None:
    """Have Cinder in the catalogue, once."""
    listed = (await client.call("GET", Api.KEYSTONE, f"/v3/services?type={_VOLUMES}"))["services"]
    if not listed:
        await _enter(client, Api.CINDER, _VOLUMES, f"{client.wanted.url(Api.CINDER)}/v3")


async def remove_ironic(client: Client) -> None:
    """Take Ironic out of the catalogue."""
    for each in await _entries_of_ironic(client):
        await client.call("DELETE", Api.KEYSTONE, f"/v3/services/{each}")


async def remove_nodes(client: Client) -> None:
    """Take Ironic's nodes out of Placement, where only they have the names of their UUIDs. One
    that its nova-compute was about to remove when it ended is of no host any more.
    """
    path = "/resource_providers"
    for each in (await client.call("GET", Api.PLACEMENT, path))["resource_providers"]:
        if each["name"] == each["uuid"]:
            await client.call("DELETE", Api.PLACEMENT, f"{path}/{each['uuid']}")


async def _entries_of_ironic(client: Client) -> list[str]:
    path = f"/v3/services?type={_BAREMETAL}"
    listed = (await client.call("GET", Api.KEYSTONE, path))["services"]
    return [each["id"] for each in listed]


async def _identity(client: Client, kind: str, wanted: Mapping[str, object]) -> str:
    """Make something in Keystone; its id."""
    made = await client.call("POST", Api.KEYSTONE, f"/v3/{kind}s", {kind: wanted})
    return str(made[kind]["id"])


async def flavors(client: Client) -> None:
    """Flavors that every project can use."""
    for each in FLAVORS:
        told = {
            "name": each.name, "ram": each.ram, "vcpus": each.vcpus, "disk": each.disk,
            "OS-FLV-EXT-DATA:ephemeral": each.ephemeral,
        }  # fmt: skip
        await client.call("POST", Api.NOVA, "/v2.1/flavors", {"flavor": told})


async def image(client: Client) -> None:
    """iPXE as an ISO, where Debian's package of it is installed."""
    if not IMAGE_FILE.exists():
        return
    told = {
        "name": IMAGE, "disk_format": "iso", "container_format": "bare", "visibility": "public",
        "img_hv_type": "qemu",
    }  # fmt: skip
    made = await client.call("POST", Api.GLANCE, "/v2/images", told)
    await client.upload(f"/v2/images/{made['id']}/file", IMAGE_FILE)


async def networks(client: Client) -> None:
    """The provider network, with the host as its gateway, and a part of it that the ordinary
    project has to itself: only there may it choose MACs, and switch port security off.
    """
    listed = (await client.call("GET", Api.KEYSTONE, "/v3/projects"))["projects"]
    project = next(each["id"] for each in listed if each["name"] == PROJECT)
    lower, upper = client.wanted.public.subnets()
    all_may = {"shared": True, "router:external": True}
    for name, physical, owner, pool in (
        (NETWORK, PUBLIC, all_may, (lower[3], lower[-1])),
        (OWN_NETWORK, RACKS, {"project_id": project}, (upper[0], upper[-2])),
    ):
        wanted = {
            "name": name, "provider:network_type": "flat", "provider:physical_network": physical,
            **owner,
        }  # fmt: skip
        made = await client.call("POST", Api.NEUTRON, "/v2.0/networks", {"network": wanted})
        subnet = {
            "network_id": made["network"]["id"], "name": name, "ip_version": 4,
            "cidr": str(client.wanted.public), "gateway_ip": str(client.wanted.gateway),
            "allocation_pools": [{"start": str(pool[0]), "end": str(pool[1])}],
        } | {key: value for key, value in owner.items() if key == "project_id"}  # fmt: skip
        await client.call("POST", Api.NEUTRON, "/v2.0/subnets", {"subnet": subnet})


async def computes(client: Client) -> set[str]:
    """Compute hosts that can be scheduled to: they report, are in a cell, and are in Placement."""
    path = "/resource_providers"
    there = (await client.call("GET", Api.PLACEMENT, path))["resource_providers"]
    providers = {each["uuid"] for each in there}
    known = await client.call("GET", Api.NOVA, "/v2.1/os-hypervisors/detail")
    return {
        each["service"]["host"]
        for each in known["hypervisors"]
        if each["state"] == "up" and each["id"] in providers
    }


async def services(client: Client) -> set[str]:
    """Compute hosts that report. Those of Ironic have as many hypervisors as nodes, or none."""
    path = "/v2.1/os-services?binary=nova-compute"
    listed = (await client.call("GET", Api.NOVA, path))["services"]
    return {each["host"] for each in listed if each["state"] == "up"}


async def pools(client: Client) -> set[str]:
    """Where Cinder's scheduler puts volumes; empty while that does not answer Cinder's API."""
    try:
        listed = await client.call("GET", Api.CINDER, "/v3/scheduler-stats/get_pools")
    except HostUnreachable as error:
        log.info("Cinder's scheduler does not answer yet", why=str(error))
        return set()
    return {each["name"] for each in listed["pools"]}


async def agents(client: Client) -> set[str]:
    """Neutron's agents that report, by their program."""
    listed = (await client.call("GET", Api.NEUTRON, "/v2.0/agents"))["agents"]
    return {each["binary"] for each in listed if each["alive"]}
