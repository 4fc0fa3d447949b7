"""How a change of each field of the file reaches what is there: the rule of every field.

Hosts on libvirt keep to it (tests/e2e/test_changes.py proves each row there); the reference tells
it. How a resource's field may change on a connection is said in `nospoon.providers.base`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from pydantic import BaseModel

from nospoon.clusterfile.bmcs import BmcSection, NodeBmcSection, PduSection, TlsSection
from nospoon.clusterfile.cloud import CloudAuthSection, CloudSection
from nospoon.clusterfile.docker import DockerSection
from nospoon.clusterfile.hardware import DiskSection, HardwareSection, NicSection, PortgroupSection
from nospoon.clusterfile.ironic import (
    ConnectorSection,
    EnrolmentSection,
    IronicSection,
    TargetSection,
    VolumesSection,
)
from nospoon.clusterfile.labs import (
    DistroSection,
    LabBmcSection,
    LabLimitsSection,
    LabMachineSection,
    LabSection,
    LabTimeoutsSection,
    WebhookSection,
)
from nospoon.clusterfile.lxc import LxcSection
from nospoon.clusterfile.models import (
    BootProfileSection,
    ClusterFile,
    HostSection,
    NetworkSection,
    OvercommitSection,
)
from nospoon.clusterfile.node_groups import (
    AdoptSection,
    FlavorSection,
    NodeGroupSection,
    NodeSection,
    PlacementSection,
)
from nospoon.clusterfile.nova import NovaFlavorSection, NovaSection
from nospoon.clusterfile.openstack import OpenStackSection, RelaySection
from nospoon.clusterfile.services import HealthSection, ServiceSection
from nospoon.clusterfile.simulated import AgentsSection, SimulatedSection


class Rule(StrEnum):
    """What `up` does when a field has changed."""

    LIVE = "live"
    """`~`: at once, and machines run on."""
    AT_POWER_OFF = "at power-off"
    """`~ (at power-off)`: defined at once; a running machine gets it when it is started again."""
    REPLACE = "replaced"
    """`-/+`: machine or disk is made again, and what was on it is lost."""
    NODES = "nodes"
    """`+` and `-`: nodes are made and removed; the others stay as they are."""
    NEW_NODES = "new nodes"
    """Says where new nodes go; what is placed stays unless `--rebalance` asks otherwise."""
    REMEMBERED = "remembered"
    """Nothing is made of it: it is told to those who ask."""
    REFUSED = "refused"
    """While something is there: what it names is another thing."""
    ANOTHER = "another cluster"
    """The file describes another one, and the first stays."""
    PARTS = "parts"
    """A section: its fields have rules of their own, and its entries come and go."""
    FIXED = "fixed"
    """There is one choice only."""


MEANINGS: Mapping[Rule, str] = {
    Rule.LIVE: "`~`: at once; machines run on",
    Rule.AT_POWER_OFF: (
        "`~ (at power-off)`: a running machine gets it at its next start by its BMC; a network or "
        "disk that it has until then goes with the first `up` after, `- (at power-off)`, and so "
        "does its address"
    ),
    Rule.REPLACE: "`-/+`: recreated; its content is lost",
    Rule.NODES: "`+` and `-`: nodes come and go; the others are not touched",
    Rule.NEW_NODES: "affects where new nodes go; the others stay (`--rebalance` places all again)",
    Rule.REMEMBERED: "stored only; `status`, `node show` and exports show it",
    Rule.REFUSED: "refused while something of the cluster is there",
    Rule.ANOTHER: "the file is then that of another cluster",
    Rule.PARTS: "see its own table",
    Rule.FIXED: "there is one choice only",
}


def _all(rule: Rule, *names: str) -> dict[str, Rule]:
    return dict.fromkeys(names, rule)


RULES: Mapping[type[BaseModel], Mapping[str, Rule]] = {
    ClusterFile: {
        "cluster": Rule.ANOTHER,
        "id": Rule.REFUSED,
        "throwaway": Rule.AT_POWER_OFF,
        **_all(Rule.PARTS, "hosts", "networks", "flavors", "boot", "bmc", "ironic", "nova"),
        **_all(Rule.PARTS, "labs", "services", "nodes"),
    },
    HostSection: {
        **_all(Rule.REFUSED, "libvirt", "simulated", "ssh"),
        **_all(Rule.NODES, "lxc", "docker"),
        "openstack": Rule.PARTS,
        "physnets": Rule.AT_POWER_OFF,
        "address": Rule.LIVE,
        "drained": Rule.NEW_NODES,
        "overcommit": Rule.PARTS,
    },
    OpenStackSection: {
        **_all(Rule.REFUSED, "cloud", "region"),
        **_all(Rule.NEW_NODES, "flavors", "volumes"),
        **_all(Rule.REPLACE, "availability_zone", "boot_address"),
        **_all(Rule.REPLACE, "server_groups", "per_compute_host", "key_pair"),
        **_all(Rule.LIVE, "external_network", "off"),
        "relay": Rule.PARTS,
    },
    RelaySection: {
        **_all(Rule.REPLACE, "network", "image", "flavor", "address", "port", "bmcs"),
        **_all(Rule.LIVE, "floating_ip", "floating_address", "nameservers"),
    },
    LxcSection: {"idmap": Rule.NEW_NODES, "new_privileges": Rule.AT_POWER_OFF},
    DockerSection: {"socket": Rule.REFUSED, "new_privileges": Rule.NEW_NODES},
    SimulatedSection: {
        **_all(Rule.LIVE, "power_on", "power_off", "shut_down", "boot", "console"),
        **_all(Rule.LIVE, "power_failures", "machines"),
        **_all(Rule.NEW_NODES, "cpus", "memory"),
        "agents": Rule.PARTS,
    },
    AgentsSection: dict.fromkeys(AgentsSection.model_fields, Rule.LIVE),
    OvercommitSection: _all(Rule.NEW_NODES, "cpus", "memory", "disk"),
    NetworkSection: {
        **_all(Rule.LIVE, "cidr", "netboot", "mtu", "overlay", "nat", "host_ports", "router"),
        "dhcp": Rule.LIVE,
        **_all(Rule.AT_POWER_OFF, "physnet", "bridge", "vlan", "switch", "anti_spoofing"),
        "virtual_ips": Rule.AT_POWER_OFF,
        **_all(Rule.REPLACE, "provider", "segment", "segment_id"),
    },
    HardwareSection: {
        **_all(Rule.AT_POWER_OFF, "cpus", "memory", "firmware", "tpm", "disks", "nics"),
        "arch": Rule.REPLACE,
        **_all(Rule.PARTS, "portgroups", "bmc", "ironic"),
        "boot": Rule.LIVE,
        "boot_order": Rule.LIVE,
        "restore": Rule.LIVE,
        "image": Rule.REPLACE,
        "rollback": Rule.LIVE,
        **_all(Rule.AT_POWER_OFF, "user_data", "ssh_keys"),
    },
    FlavorSection: {"kind": Rule.REPLACE},
    NodeSection: {
        "host": Rule.REPLACE,
        "traits": Rule.LIVE,
        "labels": Rule.REMEMBERED,
    },
    NodeGroupSection: {
        "kind": Rule.REPLACE,
        "flavor": Rule.PARTS,
        **_all(Rule.NODES, "count", "name", "start"),
        **_all(Rule.PARTS, "adopt", "placement", "overrides"),
    },
    AdoptSection: _all(Rule.NODES, "machine", "match"),
    PlacementSection: _all(Rule.NEW_NODES, "strategy", "affinity", "anti_affinity"),
    DiskSection: {
        "size": Rule.LIVE,
        **_all(Rule.REPLACE, "image", "checksum"),
        **_all(Rule.AT_POWER_OFF, "volume", "format", "bus", "serial"),
        **_all(Rule.AT_POWER_OFF, "rotational", "cache", "discard", "mount"),
    },
    NicSection: {
        **_all(Rule.AT_POWER_OFF, "network", "mac", "model", "trunk", "address"),
        **_all(Rule.LIVE, "pxe", "portgroup", "floating_ip", "floating_address"),
    },
    PortgroupSection: _all(
        Rule.LIVE, "mode", "address", "properties", "standalone_ports_supported"
    ),
    NodeBmcSection: _all(Rule.LIVE, "protocols", "port", "address", "username", "password", "k_g"),
    BootProfileSection: _all(Rule.LIVE, "kernel", "script", "initrd", "cmdline"),
    BmcSection: {
        **_all(Rule.LIVE, "address", "ports", "redfish_port", "redfish_auth", "tls", "pool"),
        **_all(Rule.LIVE, "username", "password", "password_hash", "k_g"),
        "pdu": Rule.PARTS,
    },
    TlsSection: _all(Rule.LIVE, "certificate", "key"),
    PduSection: {"vendor": Rule.FIXED, **_all(Rule.LIVE, "outlets", "ports", "secret", "v2c")},
    EnrolmentSection: {
        **dict.fromkeys(EnrolmentSection.model_fields, Rule.LIVE),
        "volumes": Rule.PARTS,
    },
    VolumesSection: _all(Rule.LIVE, "connectors", "targets"),
    ConnectorSection: dict.fromkeys(ConnectorSection.model_fields, Rule.LIVE),
    TargetSection: dict.fromkeys(TargetSection.model_fields, Rule.LIVE),
    NovaSection: {"flavors": Rule.PARTS, "wait": Rule.LIVE},
    NovaFlavorSection: {
        **_all(Rule.LIVE, "resource_class", "traits", "extra_specs"),
        **_all(Rule.REPLACE, "vcpus", "ram", "disk", "public"),
    },
    IronicSection: {
        **_all(Rule.REFUSED, "endpoint", "cloud"),
        **_all(Rule.LIVE, "auth", "username", "password"),
    },
    CloudSection: {
        **dict.fromkeys(CloudSection.model_fields, Rule.REFUSED),
        **_all(Rule.FIXED, "cacert", "cert", "key"),
    },
    CloudAuthSection: dict.fromkeys(CloudAuthSection.model_fields, Rule.REFUSED),
    LabSection: {
        **dict.fromkeys(LabSection.model_fields, Rule.LIVE),
        **_all(Rule.PARTS, "limits", "timeouts", "distros", "machines", "webhooks"),
    },
    **{
        section: dict.fromkeys(section.model_fields, Rule.LIVE)
        for section in (
            LabLimitsSection,
            LabTimeoutsSection,
            DistroSection,
            LabBmcSection,
            WebhookSection,
        )
    },
    ServiceSection: {
        **_all(Rule.LIVE, "nodes", "unit", "after"),
        **_all(Rule.AT_POWER_OFF, "environment", "networks", "volumes"),
        **_all(Rule.PARTS, "health", "flavor", "placement"),
        **_all(Rule.NODES, "combine", "count"),
        **_all(Rule.REPLACE, "kind", "role"),
    },
    HealthSection: _all(Rule.LIVE, "port", "path", "timeout"),
    LabMachineSection: {
        **dict.fromkeys(LabMachineSection.model_fields, Rule.LIVE),
        "bmc": Rule.PARTS,
    },
}
"""By the section that declares a field; those that inherit it inherit its rule."""


def rule_of(section: type[BaseModel], field: str) -> Rule:
    """The rule of a field. Raises `KeyError` for one that has none."""
    rules = (RULES[each] for each in section.__mro__ if each in RULES)
    return next(of[field] for of in rules if field in of)
