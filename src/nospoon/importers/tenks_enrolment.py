"""What Tenks tells Ironic and Nova: `ironic_config` of its specs, and `nova_flavors`.

Its words: ansible/host_vars/localhost and roles/ironic-enrolment, roles/nova-flavors of Tenks. What
it sets on each node of Ironic is `ironic` of a group of nodes here; flavors are `nova`, which needs
the name of a cloud.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

from nospoon.clusterfile.document import Value, as_sequence
from nospoon.clusterfile.ironic import INTERFACES
from nospoon.errors import UsageError
from nospoon.importers.capabilities import capabilities_of

SAME = ("resource_class", "conductor_group", "shard")
"""Called so there and here."""
_SUFFIX = "_interface"
_FILLED_IN = frozenset({"cpus", "memory_mb", "local_gb", "cpu_arch"})
"""Properties that follow from the node: Tenks sets them of itself, too."""
_FLAVOR = frozenset(
    {"resource_class", "node_type", "name", "required_traits", "forbidden_traits", "custom_specs"}
)


@dataclass(frozen=True, slots=True)
class Enrolled:
    """`ironic_config` in our words: traits and firmware are the node's, the rest is `ironic`.
    `left_out`: keys that have no place.
    """

    traits: tuple[str, ...] = ()
    firmware: str = ""
    ironic: Mapping[str, object] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


def enrolled(config: Mapping[str, Value]) -> Enrolled:
    """What a spec has its nodes enrolled with."""
    properties = config.get("properties")
    told = dict(properties) if isinstance(properties, Mapping) else {}
    capabilities = capabilities_of(told.pop("capabilities", ""))
    firmware = capabilities.pop("boot_mode", "")
    root_device = told.pop("root_device", None)
    interfaces = {
        name: config[name + _SUFFIX] for name in get_args(INTERFACES) if name + _SUFFIX in config
    }
    ironic = {
        **{name: config[name] for name in SAME if name in config},
        "interfaces": interfaces,
        "properties": {name: value for name, value in told.items() if name not in _FILLED_IN},
        "capabilities": capabilities,
        "root_device": root_device,
    }
    known = {*SAME, "traits", "properties", *(name + _SUFFIX for name in interfaces)}
    return Enrolled(
        traits=tuple(map(str, as_sequence(config.get("traits")))),
        firmware=firmware if firmware in {"bios", "uefi"} else "",
        ironic={name: value for name, value in ironic.items() if value},
        left_out=tuple(sorted(config.keys() - known)),
    )


def flavors(given: Value, file: str) -> tuple[dict[str, object], list[str]]:
    """`nova_flavors` as `nova: {flavors: …}`, and what has no place there. Raises `UsageError`."""
    made: dict[str, object] = {}
    left_out: list[str] = []
    for index, flavor in enumerate(as_sequence(given)):
        where = f"nova_flavors[{index}]"
        if not isinstance(flavor, Mapping) or not flavor.get("resource_class"):
            raise UsageError(f"{file}: {where}: expected a mapping with a resource_class")
        left_out += [f"{where}.{key}" for key in sorted(flavor.keys() - _FLAVOR)]
        traits = {
            str(trait): how
            for key, how in (("required_traits", "required"), ("forbidden_traits", "forbidden"))
            for trait in as_sequence(flavor.get(key))
        }
        given_specs = flavor.get("custom_specs")
        specs = given_specs if isinstance(given_specs, Mapping) else {}
        made[str(flavor.get("name") or flavor["resource_class"])] = {
            "resource_class": flavor["resource_class"],
            **({"traits": traits} if traits else {}),
            **({"extra_specs": {str(k): str(v) for k, v in specs.items()}} if specs else {}),
        }
    return made, left_out
