"""OpenStack Virtual Baremetal (OVB): environment files of Heat, and those of its roles.

What they may say is in templates/ and environments/ of
opendev.org/openstack/openstack-virtual-baremetal; how role files inherit, in its deploy.py. What
`resource_registry` names is known by the names of OVB's own templates.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from nospoon.clusterfile.written import Said, name_of, write
from nospoon.errors import UsageError
from nospoon.importers.ovb_routers import OVERCLOUD, PUBLIC, ROUTED, Leaf, leaves
from nospoon.importers.source import Imported, Source

NETWORKS = {
    "provision": ("provision_net", "provision"),
    "public": ("public_net", "public"),
    "private": ("private_net", "private"),
    "internal": ("overcloud_internal_net", "overcloud_internal"),
    "storage": ("overcloud_storage_net", "overcloud_storage"),
    "storage_mgmt": ("overcloud_storage_mgmt_net", "overcloud_storage_mgmt"),
    "tenant": ("overcloud_tenant_net", "overcloud_tenant"),
}
"""OVB's word for a network -> the parameter that names it, and its default."""
_OVERCLOUD = ("internal", "storage", "storage_mgmt", "tenant")
_EXTRA = ("private", "provision", "public")
PORTS = {
    "baremetal-ports-default": ("provision",),
    "baremetal-ports-all": ("provision", "public", *_OVERCLOUD),
    "baremetal-ports-public-bond": ("provision", "public", "public", *_OVERCLOUD),
    "baremetal-ports-extra-node": _EXTRA,
    "baremetal-ports-extra-node-all": _EXTRA,
    "baremetal-ports-extra-node-fip": _EXTRA,
}
"""Template of a node's ports -> its NICs in order."""
MADE = frozenset({"baremetal-networks-all", OVERCLOUD})
"""Templates that make the networks of the overcloud; without them they exist."""
USUAL = {
    "OS::OVB::ServerPair": ("virtual-baremetal-servers", "virtual-baremetal-servers-volume"),
    "OS::OVB::BaremetalEnvironment": ("virtual-baremetal",),
    "OS::OVB::UndercloudEnvironment": ("undercloud", "undercloud-volume"),
    "OS::OVB::UndercloudFloating": ("undercloud-floating-none",),
    "OS::OVB::PrivateNetwork": ("private-net-existing",),
    "OS::OVB::BaremetalNetworks": ("baremetal-networks-none", "baremetal-networks-all", OVERCLOUD),
    "OS::OVB::BaremetalPorts": tuple(PORTS),
    "OS::OVB::BMC": ("bmc", "bmc-none"),
    "OS::OVB::BMCPort": ("bmc-port",),
    "OS::OVB::UndercloudPorts": ("undercloud-ports",),
    "OS::OVB::UndercloudNetworks": (
        "undercloud-networks", "undercloud-networks-existing", PUBLIC, ROUTED,
    ),
    "OS::OVB::ProvisionNetRouter": ("OS::Neutron::Router",),
    "OS::OVB::ProvisionNetRouterInterface": ("OS::Neutron::RouterInterface",),
}  # fmt: skip
"""Resource -> templates by which nothing is lost."""
NONE = "OS::Heat::None"
_USED = frozenset({
    "baremetal_flavor", "baremetal_image", "baremetal_prefix", "baremetal_volume_size", "networks",
    "node_count", "role", *(parameter for parameter, _ in NETWORKS.values()),
})  # fmt: skip
_UNDERCLOUD = "no undercloud is made: add a node of `kind: vm` with an image on the same networks"
INSTEAD = (
    (r"undercloud_.*", _UNDERCLOUD),
    (r"bmc_.*", "the daemon answers for all nodes; inside the cloud by `relay: {bmcs: true}`"),
    (r"key_name", "nodes have no key pair: what deploys them puts keys on them"),
    (
        r"external_net",
        "no floating IPs are made: give NICs that are to have one `floating_ip: NETWORK`",
    ),
    (r"os_.*|cloud_data", "the cloud is one of clouds.yaml, which has the credentials"),
    (
        r"dhcp_.*|dhcrelay_.*",
        "no DHCP relay is made: what answers DHCP needs a NIC on each of these networks",
    ),
    (r"radvd_.*", "no router advertisements are sent: a node of `kind: vm` may run radvd"),
    (r".*_router_address", "a router has the first address of its network"),
    (
        r".*_router(_name)?|provision_net[23]|.*_net2",
        "no node is on a network that this router joins, or that has this name",
    ),
    (
        r".*_(cidr|ip_version|allocation_pools|gateway)|dns_nameservers",
        "networks have no addresses of Neutron's: those of nodes come from what deploys them",
    ),
    (r".*_shared", "networks are the project's own"),
)
"""Parameters -> what to do in place of them."""
REPLACE_ME = "192.0.2.1"
"""An address for documentation (RFC 5737)."""
SIZES: Mapping[str, object] = {"cpus": 2, "memory": "8GiB", "disks": ["50GiB"]}
"""Of the flavor that OVB's documentation creates (host-cloud/prepare.rst)."""
INHERITED = frozenset({
    "baremetal_image", "private_net", "public_net", "provision_net", "overcloud_internal_net",
    "overcloud_storage_net", "overcloud_storage_mgmt_net", "overcloud_tenant_net",
})  # fmt: skip
"""Parameters of the environment that a role has, too (deploy.py:_process_role)."""
NEVER_OWN = frozenset({"private_net", "public_net"})
"""Those of them that a role cannot change."""
OF_ROLES = frozenset({
    "OS::OVB::BaremetalPorts", "OS::OVB::BMCPort", "OS::OVB::UndercloudNetworks", "OS::OVB::BMC",
})  # fmt: skip
"""What of `resource_registry` a role may say; it has the rest of the environment's."""


