"""Which machines a plan was refused for, so that the others get their BMCs all the same."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from nospoon.errors import PlanRefused

_PLACE = re.compile(r"[^\n]*?:\d+:\d+: (?=nodes: adopt )")
"""In a file that the command has made."""


_NODE = re.compile(r"node ([a-z0-9-]+)(?: on host [^:]*)?: ")


def refused(
    error: PlanRefused, machines: Iterable[str], *, nodes: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Machine -> why it has no BMC. Raises the error where it is about something else. `nodes`:
    name of a node -> its machine, where a node's own trouble, such as its port, is that machine's.
    """
    found: dict[str, str] = {}
    for placed in error.reasons:
        reason = _PLACE.sub("", placed, count=1)
        name = next((each for each in machines if reason.startswith(f"nodes: adopt {each}: ")), "")
        if not name and (node := _NODE.match(reason)):
            name = (nodes or {}).get(node[1], "")
        if not name:
            raise error
        found[name] = reason.removeprefix("nodes: ")
    return found
