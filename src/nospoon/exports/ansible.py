"""An inventory of the nodes for Ansible: groups of their flavor, host, firmware, traits and labels.

https://docs.ansible.com/ansible/latest/inventory_guide/intro_inventory.html
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator

from nospoon.exports.inventory import Inventory, LeftOut, Made, Place

_ODD = re.compile(r"[^A-Za-z0-9_]")
"""What a group's name may not have: it is a variable's name, too."""

RESERVED = frozenset({"all", "ungrouped"})
"""Groups that every inventory has."""


def make(inventory: Inventory) -> Made:
    """Hosts below `all`, and what a play needs of their BMCs (`bmc_*`) as variables."""
    groups: dict[str, dict[str, dict[str, dict[str, object]]]] = {}
    hosts = {place.name: _variables(place) for place in inventory.places}
    for place in inventory.places:
        for group in _groups(inventory, place, hosts):
            groups.setdefault(group, {"hosts": {}})["hosts"][place.name] = {}
    left_out = [
        LeftOut("ansible_host", place.name, ": no DHCP of nospoon gives an address")
        for place in inventory.places
        if not place.address
    ]
    return Made({"all": {"hosts": hosts, "children": groups}}, tuple(left_out))


def _groups(inventory: Inventory, place: Place, hosts: Container[str]) -> Iterator[str]:
    node = place.node
    named = {
        "cluster": inventory.cluster.name,
        "flavor": node.flavor,
        "host": place.host.name,
        "firmware": str(node.firmware),
    }
    told = [*named.items(), *(("trait", each.lower()) for each in node.traits)]
    yield from (_ODD.sub("_", f"{name}_{value}" if value else name) for name, value in told)
    for name, value in node.labels:
        group = _ODD.sub("_", f"{name}_{value}" if value else name)
        is_taken = group in RESERVED or group in hosts or not group or group[0].isdigit()
        yield f"label_{group}" if is_taken else group


def _variables(place: Place) -> dict[str, object]:
    jump = place.host.ssh.removeprefix("ssh://")
    told = {
        "ansible_host": place.ssh_address,
        "ansible_ssh_common_args": f"-o ProxyJump={jump}" if jump else "",
        "nospoon_uuid": str(place.machine.uuid),
        "nospoon_host": place.host.name,
        "nospoon_macs": [nic.mac for nic in place.machine.nics],
        "nospoon_serial_number": place.machine.serial_number,
        **_bmc(place),
    }
    return {name: value for name, value in told.items() if value not in ("", [], 0)}


def _bmc(place: Place) -> dict[str, object]:
    bmc = place.bmc
    if not bmc.protocols:
        return {}
    return {
        "bmc_address": bmc.address,
        "bmc_ipmi_port": bmc.ipmi_port,
        # what `baseuri` of community.general's redfish_* takes
        "bmc_redfish": bmc.redfish,
        "bmc_redfish_tls": bmc.tls if bmc.redfish else "",
        "bmc_username": bmc.username,
        "bmc_password": place.secrets.password,
    }
