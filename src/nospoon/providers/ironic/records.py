"""What is in Ironic <-> shapes and owner tags. A tag is in `extra`, under `nospoon`.

Only settings that we made are ours: the tag names them (`ours`), and what others add beside them
(an inspection, an operator) is no drift.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from nospoon.model.ironic import (
    IronicConnector,
    IronicNode,
    IronicPort,
    IronicPortgroup,
    IronicTarget,
    Settings,
)
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.enrollment.enrol import nested, settings, values
from nospoon.providers.answers import text_of

TAG = "nospoon"
SECRETS = (
    "ipmi_password", "ipmi_hex_kg_key", "redfish_password", "snmp_community", "snmp_auth_key",
    "snmp_priv_key",
)  # fmt: skip
"""What `plan.enrollment.enrol.login` tells drivers: another one has no need of it."""
MOST_NOTED = 1000
"""Settings, traits and volumes of one node that a tag names, and traits of a node, of which Ironic
takes 50.
"""
MOST_NAMED, LONGEST_TEXT = 1 << 16, 255
"""Characters of all settings that a tag names and that are not wanted; of other texts."""
OTHER = {"": "something else"}
"""Stands for a value that is not the wanted one."""
Record = Mapping[str, Any]
Operation = Mapping[str, object]


def encoded(record: Record) -> bytes:
    """As JSON, which takes a fraction of the memory."""
    return msgspec.json.encode(record)


def decoded(text: bytes) -> Record:
    """What was encoded."""
    found: Record = msgspec.json.decode(text)
    return found


def tag_of(record: Record) -> OwnerTag | None:
    """Whose it is; None where it has no nospoon tag, or one that no one can read."""
    told = (record.get("extra") or {}).get(TAG)
    if not isinstance(told, dict):
        return None
    try:
        tag = OwnerTag(
            deployment=text_of(told["deployment"]),
            cluster=UUID(told["cluster"]),
            generation=int(told["generation"]),
            token=text_of(told["token"]),
            name=text_of(told["name"]),
            uid=told["uid"] if isinstance(told["uid"], int) else None,
        )
    except (KeyError, TypeError, ValueError):
        return None
    return tag if tag.is_plausible(text_of(noted(record, "key"))) else None


def noted(record: Record, what: str) -> Any:
    """What the tag notes besides: `key` (in the cluster), `ours`, `traits`, `state` and others."""
    return (record.get("extra") or {}).get(TAG, {}).get(what)


def noted_texts(record: Record, what: str) -> list[str] | None:
    """A list of the tag, as far as nospoon would write one; None where there is none."""
    value = noted(record, what)
    return [text_of(each) for each in value[:MOST_NOTED]] if isinstance(value, list) else None


def tag_body(tag: OwnerTag, **more: object) -> dict[str, object]:
    """A tag as `extra` has it."""
    return {
        "deployment": tag.deployment,
        "cluster": str(tag.cluster),
        "generation": tag.generation,
        "token": tag.token,
        "name": tag.name,
        "uid": tag.uid,
        **more,
    }


def found_settings(record: Record) -> Settings:
    """Those of our settings that are there, as they are."""
    paths = noted_texts(record, "ours") or ()
    return settings({path: value for path in paths if (value := _at(record, path)) is not None})


def _at(record: Record, path: str) -> object:
    field, _, key = path.partition("/")
    value = record.get(field)
    if not key:
        return value
    return value.get(key) if isinstance(value, Mapping) else None


def node_shape(record: Record) -> IronicNode:
    """Of a node with our tag."""
    return IronicNode(
        uuid=UUID(record["uuid"]),
        settings=found_settings(record),
        traits=own_traits(record),
        credentials_key=text_of(noted(record, "credentials") or ""),
    )


def own_traits(record: Record) -> tuple[str, ...]:
    """A node's traits that we gave it; of one that notes none, all of them."""
    there = [text_of(each) for each in (record.get("traits") or ())[:MOST_NOTED]]
    ours = noted_texts(record, "traits")
    return tuple(sorted(there if ours is None else set(there) & set(ours)))


def portgroup_shape(record: Record) -> IronicPortgroup:
    """Of a portgroup with our tag."""
    node = UUID(record["node_uuid"])
    return IronicPortgroup(UUID(record["uuid"]), node, found_settings(record))