def read(source: Source) -> Imported:
    """A host for the cloud, networks, and a group of nodes for the environment and each role."""
    base = _merged([_environment(source), *map(_environment, source.more)])
    roles = [_of_role(base, _environment(each), each.file) for each in source.roles]
    return _Reader(source, base, roles).imported()


@dataclass(frozen=True, slots=True)
class _Environment:
    """Parameters, and template by resource; `said`: the parameters that its own files give."""

    parameters: Mapping[str, object]
    registry: Mapping[str, str]
    said: frozenset[str]

    def get(self, name: str, default: object) -> object:
        value = self.parameters.get(name)
        return default if value is None else value

    def template(self, resource: str) -> str:
        return self.registry.get(resource, USUAL[resource][0])

    @property
    def role(self) -> str:
        return str(self.get("role", ""))

    @property
    def nics(self) -> tuple[str, ...]:
        return PORTS.get(self.template("OS::OVB::BaremetalPorts"), PORTS["baremetal-ports-default"])

    def network(self, word: str) -> str:
        """Name of a network in Neutron."""
        parameter, default = NETWORKS[word]
        return str(self.get(parameter, default))


def _environment(source: Source) -> _Environment:
    given = source.mapping()
    sections: list[Mapping[str, object]] = []
    # `parameters` are for the template itself, and come before the defaults of all templates
    for section in ("parameter_defaults", "parameters", "resource_registry"):
        value = given.get(section) or {}
        if not isinstance(value, dict):
            raise UsageError(f"{source.file}: {section}: expected a mapping, got {value!r}")
        sections.append(value)
    if not any(sections):
        raise UsageError(
            f"{source.file}: expected `parameter_defaults` or `resource_registry`, got neither",
            hint="Name the environment file with which OVB was deployed.",
        )
    defaults, parameters, registry = sections
    values = {**defaults, **parameters}
    known = {name: value for name, value in values.items() if value not in (None, "<None>")}
    templates = {str(name): _template(value) for name, value in registry.items()}
    return _Environment(known, templates, frozenset(known))


def _template(value: object) -> str:
    """`../templates/bmc.yaml` -> `bmc`. Those for port security became OVB's default."""
    text = str(value)
    if "::" in text:
        return text
    return PurePosixPath(text).name.removesuffix(".yaml").replace("-port-security", "")


def _merged(environments: Sequence[_Environment]) -> _Environment:
    """As Heat does it: what later ones say holds."""
    parameters: dict[str, object] = {}
    registry: dict[str, str] = {}
    for each in environments:
        parameters |= each.parameters
        registry |= each.registry
    return _Environment(parameters, registry, frozenset(parameters))


