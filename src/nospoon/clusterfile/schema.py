"""The file's JSON Schema, for editors."""

from __future__ import annotations

from typing import Any

from nospoon.clusterfile.kinds import schema_of
from nospoon.clusterfile.models import ClusterFile
from nospoon.model.names import NAME_PATTERN
from nospoon.model.node_kind import NodeKind

BEYOND: dict[str, str] = {
    r"^expected one of endpoint and cloud": "`ironic` has one of `endpoint` and `cloud`",
    r"^expected username and password with auth": "`auth: http_basic` has an account",
    r"^expected a URL": "what a URL is beyond its scheme (RFC 3986)",
    r"^expected a libvirt URI": "host, user and port of a libvirt URI",
    r"^expected an ssh destination": "what ssh(1) connects to",
    r"^expected a volume of a libvirt storage pool": "names of pools and volumes",
    r"^expected an? (IPv4|IPv6|IPv4 or IPv6) (network|address)": "what an address is",
    r"^expected at most one IPv4 and one IPv6 network": "one network of a kind",
    r"^expected ports from 1 to 65535": "the order of a range of ports, and its bounds",
    r"^expected a (whole, positive number of bytes|size of less)": "the bytes of a size",
    r"^expected whole mebibytes": "memory in whole mebibytes",
    r"^expected a (password|secret|user name) of \d+ to": "lengths in bytes of UTF-8",
    r"^expected a password, got the name of a variable": "variables that nothing filled in",
    r"^expected a kernel command line": "words and control characters of a command line",
    r"^expected a whole number, got \d+\.0": "1.0, which JSON Schema takes for a whole number",
    r"^Ironic shows no secrets": "keys of secrets in `driver_info`",
    r"^the key 'nospoon'": "the key in `extra` that is nospoon's",
    r"^expected a boot_index of its own": "one `boot_index` for each target",
    r"^expected each once": "lists without duplicates",
    r"^expected a size, an image or both": "what a disk is made of",
    r"^(an existing volume|only an image by URL|only an existing volume) has": "what suits a disk",
    r"^a virtio disk cannot": "`rotational` and the bus of a disk",
    r"^expected at most \d+ bytes": "lengths in bytes of UTF-8",
    r"is not a command or step of a deploy agent|takes no time": "names of an agent's commands",
    r"^expected a machine, or a pattern": "which machines of others are meant",
    r"^an adopted machine is as its owner": "what is not said of machines of others",
    r"^nodes of a pattern (are called|have)": "names and ports of the nodes of a pattern",
    r"^expected kernel and initrd, or a script": "what a distribution of a lab boots",
    r"^expected printable characters": "control characters",
    r"^unknown attribute": "attributes of registered machines",
    r"^expected no file": "files in the settings of a cloud",
    r"^expected user data as text": "`{file: PATH}`, which the client reads",
    r"^expected (dhcp, or an address|the address of a host)": "what an address of a NIC is",
}
"""Rules that no schema expresses: pattern of the loader's message -> what it is about. Names that
one section uses and another defines, and what nodes have together (`clusterfile/check.py`), are
others.
"""

_BOUNDS = {"ge": "minimum", "le": "maximum"}
"""pydantic leaves bounds that stand behind a validator of ours under its own names."""


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a cluster file, short forms included."""
    schema = _worded(ClusterFile.model_json_schema(mode="validation"))
    assert isinstance(schema, dict), "a schema is an object"
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "nospoon cluster file"
    for name in _MAY_BE_EMPTY:
        whole = schema["properties"][name]
        about = whole.pop("description")
        schema["properties"][name] = {"anyOf": [whole, {"type": "null"}], "description": about}
    schema["anyOf"] = [{"required": [each]} for each in ("nodes", "services")]
    for name in ("FlavorSection", "NodeGroupSection", "ServiceSection"):
        schema["$defs"][name]["allOf"] = [schema_of(kind) for kind in NodeKind]
    for name, short in _SHORT_FORMS.items():
        schema["$defs"][name] = {"anyOf": [*short, schema["$defs"][name]]}
    return schema


def _worded(value: object) -> object:
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
_MAY_BE_EMPTY = ("hosts", "networks", "flavors", "boot", "bmc", "labs", "services")
_SHORT_FORMS: dict[str, list[dict[str, Any]]] = {
    "HostSection": [{"enum": ["simulated", None]}],
    "NetworkSection": [_NULL],
    "FlavorSection": [_NULL],
    "DiskSection": [{"$ref": "#/$defs/DiskSection/anyOf/1/properties/size/anyOf/0"}],
    "PlacementSection": [{"$ref": "#/$defs/Strategy"}],
    "AdoptSection": [{"type": "string", "minLength": 1, "maxLength": 255}],
    "HealthSection": [{"$ref": "#/$defs/HealthSection/anyOf/1/properties/port"}],
    "ServiceSection": [_NULL],
    "NicSection": [{"type": "string", "pattern": NAME_PATTERN}],
    "NodeBmcSection": [
        {"$ref": "#/$defs/BmcProtocol"},
        {"type": "array", "items": {"$ref": "#/$defs/BmcProtocol"}},
    ],
}
