"""A cluster file as it is written: values with a comment where a choice was made."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from nospoon.model.visible import visible_line

_PLAIN = re.compile(r"[A-Za-z_][\w./+-]*( [\w./+-]+)*\Z")
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
_SCALARS = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Said:
    """A value and why it is so."""

    value: object
    why: str


def write(sections: Mapping[str, object], *, heading: Sequence[str]) -> str:
    """YAML with comments; mappings and lists of them in block style, the rest on one line. What is
    imported may be another user's: none of its text ends a comment.
    """
    lines = [f"# {visible_line(line)}".rstrip() for line in heading]
    for name, value in sections.items():
        if value not in ({}, []):
            lines += _block(name, value, 0)
    return "\n".join(lines) + "\n"


def _block(name: str, value: object, depth: int) -> Iterator[str]:
    indent = "  " * depth
    why = f"  # {visible_line(value.why)}" if isinstance(value, Said) else ""
    inner = value.value if isinstance(value, Said) else value
    if isinstance(inner, Mapping) and (depth == 0 or _said(inner)):
        yield f"{indent}{name}:{why}"
        for key, item in inner.items():
            yield from _block(_flow(key), item, depth + 1)
    elif isinstance(inner, list) and depth == 0:
        yield f"{indent}{name}:{why}"
        for item in inner:
            said = visible_line(item.why) if isinstance(item, Said) else ""
            plain = item.value if isinstance(item, Said) else item
            yield f"{indent}  - {_flow(plain)}" + (f"  # {said}" if said else "")
    else:
        yield f"{indent}{name}: {_flow(inner)}{why}"


def _said(value: object) -> bool:
    if isinstance(value, Mapping):
        return any(isinstance(item, Said) or _said(item) for item in value.values())
    return False


def _flow(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_flow(k)}: {_flow(item)}" for k, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_flow(item) for item in value) + "]"
    if isinstance(value, str):
        plain = _PLAIN.match(value) and value.lower() not in _WORDS
        return value if plain else json.dumps(value)
    return json.dumps(value)


def name_of(text: object) -> str:
    """A name that a cluster file takes, as near as can be (RFC 1123 §2.1)."""
    kept = re.sub(r"[^a-z0-9]+", "-", str(text).lower()).strip("-")
    return kept[:63] or "x"