def _of_role(base: _Environment, role: _Environment, file: str) -> _Environment:
    """A role's environment with what it inherits (deploy.py:_process_role)."""
    if not role.role:
        raise UsageError(f"{file}: expected a role under `parameter_defaults`, got none")
    inherited = {
        name: value
        for name, value in base.parameters.items()
        if name in INHERITED and (name in NEVER_OWN or name not in role.parameters)
    }
    # what OVB wrote itself, env-STACK-ROLE.yaml, has the role in its prefix
    prefix = str(base.get("baremetal_prefix", "baremetal")).removesuffix(f"-{role.role}")
    own = {name: each for name, each in role.registry.items() if name in OF_ROLES}
    return replace(
        role,
        parameters={
            **role.parameters, **inherited, "baremetal_prefix": f"{prefix}-{role.role}",
        },
        registry={**base.registry, **own},
    )  # fmt: skip


class _Reader:
    def __init__(self, source: Source, base: _Environment, roles: Sequence[_Environment]) -> None:
        self.source, self.base = source, base
        self.environments = [base, *roles]
        self.left_out: dict[str, None] = {}
        self.existing = self._existing()
        self.leaves = self._leaves()

    def imported(self) -> Imported:
        names = dict.fromkeys(
            each.network(word) for each in self.environments for word in _words(each)
        )
        self.source.apart(names, "networks")
        flavors = dict.fromkeys(
            str(each.get("baremetal_flavor", "baremetal")) for each in self.environments
        )
        self.source.apart(flavors, "flavors")
        nodes = [group for each in self.environments for group in self._group(each)]
        if not nodes:
            raise UsageError(f"{self.source.file}: node_count: expected at least 1, got 0")
        sections = {
            "cluster": self.source.cluster,
            "hosts": {"cloud": self._host(list(flavors))},
            "networks": self._networks(),
            "flavors": {name_of(flavor): self._flavor(flavor) for flavor in flavors},
            "nodes": nodes,
        }
        self._list_the_rest()
        files = [each.file for each in (self.source, *self.source.more, *self.source.roles)]
        heading = [
            f"Made from {', '.join(files)} by `nospoon import --from ovb`.",
            "BMCs have addresses and passwords of their own: see `nospoon bmc list`, and",
            "`nospoon export --to instackenv` in place of build-nodes-json.",
            "Not carried over:",
            *(f"  {each}" for each in self.left_out),
        ]
        return Imported(write(sections, heading=heading), tuple(self.left_out))

    def _host(self, flavors: list[str]) -> Mapping[str, object]:
        self._left(
            f"hosts.cloud.openstack.boot_address: replace {REPLACE_ME} by the address of the "
            "daemon's machine as nodes reach it"
        )
        openstack = {
            "cloud": self.source.cloud,
            "flavors": flavors,
            "boot_address": Said(REPLACE_ME, "the daemon's machine, as nodes reach it"),
        }
        external = self.base.get("external_net", "")
        if self.leaves and external:
            openstack["external_network"] = str(external)
        physnets = {name_of(name): name for name in sorted(self.existing)}
        return {"openstack": openstack, "physnets": physnets}

    def _leaves(self) -> Mapping[str, Leaf]:
        """Networks of nodes with a router, by their names in Neutron."""
        resources = ("OS::OVB::UndercloudNetworks", "OS::OVB::BaremetalNetworks")
        templates = tuple(map(self.base.template, resources))
        has_router = self.base.template("OS::OVB::ProvisionNetRouter") != NONE
        file, get = self.source.file, self.base.get
        joined = {e.name: e for e in leaves(templates, get, file=file, provision=has_router)}
        used = {each.network(word) for each in self.environments for word in _words(each)}
        return {name: joined[name] for name in joined.keys() & used - self.existing}

    def _existing(self) -> set[str]:
        """Networks that OVB does not make either."""
        found = set()
        for each in self.environments:
            made = self.base.template("OS::OVB::BaremetalNetworks") in MADE
            own = each.template("OS::OVB::UndercloudNetworks") != "undercloud-networks-existing"
            for word in _words(each):
                is_made = made if word in _OVERCLOUD else own and word != "private"
                if not is_made:
                    found.add(each.network(word))
        return found

    def _networks(self) -> Mapping[str, object]:
        names = dict.fromkeys(
            each.network(word) for each in self.environments for word in _words(each)
        )
        return {
            name_of(name): {"physnet": name_of(name)} if name in self.existing else self._made(name)
            for name in names
        }

    def _made(self, name: str) -> Said:
        leaf = self.leaves.get(name)
        if leaf is None:
            return Said({}, "made, without DHCP; for one that exists: physnet")
        router = {"nat": True, "dhcp": False, "router": name_of(leaf.router)}
        return Said({**router, "cidr": str(leaf.range)}, "made, without DHCP; the router leads out")

    def _flavor(self, flavor: str) -> Mapping[str, object]:
        self._left(f"sizes of the flavor {flavor}: write those of `openstack flavor show {flavor}`")
        return {name: Said(value, "OVB's recommendation") for name, value in SIZES.items()}

    def _group(self, environment: _Environment) -> Iterator[object]:
        count = self.source.whole(environment.get("node_count", 2), "node_count")
        if not count:
            return
        prefix = name_of(environment.get("baremetal_prefix", "baremetal"))
        group: dict[str, object] = {
            "count": count,
            "name": f"{prefix}-{{n}}",
            "flavor": name_of(environment.get("baremetal_flavor", "baremetal")),
            "firmware": self._firmware(environment),
            "nics": [name_of(environment.network(word)) for word in _words(environment)],
        }
        if environment.template("OS::OVB::ServerPair") == "virtual-baremetal-servers-volume":
            size = environment.get("baremetal_volume_size", None) or self.base.get(
                "baremetal_volume_size", 40
            )
            group["disks"] = [f"{self.source.positive(size, 'baremetal_volume_size')}GiB"]
        if environment.template("OS::OVB::BMC") in {"bmc-none", NONE}:
            group["bmc"] = []
        if environment.role:
            group["ironic"] = {"capabilities": {"profile": environment.role}}
        why = (
            "the last NIC is added: by it nodes reach the daemon" if _is_added(environment) else ""
        )
        yield Said(group, why) if why else group

    def _firmware(self, environment: _Environment) -> str:
        """By the name of the image, whose properties say it in the cloud."""
        image = str(environment.get("baremetal_image", "ipxe-boot"))
        if not re.search(r"ipxe|empty", image):
            self._left(
                f"baremetal_image {image}: the disk is blank here: give it an `image:`, "
                "or deploy the node"
            )
        return "uefi" if "uefi" in image.lower() else "bios"

    def _list_the_rest(self) -> None:
        is_made = self.base.template("OS::OVB::UndercloudEnvironment") != NONE
        listed: dict[str, list[str]] = {}
        used = {*_USED, *(each for leaf in self.leaves.values() for each in leaf.parameters)}
        used |= {"external_net"} if self.leaves else set()
        for name in sorted(set().union(*(each.said for each in self.environments)) - used):
            values = [each.parameters.get(name) for each in self.environments]
            if not any(values) or (name.startswith("undercloud_") and not is_made):
                continue
            listed.setdefault(_instead(name), []).append(name)
        for instead, names in listed.items():
            self._left(", ".join(names) + (f": {instead}" if instead else ""))
        for environment in self.environments:
            for resource, template in sorted(environment.registry.items()):
                if template not in {NONE, *USUAL.get(resource, ())}:
                    self._left(f"{resource}: {template}" + _lost(resource))

    def _left(self, what: str) -> None:
        self.left_out[what] = None


def _words(environment: _Environment) -> Iterable[str]:
    """OVB's words for the networks of a node's NICs, and that by which it reaches the daemon."""
    return (*environment.nics, *(("private",) if _is_added(environment) else ()))


def _is_added(environment: _Environment) -> bool:
    return "private" not in environment.nics


def _instead(parameter: str) -> str:
    return next((text for known, text in INSTEAD if re.fullmatch(known, parameter)), "")


def _lost(resource: str) -> str:
    match resource:
        case "OS::OVB::BaremetalPorts":
            return ": an unknown template; nodes have one NIC, on the provisioning network"
        case "OS::OVB::PrivateNetwork":
            return ": create that network first"
        case "OS::OVB::BaremetalNetworks" | "OS::OVB::UndercloudNetworks":
            return ": an unknown template; networks are made, without routers"
        case "OS::OVB::DHCPRelay":
            return ": what answers DHCP needs a NIC on each of these networks"
        case "OS::OVB::RouterAdvertisementDaemon":
            return ": no router advertisements are sent: a node of `kind: vm` may run radvd"
        case _:
            return ": no such thing is made"
