"""Tenks: its override file, and its inventory if there is one.

Variables and their defaults: docs.openstack.org/tenks/latest/configuration.html. What Tenks hands
through to the libvirt-vm role and Ironic is told as left out, never dropped in silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from nospoon.clusterfile.document import as_sequence
from nospoon.clusterfile.fields import parse_address, parse_libvirt, parse_ports, parse_ssh
from nospoon.clusterfile.written import Said, name_of, write
from nospoon.errors import UsageError
from nospoon.importers import tenks_hosts
from nospoon.importers.accounts import account
from nospoon.importers.sizes import size_of
from nospoon.importers.source import Imported, Source, templates
from nospoon.importers.tenks_enrolment import enrolled, flavors
from nospoon.model.cluster import Firmware

DEFAULTS: Mapping[str, Any] = {
    "default_ironic_driver": "ipmi",
    "default_boot_mode": "uefi",
    "ipmi_address": "0.0.0.0",  # noqa: S104  (Tenks's own default)
    "ipmi_port_range_start": 6230,
    "ipmi_port_range_end": 6240,
    "ipmi_username": "username",
    "ipmi_password": "password",
    "physnet_mappings": {},
    "libvirt_local_uri": "",
    "libvirt_custom_socket_path": "",
}
REDFISH = frozenset({"redfish"})
_TYPE = frozenset({"memory_mb", "vcpus", "volumes", "physical_networks", "ironic_driver"})
_VOLUME = frozenset({"capacity", "image", "backing_image"})
_SPEC = frozenset({"type", "count", "node_name_prefix", "ironic_config"})
_RAMDISK = {
    "deploy_kernel": ("deploy_kernel", "deploy_kernel_uuid"),
    "deploy_ramdisk": ("deploy_ramdisk", "deploy_ramdisk_uuid"),
}
"""Ours -> what Tenks calls it, and called it."""
_USED = frozenset(DEFAULTS) | {"node_types", "specs", "nova_flavors"}
_USED |= {name for names in _RAMDISK.values() for name in names}
_OF_HOSTS = frozenset(
    {
        "physnet_mappings",
        "libvirt_local_uri",
        "libvirt_custom_socket_path",
        *(name for name in DEFAULTS if name.startswith("ipmi_")),
    }
)
"""What the inventory may say of each hypervisor, and has a place here."""
_MEANINGLESS = frozenset({"cmd", "state_file_path", "virtualenv_path", "log_directory"})
"""Of Tenks's own working: nothing here corresponds to them, and nothing is lost."""
WHICH = "name the cloud with --cloud (envvars: that of OS_*)"


def read(source: Source) -> Imported:
    """The same nodes, networks, volumes, BMC settings and traits as a cluster file."""
    return _Reader(source).imported()


_MADE_AS = ("memory_mb", "vcpus", "physical_networks", "ironic_driver")
"""What a node of the state was made with; its type may say something else by now."""


