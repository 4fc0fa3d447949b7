"""TripleO's instackenv.json, as `openstack overcloud node import` reads it.

docs.openstack.org/project-deploy-guide/tripleo-docs/latest/environments/baremetal.html#instackenv-json;
`pm_*` become `driver_info`, and keys that begin with a driver's name are handed on as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nospoon.exports.inventory import INTERFACES, Inventory, LeftOut, Made, Registered, unsaid

PM: Mapping[str, Mapping[str, str]] = {
    "ipmi": {
        "pm_addr": "ipmi_address",
        "pm_port": "ipmi_port",
        "pm_user": "ipmi_username",
        "pm_password": "ipmi_password",
    },
    "redfish": {
        "pm_addr": "redfish_address",
        "pm_system_id": "redfish_system_id",
        "pm_user": "redfish_username",
        "pm_password": "redfish_password",
    },
    "manual-management": {},
}
"""Driver -> field -> what it is in driver_info."""
FILES = {"kernel_id": "deploy_kernel", "ramdisk_id": "deploy_ramdisk"}
PROPERTIES = {
    "cpu": "cpus",
    "memory": "memory_mb",
    "disk": "local_gb",
    "arch": "cpu_arch",
    "capabilities": "capabilities",
    "root_device": "root_device",
}
_PORT = ("address", "physical_network", "local_link_connection")
_SAME = ("uuid", "name", "resource_class", "conductor_group")
_TEXT = frozenset({"cpu", "memory", "disk", "pm_port"})
"""Numbers that its examples write as text, and that old versions take as text only."""


def make(inventory: Inventory) -> Made:
    """{"nodes": [...]}; nodes of drivers that it does not know are left out."""
    nodes, left_out = [], []
    for place in inventory.places:
        found = inventory.registered(place)
        if found.driver in PM:
            nodes.append(_node(found))
            left_out += unsaid(place, found, {*_SAME, INTERFACES, *_said(found)})
        else:
            left_out.append(LeftOut("", place.name, f": it knows no driver {found.driver}"))
    return Made({"nodes": nodes}, tuple(left_out))


def _said(found: Registered) -> Iterator[str]:
    prefix = f"{found.driver}_"
    yield from (f"driver_info.{name}" for name in found.info if name.startswith(prefix))
    yield from (f"driver_info.{name}" for name in FILES.values())
    yield from (f"properties.{name}" for name in PROPERTIES.values())
    yield from (f"ports.{name}" for name in _PORT)


def _node(found: Registered) -> dict[str, object]:
    pm, info = PM[found.driver], found.info
    prefix = f"{found.driver}_"
    told = {name: info.get(source) for name, source in {**pm, **FILES}.items()}
    more = {
        name: value
        for name, value in info.items()
        if name.startswith(prefix) and name not in pm.values()
    }
    told |= {name: found.properties.get(source) for name, source in PROPERTIES.items()}
    told |= {name: found.body.get(name) for name in _SAME}
    told |= {**more, **found.interfaces, "pm_type": found.driver, "ports": _ports(found)}
    return {
        name: str(value) if name in _TEXT else value
        for name, value in told.items()
        if value is not None
    }


def _ports(found: Registered) -> list[dict[str, object]]:
    return [{name: port[name] for name in _PORT if name in port} for port in found.ports]
