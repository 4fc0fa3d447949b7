"""Tenks: its override file, and its inventory if there is one.

Variables and their defaults: docs.openstack.org/tenks/latest/configuration.html. What Tenks hands
through to the libvirt-vm role and Ironic is told as left out, never dropped in silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nospoon.errors import UsageError
from nospoon.model.cluster import Firmware
from nospoon.spec.document import as_sequence
from nospoon.spec.fields import parse_address, parse_ports
from nospoon.spec.importers.accounts import account
from nospoon.spec.importers.sizes import size_of
from nospoon.spec.importers.tenks_enrolment import enrolled, flavors
from nospoon.spec.importers.written import Imported, Said, Source, name_of, templates, write

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
_MEANINGLESS = frozenset({"cmd", "state_file_path", "virtualenv_path", "log_directory"})
"""Of Tenks's own working: nothing here corresponds to them, and nothing is lost."""
WHICH = "name the cloud with --cloud (envvars: that of OS_*)"


def read(source: Source) -> Imported:
    """The same nodes, networks, volumes, BMC settings and traits as a cluster file."""
    return _Reader(source).imported()


class _Reader:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.given = source.mapping()
        self.left_out: list[str] = []
        self._refuse_templates()

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
        sections = {
            "cluster": self.source.cluster,
            "hosts": self._hosts(),
            "networks": self._networks(),
            "flavors": dict(self._flavors()),
            "bmc": self._bmc(sum(int(spec["count"]) for spec in specs)),
            "nodes": list(self._made()) or [self._group(spec) for spec in specs],
            **self._cloud(specs),
        }
        self._tell_the_rest()
        heading = [f"Made from {self.source.file} by `nospoon import --from tenks`."]
        if self.left_out:
            heading += ["Not carried over:", *(f"  {each}" for each in self.left_out)]
        return Imported(write(sections, heading=heading), tuple(self.left_out))

    def _specs(self) -> Iterator[Mapping[str, Any]]:
        for index, spec in enumerate(as_sequence(self.given.get("specs"))):
            if not isinstance(spec, dict) or not isinstance(spec.get("count"), int):
                raise UsageError(f"{self.source.file}: specs[{index}]: expected type and count")
            if spec.get("type") not in self._types():
                raise UsageError(
                    f"{self.source.file}: specs[{index}]: no node type {spec.get('type')!r}"
                )
            self._left(f"specs[{index}]", spec.keys() - _SPEC)
            yield spec

    def _made(self) -> Iterator[Any]:
        """The nodes of a cluster that runs, each where it is: Tenks's state.yml lists them by
        hypervisor, with a copy of their type.
        """
        hosts = self._hosts()
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
                host = name_of(hypervisor)
                yield self._node(node, host if host in hosts else next(iter(hosts)))

    def _node(self, node: Mapping[str, Any], host: str) -> Any:
        made = self._settings({**node, "count": 1})
        named = {"flavor": made.pop("flavor"), "name": name_of(node.get("name", ""))}
        port = node.get("ipmi_port")
        return Said(
            {**named, "host": host, **made},
            f"Tenks has it on port {port}" if port else "as in Tenks",
        )

    def _types(self) -> Mapping[str, Any]:
        types = self.given.get("node_types")
        return types if isinstance(types, dict) else {}

    def _flavors(self) -> Iterator[tuple[str, Any]]:
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

    def _whole(self, name: str, given: Mapping[str, Any], key: str, default: int) -> int:
        return self.source.positive(given.get(key, default), f"node_types.{name}.{key}")

    def _disks(self, name: str, volumes: Any) -> Iterator[Any]:
        for index, volume in enumerate(as_sequence(volumes)):
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

    def _group(self, spec: Mapping[str, Any]) -> Any:
        return {
            "count": spec["count"],
            "name": f"{name_of(spec.get('node_name_prefix', 'tk'))}{{n}}",
            **self._settings(spec),
        }

    def _settings(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """What a spec, or a node of the state, says besides its number and name."""
        group: dict[str, Any] = {"flavor": name_of(spec["type"])}
        ironic = spec.get("ironic_config")
        if not isinstance(ironic, dict):
            return group
        told = enrolled(ironic)
        said = {"traits": list(told.traits), "firmware": told.firmware, "ironic": told.ironic}
        for key in told.left_out:
            left = f"specs of type {spec['type']}: ironic_config.{key}"
            self.left_out += [left] if left not in self.left_out else []
        return group | {name: value for name, value in said.items() if value}

    def _cloud(self, specs: list[Mapping[str, Any]]) -> dict[str, Any]:
        """The Ironic in which nodes are enrolled and the Nova that gives them out."""
        wants = any("ironic_config" in spec for spec in specs)
        made, left = flavors(self.given.get("nova_flavors"), self.source.file)
        if not self.source.cloud:
            self.left_out += [f"enrolment in Ironic: {WHICH}"] if wants else []
            self.left_out += [f"nova_flavors: {WHICH}"] if made else []
            return {}
        self.left_out += left
        self.left_out += [
            f"specs of type {spec['type']}: Tenks enrols none of them, `ironic` here enrols all"
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

    def _networks(self) -> Mapping[str, Any]:
        names = {
            str(each)
            for body in self._types().values()
            if isinstance(body, dict)
            for each in as_sequence(body.get("physical_networks"))
        }
        return {name_of(name): {"physnet": name_of(name)} for name in sorted(names)}

    def _hosts(self) -> Mapping[str, Any]:
        listed = self.source.inventory.get("libvirt", {}).get("hosts", [])
        variables = self.source.inventory.get("_meta", {}).get("hostvars", {})
        if not listed:
            return {"here": self._host({})}
        return {name_of(name): self._host(variables.get(name, {})) for name in listed}

    def _host(self, variables: Mapping[str, Any]) -> Mapping[str, Any]:
        mapping = variables.get("physnet_mappings") or self.get("physnet_mappings")
        if not isinstance(mapping, Mapping):
            raise UsageError(
                f"{self.source.file}: physnet_mappings: expected a mapping of physical networks to "
                f"devices, got {mapping!r}"
            )
        physnets = {name_of(name): str(device) for name, device in mapping.items()}
        host: dict[str, Any] = {}
        address = variables.get("ansible_host")
        if address and variables.get("ansible_connection") != "local":
            user = variables.get("ansible_user", "root")
            host["ssh"] = f"{user}@{address}"
            host["libvirt"] = f"qemu+ssh://{user}@{address}/system"
        socket = variables.get("libvirt_custom_socket_path") or self.get(
            "libvirt_custom_socket_path"
        )
        uri = variables.get("libvirt_local_uri") or self.get("libvirt_local_uri")
        if uri or socket:
            host["libvirt"] = uri or f"qemu+unix:///system?socket={socket}/libvirt-sock"
        if physnets:
            why = "`nospoon host setup` puts interfaces into bridges"
            host["physnets"] = Said(physnets, why)
        return host

    def _bmc(self, nodes: int) -> Mapping[str, Any]:
        ends = ("ipmi_port_range_start", "ipmi_port_range_end")
        first, last = (self.source.positive(self.get(end), end) for end in ends)
        ports: Any = f"{first}-{last}"
        if last - first + 1 < nodes:
            ports = Said(f"{first}-{first + nodes - 1}", f"{ports} is too small for {nodes} nodes")
        self.source.parsed(parse_ports, ports.value if isinstance(ports, Said) else ports, ends[0])
        names = {"username": "ipmi_username", "password": "ipmi_password"}
        given = {ours: (name, self.get(name)) for ours, name in names.items()}
        address = str(self.get("ipmi_address"))
        self.source.parsed(parse_address, address, "ipmi_address")
        return {"address": address, "ports": ports, **account(given, self.left_out)}

    def _tell_the_rest(self) -> None:
        self._left("", self.given.keys() - _USED - _MEANINGLESS)

    def _left(self, where: str, keys: Iterable[str]) -> None:
        for key in sorted(keys):
            self.left_out.append(f"{where}.{key}" if where else key)
