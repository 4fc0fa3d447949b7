"""What `ansible-inventory --list` prints: groups by name, and variables of hosts under `_meta`."""

from __future__ import annotations

from collections.abc import Mapping

from nospoon.clusterfile.document import Value, as_sequence

Inventory = Mapping[str, object]
Variables = Mapping[str, Value]


def members(inventory: Inventory, group: str) -> list[str]:
    """Names of hosts in the group and in groups below it, each once, also where one group is below
    others by many ways, or below itself.
    """
    found: dict[str, None] = {}
    seen, left = {group}, [group]
    while left:
        here = _mapping(inventory, left.pop())
        found |= dict.fromkeys(map(str, as_sequence(here.get("hosts"))))
        below = dict.fromkeys(map(str, as_sequence(here.get("children"))))
        left += reversed([each for each in below if each not in seen])
        seen |= below.keys()
    return list(found)


def variables_of(inventory: Inventory, host: str) -> Variables:
    return _mapping(_mapping(_mapping(inventory, "_meta"), "hostvars"), host)


def _mapping(whole: Mapping[str, object], name: str) -> Variables:
    found = whole.get(name)
    return found if isinstance(found, Mapping) else {}
