"""What `baremetal create FILE` takes: nodes with their ports and portgroups.

https://docs.openstack.org/python-ironicclient/latest/cli/osc/v1/ ("baremetal create"); each
object has the fields that the API is posted, and ports lie in what they belong to.
"""

from __future__ import annotations

from nospoon.exports.inventory import Inventory, LeftOut, Made, Place, Registered


def make(inventory: Inventory) -> Made:
    """{"nodes": [...]}. Traits cannot be given at creation."""
    left_out = [
        LeftOut(
            "traits",
            place.name,
            f": `baremetal node add trait` takes {' '.join(place.node.traits)}",
        )
        for place in inventory.places
        if place.node.traits
    ]
    left_out += [
        LeftOut(
            "volumes",
            place.name,
            ": `baremetal volume connector create` and `… target create` do",
        )
        for place in inventory.places
        if place.node.enrolment.connectors or place.node.enrolment.targets
    ]
    return Made({"nodes": [_node(inventory, each) for each in inventory.places]}, tuple(left_out))


def _node(inventory: Inventory, place: Place) -> dict[str, object]:
    found = inventory.registered(place)
    groups = [{**each, "ports": _ports(found, str(each["uuid"]))} for each in found.portgroups]
    parts = {"ports": _ports(found, None), "portgroups": groups}
    return {**found.body, **{name: part for name, part in parts.items() if part}}


def _ports(found: Registered, group: str | None) -> list[dict[str, object]]:
    return [dict(each) for each in found.ports if each.get("portgroup_uuid") == group]
