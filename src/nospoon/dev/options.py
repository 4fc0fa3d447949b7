"""Configuration of OpenStack's services as text, in the format of oslo.config."""

from __future__ import annotations

from collections.abc import Mapping

Sections = Mapping[str, Mapping[str, object]]


def rendered(sections: Sections) -> str:
    """A configuration file with these sections."""
    return "\n".join(_section(name, options) for name, options in sections.items())


def _section(name: str, options: Mapping[str, object]) -> str:
    # oslo.config substitutes $name in values
    lines = [f"{key} = {str(value).replace('$', '$$')}" for key, value in options.items()]
    return "\n".join([f"[{name}]", *lines, ""])
