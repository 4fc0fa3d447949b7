"""TripleO's instackenv.json and nodes.json, where they describe virtual nodes.

docs.openstack.org/project-deploy-guide/tripleo-docs/latest/environments/baremetal.html#instackenv-json
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nospoon.errors import UsageError
from nospoon.spec.document import as_sequence
from nospoon.spec.importers.capabilities import capabilities_of
from nospoon.spec.importers.written import Imported, Said, Source, name_of, write

REDFISH = frozenset({"redfish", "staging-wildcat"})
_KNOWN = frozenset({
    "name", "pm_type", "pm_user", "pm_password", "cpu", "memory", "disk", "arch", "mac", "ports",
    "capabilities",
})  # fmt: skip
_REPLACED = frozenset({"pm_addr", "pm_port", "pm_system_id", "uuid", "_comment"})
"""Where the BMC was, and who the node was: ours have an address and a UUID of their own."""


def read(source: Source) -> Imported:
    """A node for each entry, with its MACs and its BMC's account."""
    left_out: list[str] = []
    entries = as_sequence(source.mapping().get("nodes"))
    if not entries:
        raise UsageError(f"{source.file}: expected a list under `nodes`, got none")
    nodes = [_node(source, index, entry, left_out) for index, entry in enumerate(entries)]
    networks = {
        nic["network"]: {"netboot": "none"} for node in nodes for nic in _plain(node)["nics"]
    }
    sections = {"cluster": source.cluster, "networks": networks, "nodes": nodes}
    heading = [f"Made from {source.file} by `nospoon import --from instackenv`."]
    if any(_REPLACED & entry.keys() for entry in entries if isinstance(entry, dict)):
        heading.append("BMCs have new addresses (pm_addr, pm_port): see `nospoon bmc list`.")
    if left_out:
        heading += ["Not carried over:", *(f"  {each}" for each in left_out)]
    return Imported(write(sections, heading=heading), tuple(left_out))


def _plain(node: Any) -> Mapping[str, Any]:
    return node.value if isinstance(node, Said) else node  # type: ignore[no-any-return]


def _node(source: Source, index: int, entry: Any, left_out: list[str]) -> Any:
    if not isinstance(entry, dict):
        raise UsageError(f"{source.file}: nodes[{index}]: expected a mapping")
    left_out += [f"nodes[{index}].{key}" for key in sorted(entry.keys() - _KNOWN - _REPLACED)]
    kind = str(entry.get("pm_type", "ipmi"))
    protocol = "redfish" if kind in REDFISH else "ipmi"
    bmc = {"protocols": [protocol]}
    if entry.get("pm_user"):
        bmc |= {"username": entry["pm_user"], "password": entry.get("pm_password", "password")}
    capabilities = capabilities_of(entry.get("capabilities", ""))
    mode = capabilities.pop("boot_mode", "bios")

    def whole(key: str, default: int) -> int:
        return source.whole(entry.get(key, default), f"nodes[{index}].{key}")

    disk = whole("disk", 10)
    node = {
        "name": name_of(entry.get("name") or f"node-{index}"),
        "cpus": whole("cpu", 1),
        "memory": f"{whole('memory', 1024)}MiB",
        "disks": [f"{disk}GiB"] if disk else [],
        "arch": str(entry.get("arch", "x86_64")),
        "firmware": mode if mode in {"bios", "uefi"} else "bios",
        "nics": list(_nics(entry)),
        "bmc": bmc,
    }
    return node | ({"ironic": {"capabilities": capabilities}} if capabilities else {})


def _nics(entry: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """TripleO's first NIC is on the provisioning network, which it calls ctlplane."""
    for port in as_sequence(entry.get("ports")):
        given = port if isinstance(port, dict) else {"address": port}
        network = name_of(given.get("physical_network") or "ctlplane")
        yield {"network": network, "mac": str(given.get("address"))}
    for mac in as_sequence(entry.get("mac")):
        yield {"network": "ctlplane", "mac": str(mac)}
