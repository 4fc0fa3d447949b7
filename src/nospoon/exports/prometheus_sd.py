"""Targets for Prometheus: BMCs for IPMI, Redfish and SNMP exporters, nodes for node_exporter.

https://prometheus.io/docs/prometheus/latest/configuration/configuration/#file_sd_config; jobs
choose theirs by the label `__meta_nospoon_endpoint`.
"""

from __future__ import annotations

from collections.abc import Iterator

from nospoon.exports.inventory import Inventory, LeftOut, Made, Place

PREFIX = "__meta_nospoon_"
"""Labels that begin with two underscores are dropped after relabelling."""
NODE_EXPORTER = 9100
"""github.com/prometheus/prometheus/wiki/Default-port-allocations"""


def make(inventory: Inventory) -> Made:
    """[{"targets": ["host:port"], "labels": {...}}], one for each endpoint of each node."""
    told = [
        {"targets": [target], "labels": _labels(inventory, place, endpoint)}
        for place in inventory.places
        for endpoint, target in _endpoints(place)
    ]
    left_out = [
        LeftOut("", place.name, ": no known address")
        for place in inventory.places
        if not place.address
    ]
    return Made(told, tuple(left_out))


def _endpoints(place: Place) -> Iterator[tuple[str, str]]:
    bmc = place.bmc
    outlet = f"{bmc.outlet.address}:{bmc.outlet.port}" if bmc.outlet is not None else ""
    node = f"{place.address}:{NODE_EXPORTER}" if place.address else ""
    told = {"ipmi": bmc.ipmi, "redfish": bmc.redfish, "pdu": outlet, "node": node}
    yield from ((endpoint, target) for endpoint, target in told.items() if target)


def _labels(inventory: Inventory, place: Place, endpoint: str) -> dict[str, object]:
    bmc = place.bmc
    told = {
        "endpoint": endpoint,
        "cluster": inventory.cluster.name,
        "node": place.name,
        "host": place.host.name,
        "flavor": place.node.flavor,
        "uuid": str(place.machine.uuid),
        "scheme": ("https" if bmc.tls else "http") if endpoint == "redfish" else "",
        "outlet": str(bmc.outlet.number) if bmc.outlet is not None and endpoint == "pdu" else "",
    }
    return {f"{PREFIX}{name}": value for name, value in told.items() if value}
