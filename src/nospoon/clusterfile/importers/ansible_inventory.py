"""What `ansible-inventory --list` prints: groups by name, and variables of hosts under `_meta`."""

from __future__ import annotations

from collections.abc import Mapping

from nospoon.clusterfile.document import Value, as_sequence

Inventory = Mapping[str, object]
Variables = Mapping[str, Value]


def members(inventory: Inventory, group: str) -> list[str]:
    """Names of hosts in the group and in groups below it, each once."""
    found = _mapping(inventory, group)
    hosts, children = as_sequence(found.get("hosts")), as_sequence(found.get("children"))
    below = [name for child in children for name in members(inventory, str(child))]
    return list(dict.fromkeys([*map(str, hosts), *below]))


def variables_of(inventory: Inventory, host: str) -> Variables:
    return _mapping(_mapping(_mapping(inventory, "_meta"), "hostvars"), host)


def _mapping(whole: Mapping[str, object], name: str) -> Variables:
    found = whole.get(name)
    return found if isinstance(found, Mapping) else {}
