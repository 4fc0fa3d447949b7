"""Bifrost's inventory of machines, which `bifrost-cli enroll` and BIFROST_INVENTORY_SOURCE take.

https://docs.openstack.org/bifrost/latest/user/howto.html#inventory-file-format; `driver_info` is
flat: the collection that enrols flattens `power` and its like no more.
"""

from __future__ import annotations

from nospoon.exports.inventory import (
    DRIVER_INFO,
    INTERFACES,
    PROPERTIES,
    TEMPLATES,
    Inventory,
    LeftOut,
    Made,
    Place,
    unsaid,
)

SAID = ("resource_class", INTERFACES, DRIVER_INFO, PROPERTIES, "ports.address")


def make(inventory: Inventory) -> Made:
    """Name -> machine. Without an address of its own it is Bifrost's DHCP that gives one."""
    nodes = [_node(inventory, each) for each in inventory.places]
    left_out = [
        each
        for place in inventory.places
        for each in unsaid(place, inventory.registered(place), SAID)
    ]
    left_out += [
        LeftOut(
            "a password",
            place.name,
            " that Ansible's templates leave alone: it has braces in it",
        )
        for place in inventory.places
        if any(each in place.secrets.password for each in TEMPLATES)
    ]
    return Made({each["name"]: each for each in nodes}, tuple(left_out))


def _node(inventory: Inventory, place: Place) -> dict[str, object]:
    found = inventory.registered(place)
    properties = found.properties
    names = {"cpus": "cpus", "memory_mb": "ram", "local_gb": "disk_size"}
    told = {names.get(name, name): value for name, value in properties.items()}
    address = {"ipv4_address": place.address} if place.address else {"addressing_mode": "dhcp"}
    return {
        "uuid": found.body["uuid"],
        "name": found.name,
        "driver": found.driver,
        "driver_info": found.info,
        "nics": [{"mac": port["address"]} for port in found.ports],
        "properties": {n: str(v) if n in names.values() else v for n, v in told.items()},
        "resource_class": found.body["resource_class"],
        **found.interfaces,
        **address,
    }