def port_shape(record: Record) -> IronicPort:
    """Of a port with our tag."""
    group = record.get("portgroup_uuid")
    return IronicPort(
        UUID(record["uuid"]),
        UUID(record["node_uuid"]),
        found_settings(record),
        UUID(group) if group else None,
    )


def connector_shape(record: Record) -> IronicConnector:
    """Of a volume connector with our tag."""
    node = UUID(record["node_uuid"])
    return IronicConnector(UUID(record["uuid"]), node, found_settings(record))


def target_shape(record: Record) -> IronicTarget:
    """Of a volume target with our tag."""
    node = UUID(record["node_uuid"])
    return IronicTarget(UUID(record["uuid"]), node, found_settings(record))


def body(told: Settings, more: Mapping[str, object]) -> dict[str, object]:
    """What is posted to make it."""
    return nested({**values(told), **more})


def kept(wanted: Mapping[str, object], record: Record) -> Record:
    """What `operations` and drivers read of a record that is brought to these settings: hundreds
    are, and Ironic may give each of them a megabyte.
    """
    tag, uuid = tag_of(record), text_of(record["uuid"])[:LONGEST_TEXT]
    texts = {name: record.get(name) for name in ("driver", "address", "portgroup_uuid")}
    found: dict[str, object] = {
        name: None if value is None else text_of(value)[:LONGEST_TEXT]
        for name, value in texts.items()
    }
    left, named = MOST_NAMED, list[str]()
    for path in noted_texts(record, "ours") or ():
        size = 0 if path in wanted else len(path)
        if size <= left:
            named.append(path)
            left -= size
    secrets = (f"driver_info/{name}" for name in SECRETS)
    for path in sorted({*wanted, *named, *secrets} - {"extra", f"extra/{TAG}"}):
        field, _, key = path.partition("/")
        value = None if key and field in found else _at(record, path)
        if value is not None:
            found[path] = wanted[path] if wanted.get(path) == value else found.get(path) or OTHER
    traits = [text_of(each)[:LONGEST_TEXT] for each in (record.get("traits") or ())[:MOST_NOTED]]
    nested_ = nested({**found, "uuid": uuid, "traits": traits})
    if tag is not None:
        own = noted_texts(record, "traits")
        more = {} if own is None else {"traits": [each[:LONGEST_TEXT] for each in own]}
        noted_ = tag_body(tag, key=text_of(noted(record, "key")), ours=named, **more)
        nested_.setdefault("extra", {})[TAG] = noted_
    return nested_


def notes(tag: Mapping[str, object]) -> list[Operation]:
    """JSON Patch of a tag that is there: what others noted in it stays."""
    return [
        {"op": "add", "path": f"/extra/{TAG}/{name}", "value": value} for name, value in tag.items()
    ]


def operations(record: Record, told: Settings, more: Mapping[str, object]) -> list[Operation]:
    """JSON Patch that brings a record to these settings; ours that are wanted no more go.

    `more`: paths and values that are written also if no one can tell whether they differ.
    """
    wanted = values(told)
    mine = f"{text_of(record.get('driver'))}_"  # what others added for other drivers is theirs
    secrets = tuple(f"driver_info/{name}" for name in SECRETS if name.startswith(mine))
    ours = (*(noted_texts(record, "ours") or ()), *secrets)
    result = list(_removed(record, {**wanted, **more}, ours))
    for path, value in wanted.items():
        if _at(record, path) != value:
            result.append(_put(path, value))
    return result + [_put(path, value) for path, value in more.items()]


def _put(path: str, value: object) -> Operation:
    # "add" replaces what is there, too (RFC 6902 §4.1)
    return {"op": "add", "path": _pointer(path), "value": value}


def _removed(
    record: Record, wanted: Mapping[str, object], ours: Sequence[str]
) -> Iterator[Operation]:
    for path in ours:
        if path not in wanted and _at(record, path) is not None:
            yield {"op": "remove", "path": _pointer(path)}


def _pointer(path: str) -> str:
    """RFC 6901 §3; the first slash parts the field from its key."""
    field, _, key = path.partition("/")
    escaped = key.replace("~", "~0").replace("/", "~1")
    return f"/{field}/{escaped}" if key else f"/{field}"
