"""TripleO's instackenv.json and nodes.json, where they describe virtual nodes.

docs.openstack.org/project-deploy-guide/tripleo-docs/latest/environments/baremetal.html#instackenv-json
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from nospoon.clusterfile.document import as_sequence
from nospoon.clusterfile.fields import parse_mac
from nospoon.clusterfile.written import name_of, write
from nospoon.errors import UsageError
from nospoon.importers.accounts import account
from nospoon.importers.capabilities import capabilities_of
from nospoon.importers.source import Imported, Source
from nospoon.model.cluster import Arch

REDFISH = frozenset({"redfish", "staging-wildcat"})
IPMI = frozenset({"ipmi", "pxe_ipmitool"})
CTLPLANE = "ctlplane"
"""The network of what names none."""
MANUAL = frozenset({"manual-management", "fake-hardware", "fake_pxe"})
"""Those without a BMC."""
_KNOWN = frozenset({
    "name", "pm_type", "pm_user", "pm_password", "cpu", "memory", "disk", "arch", "mac", "ports",
    "capabilities", "root_device",
})  # fmt: skip
_PORT = frozenset({"address", "physical_network"})
_REPLACED = frozenset({"pm_addr", "pm_port", "uuid", "_comment"})
"""Where the BMC was, and who the node was: ours have an address and a UUID of their own."""


def read(source: Source) -> Imported:
    """A node for each entry, with its MACs and its BMC's account."""
    left_out: list[str] = []
    entries = source.several(source.mapping().get("nodes"), "nodes")
    if not entries:
        raise UsageError(f"{source.file}: expected a list under `nodes`, got none")
    nodes = [_node(source, index, entry, left_out) for index, entry in enumerate(entries)]
    source.apart(_physical_networks(entries), "physical networks")
    networks = {name_of(each): {"netboot": "none"} for each in _physical_networks(entries)}
    sections = {"cluster": source.cluster, "networks": networks, "nodes": nodes}
    heading = [f"Made from {source.file} by `nospoon import --from instackenv`."]
    if any(_REPLACED & entry.keys() for entry in entries if isinstance(entry, dict)):
        heading.append("BMCs have new addresses (pm_addr, pm_port): see `nospoon bmc list`.")
    if left_out:
        heading += ["Not carried over:", *(f"  {each}" for each in left_out)]
    return Imported(write(sections, heading=heading), tuple(left_out))


def _physical_networks(entries: Iterable[object]) -> Iterator[str]:
    for entry in entries:
        told = entry if isinstance(entry, dict) else {}
        for port in as_sequence(told.get("ports")):
            given = port.get("physical_network") if isinstance(port, dict) else None
            yield str(given or CTLPLANE)
        if told.get("mac"):
            yield CTLPLANE


def _node(source: Source, index: int, entry: object, left_out: list[str]) -> object:
    if not isinstance(entry, dict):
        raise UsageError(f"{source.file}: nodes[{index}]: expected a mapping")
    where = f"nodes[{index}]"
    left_out += [f"{where}.{key}" for key in sorted(entry.keys() - _KNOWN - _REPLACED)]
    kind = str(entry.get("pm_type") or "ipmi")
    protocols = [] if kind in MANUAL else ["redfish" if kind in REDFISH else "ipmi"]
    capabilities = capabilities_of(entry.get("capabilities", ""))
    arch = source.one_of(Arch, entry.get("arch") or "x86_64", f"{where}.arch")
    mode = capabilities.pop("boot_mode", "bios" if arch == Arch.X86_64 else "uefi")
    if kind not in REDFISH | IPMI | MANUAL:
        left_out.append(f"{where}.pm_type {kind!r}: its BMC speaks IPMI here")

    disk = source.whole(entry.get("disk", 10), f"{where}.disk")
    memory = source.positive(entry.get("memory", 1024), f"{where}.memory")
    root_device = entry.get("root_device")
    if root_device and not isinstance(root_device, dict):
        raise UsageError(f"{source.file}: {where}.root_device: expected a mapping of hints")
    ironic = {"capabilities": capabilities, "root_device": root_device}
    node = {
        "name": name_of(entry.get("name") or f"node-{index}"),
        "cpus": source.positive(entry.get("cpu", 1), f"{where}.cpu"),
        "memory": f"{memory}MiB",
        "disks": [f"{disk}GiB"] if disk else [],
        "arch": arch,
        "firmware": mode if mode in {"bios", "uefi"} else "bios",
        "nics": list(_nics(source, where, entry, left_out)),
        "bmc": {"protocols": protocols, **account(_account(where, entry), left_out)},
    }
    told = {name: value for name, value in ironic.items() if value}
    return node | ({"ironic": told} if told else {})


def _account(where: str, entry: Mapping[str, object]) -> dict[str, tuple[str, object]]:
    """Its name and its password; a name alone has a fixed one, too."""
    name = entry.get("pm_user")
    password = entry.get("pm_password", "password" if name else None)
    given = {"username": (f"{where}.pm_user", name), "password": (f"{where}.pm_password", password)}
    return {ours: told for ours, told in given.items() if told[1]}


def _nics(
    source: Source, where: str, entry: Mapping[str, object], left_out: list[str]
) -> Iterator[dict[str, str]]:
    """TripleO's first NIC is on the provisioning network, which it calls ctlplane."""
    for index, port in enumerate(source.several(entry.get("ports"), f"{where}.ports")):
        given: Mapping[str, object] = port if isinstance(port, dict) else {"address": port}
        place = f"{where}.ports[{index}]"
        left_out += [f"{place}.{key}" for key in sorted(given.keys() - _PORT)]
        network = name_of(given.get("physical_network") or CTLPLANE)
        mac = source.parsed(parse_mac, given.get("address"), f"{place}.address")
        yield {"network": network, "mac": mac}
    for index, address in enumerate(source.several(entry.get("mac"), f"{where}.mac")):
        mac = source.parsed(parse_mac, address, f"{where}.mac[{index}]")
        yield {"network": CTLPLANE, "mac": mac}
