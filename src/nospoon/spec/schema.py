"""The file's JSON Schema, for editors."""

from __future__ import annotations

from typing import Any

from nospoon.spec.models import ClusterFile

_BOUNDS = {"ge": "minimum", "le": "maximum"}
"""pydantic leaves bounds that stand behind a validator of ours under its own names."""


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a cluster file, short forms included."""
    schema: dict[str, Any] = _worded(ClusterFile.model_json_schema(mode="validation"))
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "nospoon cluster file"
    for name in _MAY_BE_EMPTY:
        whole = schema["properties"][name]
        about = whole.pop("description")
        schema["properties"][name] = {"anyOf": [whole, {"type": "null"}], "description": about}
    for name, short in _SHORT_FORMS.items():
        schema["$defs"][name] = {"anyOf": [*short, schema["$defs"][name]]}
    return schema


def _worded(value: Any) -> Any:
    """Bounds under their standard names, and mappings closed to names that do not fit."""
    if isinstance(value, list):
        return [_worded(item) for item in value]
    if not isinstance(value, dict):
        return value
    result = {_BOUNDS.get(key, key): _worded(item) for key, item in value.items()}
    if "patternProperties" in result:
        result["additionalProperties"] = False
    return result


_NULL = {"type": "null"}
_MAY_BE_EMPTY = ("hosts", "networks", "flavors", "boot", "bmc")
_SHORT_FORMS: dict[str, list[dict[str, Any]]] = {
    "HostSection": [{"enum": ["simulated", None]}],
    "NetworkSection": [_NULL],
    "FlavorSection": [_NULL],
    "DiskSection": [{"$ref": "#/$defs/DiskSection/anyOf/1/properties/size/anyOf/0"}],
    "PlacementSection": [{"$ref": "#/$defs/Strategy"}],
    "NicSection": [{"type": "string"}],
    "NodeBmcSection": [
        {"$ref": "#/$defs/BmcProtocol"},
        {"type": "array", "items": {"$ref": "#/$defs/BmcProtocol"}},
    ],
}
