"""Capabilities of nodes, as Ironic writes them in `properties/capabilities`."""

from __future__ import annotations

from collections.abc import Mapping


def capabilities_of(given: object) -> dict[str, str]:
    """`boot_mode:uefi,name:value` as Ironic writes them, or a mapping."""
    if isinstance(given, Mapping):
        return {str(name): str(value) for name, value in given.items()}
    pairs = (each.partition(":") for each in str(given).split(",") if ":" in each)
    return {name.strip(): value.strip() for name, _, value in pairs}
