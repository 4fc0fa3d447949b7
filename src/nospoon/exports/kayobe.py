"""Kayobe's baremetal-compute hosts, as `kayobe baremetal compute register` reads them.

https://docs.openstack.org/kayobe/latest/administration/bare-metal.html: it hands every key and
value to `openstack baremetal node create`, so that what is no scalar is written as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from nospoon.exports.inventory import (
    DRIVER_INFO,
    PROPERTIES,
    Inventory,
    Made,
    Place,
    unsaid,
)

GROUP = "baremetal-compute"
SAID = ("resource_class", DRIVER_INFO, PROPERTIES)


def make(inventory: Inventory) -> Made:
    """An Ansible inventory, for a file in Kayobe's inventory directory."""
    hosts = dict(_host(inventory, each) for each in inventory.places)
    left_out = [
        each
        for place in inventory.places
        for each in unsaid(place, inventory.registered(place), SAID)
    ]
    return Made({GROUP: {"hosts": hosts}}, tuple(left_out))


def _host(inventory: Inventory, place: Place) -> tuple[str, dict[str, object]]:
    found = inventory.registered(place)
    return found.name, {
        "ironic_driver": found.driver,
        "ironic_driver_info": _flat(found.info),
        "ironic_properties": _flat(found.properties),
        "ironic_resource_class": found.body["resource_class"],
    }


def _flat(values: Mapping[str, object]) -> dict[str, object]:
    return {
        name: value if isinstance(value, str | int | float) else json.dumps(value)
        for name, value in values.items()
    }