class _Reader:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.given = source.mapping()
        self.left_out: list[str] = []
        self.inventory = tenks_hosts.hypervisors(source.inventory)
        self.hypervisors = tenks_hosts.without_templates(self.inventory)
        self._refuse_templates()
        self._refuse_alike()

    def _refuse_templates(self) -> None:
        """Ansible's templates say nothing here. Raises `UsageError` with each."""
        used = {name: value for name, value in self.given.items() if name in _USED}
        found = [f"{self.source.file}: {where}: {text!r}" for where, text in templates(used, "")]
        if found:
            raise UsageError(
                "\n".join(found) + "\nThese are templates, which Ansible fills in",
                hint="Write their values: `ansible localhost -e @FILE -m debug -a var=node_types` "
                "shows those of node_types.",
            )

    def get(self, name: str) -> Any:
        value = self.given.get(name)
        return DEFAULTS.get(name) if value is None else value

    def imported(self) -> Imported:
        specs = list(self._specs())
        hosts = self._hosts()
        nodes = list(self._made(hosts)) or [self._group(spec) for spec in specs]
        if not nodes:
            raise UsageError(
                f"{self.source.file}: expected nodes of a type under `specs`, got none",
                hint="A list of nodes is read by `--from instackenv`.",
            )
        sections = {
            "cluster": self.source.cluster,
            "hosts": hosts,
            "networks": self._networks(),
            "flavors": dict(self._flavors()),
            "bmc": self._bmc(sum(int(spec["count"]) for spec in specs)),
            "nodes": nodes,
            **self._cloud(specs),
        }
        self._tell_the_rest()
        heading = [f"Made from {self.source.file} by `nospoon import --from tenks`."]
        if self.left_out:
            heading += ["Not carried over:", *(f"  {each}" for each in self.left_out)]
        return Imported(write(sections, heading=heading), tuple(self.left_out))

    def _specs(self) -> Iterator[Mapping[str, Any]]:
        for index, spec in enumerate(self.source.several(self.given.get("specs"), "specs")):
            if not isinstance(spec, dict) or not isinstance(spec.get("count"), int):
                raise UsageError(f"{self.source.file}: specs[{index}]: expected type and count")
            if spec.get("type") not in self._types():
                raise UsageError(
                    f"{self.source.file}: specs[{index}]: no node type {spec.get('type')!r}"
                )
            self._left(f"specs[{index}]", spec.keys() - _SPEC)
            yield spec

    def _made(self, hosts: Mapping[str, object]) -> Iterator[object]:
        """The nodes of a cluster that runs, each where it is: Tenks's state.yml lists them by
        hypervisor, with a copy of their type.
        """
        for hypervisor, state in self.source.state_mapping().items():
            given = state if isinstance(state, dict) else {}
            for index, node in enumerate(as_sequence(given.get("nodes"))):
                if isinstance(node, dict) and node.get("state") == "absent":
                    continue
                if not isinstance(node, dict) or node.get("type") not in self._types():
                    raise UsageError(
                        f"{self.source.file}: state of {hypervisor}: nodes[{index}]: expected a "
                        "node of a type in the override file"
                    )
                yield self._node(node, self._home(hypervisor, hosts))

    def _home(self, hypervisor: str, hosts: Mapping[str, object]) -> str:
        host = name_of(hypervisor)
        if host in hosts:
            return host
        instead = str(next(iter(hosts)))
        if self.hypervisors or len(self.source.state_mapping()) > 1:
            told = (
                f"state of {hypervisor}: no such host in the inventory; its nodes go to {instead}"
            )
            self.left_out += [told] if told not in self.left_out else []
        return instead

    def _node(self, node: Mapping[str, Any], host: str) -> Any:
        made = self._settings({**node, "count": 1})
        named = {"flavor": made.pop("flavor"), "name": name_of(node.get("name", ""))}
        of_type = self._types()[node["type"]] or {}
        self.left_out += [
            f"state: {key} {node[key]!r} of node {named['name']}: its type has {of_type[key]!r}"
            for key in _MADE_AS
            if key in node and key in of_type and node[key] != of_type[key]
        ]
        port = node.get("ipmi_port")
        return Said(
            {**named, "host": host, **made},
            f"Tenks has it on port {port}" if port else "as in Tenks",
        )

    def _refuse_alike(self) -> None:
        """Names that are apart for Tenks only. Raises `UsageError`."""
        networks = set(self._physical_networks())
        for each in (self.given, *self.hypervisors.values()):
            mapping = each.get("physnet_mappings")
            networks |= {*map(str, mapping)} if isinstance(mapping, Mapping) else set()
        self.source.apart(self._types(), "node_types")
        self.source.apart(self.hypervisors, "hypervisors")
        self.source.apart(sorted(networks), "physical networks")

    def _types(self) -> Mapping[str, Any]:
        types = self.given.get("node_types")
        return types if isinstance(types, dict) else {}

    def _flavors(self) -> Iterator[tuple[str, object]]:
        for name, body in self._types().items():
            given = body if isinstance(body, dict) else {}
            self._left(f"node_types.{name}", given.keys() - _TYPE - {"console_log_enabled"})
            mode = self.source.one_of(Firmware, self.get("default_boot_mode"), "default_boot_mode")
            driver = str(given.get("ironic_driver") or self.get("default_ironic_driver"))
            protocol = "redfish" if driver in REDFISH else "ipmi"
            yield (
                name_of(name),
                {
                    "cpus": self._whole(name, given, "vcpus", 1),
                    "memory": f"{self._whole(name, given, 'memory_mb', 1024)}MiB",
                    "disks": list(self._disks(name, given.get("volumes"))),
                    "nics": [name_of(each) for each in as_sequence(given.get("physical_networks"))],
                    "firmware": Said(mode, "default_boot_mode"),
                    "boot_order": ["disk", "cdrom", "network"],
                    "bmc": Said([protocol], f"Ironic driver {driver}"),
                },
            )

    def _whole(self, name: str, given: Mapping[str, object], key: str, default: int) -> int:
        return self.source.positive(given.get(key, default), f"node_types.{name}.{key}")

    def _disks(self, name: str, volumes: object) -> Iterator[object]:
        for index, volume in enumerate(self.source.several(volumes, f"node_types.{name}.volumes")):
            given = volume if isinstance(volume, dict) else {}
            where = f"node_types.{name}.volumes[{index}]"
            self._left(where, given.keys() - _VOLUME)
            capacity = given.get("capacity")
            size = ""
            if capacity is not None:
                size = self.source.parsed(size_of, capacity, f"{where}.capacity")
            image = given.get("image") or given.get("backing_image")
            if image:
                yield {"image": image, **({"size": size} if size else {})}
            elif size:
                yield size

    def _group(self, spec: Mapping[str, object]) -> object:
        return {
            "count": spec["count"],
            "name": f"{name_of(spec.get('node_name_prefix', 'tk'))}{{n}}",
            **self._settings(spec),
        }

    def _settings(self, spec: Mapping[str, object]) -> dict[str, object]:
        """What a spec, or a node of the state, says besides its number and name."""
        group: dict[str, object] = {"flavor": name_of(spec["type"])}
        ironic = spec.get("ironic_config")
        if not isinstance(ironic, dict):
            return group
        told = enrolled(ironic)
        said = {"traits": list(told.traits), "firmware": told.firmware, "ironic": told.ironic}
        for key in told.left_out:
            left = f"specs of type {spec['type']}: ironic_config.{key}"
            self.left_out += [left] if left not in self.left_out else []
        return group | {name: value for name, value in said.items() if value}

    def _cloud(self, specs: list[Mapping[str, object]]) -> dict[str, object]:
        """The Ironic in which nodes are enrolled and the Nova that gives them out."""
        wants = any("ironic_config" in spec for spec in specs)
        made, left = flavors(self.given.get("nova_flavors"), self.source.file)
        if not self.source.cloud:
            self.left_out += [f"enrollment in Ironic: {WHICH}"] if wants else []
            self.left_out += [f"nova_flavors: {WHICH}"] if made else []
            return {}
        self.left_out += left
        self.left_out += [
            f"specs of type {spec['type']}: Tenks enrolls none of them, `ironic` here enrolls all"
            for spec in specs
            if "ironic_config" not in spec
        ]
        files = {
            ours: str(self.given[name])
            for ours, names in _RAMDISK.items()
            for name in names
            if self.given.get(name)
        }
        ironic = {"cloud": self.source.cloud, **files}
        return {"ironic": ironic, **({"nova": {"flavors": made}} if made else {})}

    def _networks(self) -> Mapping[str, object]:
        names = sorted(set(self._physical_networks()))
        return {name_of(name): {"physnet": name_of(name)} for name in names}

    def _physical_networks(self) -> Iterator[str]:
        for name, body in self._types().items():
            given = body.get("physical_networks") if isinstance(body, dict) else None
            where = f"node_types.{name}.physical_networks"
            yield from map(str, self.source.several(given, where))

    def _hosts(self) -> Mapping[str, object]:
        if self.hypervisors:
            return {
                name_of(name): self._host(name, each) for name, each in self.hypervisors.items()
            }
        if self.source.inventory:
            self.left_out.append(f"inventory: no host in its group {tenks_hosts.GROUP!r}")
        return {"here": self._host("localhost", {})}

    def _host(self, name: str, variables: Mapping[str, object]) -> Mapping[str, object]:
        mapping = variables.get("physnet_mappings") or self.get("physnet_mappings")
        if not isinstance(mapping, Mapping):
            raise UsageError(
                f"{self.source.file}: physnet_mappings: expected a mapping of physical networks to "
                f"devices, got {mapping!r}"
            )
        host: dict[str, object] = dict(self._place(name, variables))
        physnets = {name_of(network): str(device) for network, device in mapping.items()}
        if physnets:
            why = "`nospoon host setup` puts interfaces into bridges"
            host["physnets"] = Said(physnets, why)
        return host

    def _place(self, name: str, variables: Mapping[str, object]) -> Iterator[tuple[str, str]]:
        """How commands and libvirt are reached; nothing for what is usual here."""
        uri, socket = (
            str(variables.get(each) or self.get(each))
            for each in ("libvirt_local_uri", "libvirt_custom_socket_path")
        )
        ssh, authority = tenks_hosts.place(name, variables)
        self.source.parsed(parse_ssh, ssh, f"address of {name}")
        reach = partial(tenks_hosts.connection, authority)
        libvirt = self.source.parsed(reach, uri, f"libvirt_local_uri of {name}")
        if not libvirt:
            why = "names a socket of its own" if "?" in uri else "leads to it alone"
            self.left_out.append(f"inventory: libvirt_local_uri of {name}: {uri} {why}")
            libvirt = reach("")
        self.source.parsed(parse_libvirt, libvirt, f"libvirt_local_uri of {name}")
        if socket:
            left = f"libvirt_custom_socket_path of {name}: libvirt is reached at its usual socket"
            self.left_out.append(f"inventory: {left}")
        if ssh:
            yield "ssh", ssh
        if ssh or uri:
            yield "libvirt", libvirt

    def _bmc(self, nodes: int) -> Mapping[str, object]:
        ends = ("ipmi_port_range_start", "ipmi_port_range_end")
        first, last = (self.source.positive(self._of_all(end), end) for end in ends)
        ports: object = f"{first}-{last}"
        if last - first + 1 < nodes:
            ports = Said(f"{first}-{first + nodes - 1}", f"{ports} is too small for {nodes} nodes")
        self.source.parsed(parse_ports, ports.value if isinstance(ports, Said) else ports, ends[0])
        names = {"username": "ipmi_username", "password": "ipmi_password"}
        given = {ours: (name, self._of_all(name)) for ours, name in names.items()}
        address = str(self._of_all("ipmi_address"))
        self.source.parsed(parse_address, address, "ipmi_address")
        return {"address": address, "ports": ports, **account(given, self.left_out)}

    def _of_all(self, name: str) -> object:
        """What the override file says, which Ansible prefers, or else all hypervisors alike: `bmc`
        is one for all of them. BMCs answer here, so only hypervisors here tell their address.
        """
        said = {host: each.get(name) for host, each in self.hypervisors.items()}
        told = [
            DEFAULTS[name] if value is None else value
            for host, value in said.items()
            if name != "ipmi_address" or tenks_hosts.is_here(host, self.hypervisors[host])
        ]
        alike = told and all(str(each) == str(told[0]) for each in told)
        chosen = self.given.get(name)
        if chosen is None:
            chosen = told[0] if alike else DEFAULTS[name]
        same = {"None", str(DEFAULTS[name]), str(chosen)}
        differing = [host for host, value in said.items() if str(value) not in same]
        if differing:
            left = f"inventory: {name} of {', '.join(differing)}: `bmc` holds for all hosts"
            self.left_out.append(left)
        return chosen

    def _tell_the_rest(self) -> None:
        self._left("", self.given.keys() - _USED - _MEANINGLESS)
        known = frozenset(self.given.keys() & _USED) | _OF_HOSTS
        self.left_out += [f"inventory: {each}" for each in tenks_hosts.lost(self.inventory, known)]

    def _left(self, where: str, keys: Iterable[str]) -> None:
        for key in sorted(keys):
            self.left_out.append(f"{where}.{key}" if where else key)
