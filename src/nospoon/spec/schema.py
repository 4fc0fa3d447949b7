"""The file's JSON Schema, for editors."""

from __future__ import annotations

from typing import Any

from nospoon.spec.models import ClusterFile


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a cluster file, short forms included."""
    schema = ClusterFile.model_json_schema(mode="validation")
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "nospoon cluster file"
    for name, short in _SHORT_FORMS.items():
        schema["$defs"][name] = {"anyOf": [short, schema["$defs"][name]]}
    return schema


_SIZE = {"$ref": "#/$defs/DiskSection/anyOf/1/properties/size/anyOf/0"}
_SHORT_FORMS: dict[str, dict[str, Any]] = {
    "HostSection": {"enum": ["simulated", None]},
    "DiskSection": _SIZE,
    "NicSection": {"type": "string"},
    "NodeBmcSection": {"type": "array", "items": {"$ref": "#/$defs/BmcProtocol"}},
}
