"""What clients say when they subscribe: a table of properties, each with what it may be."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from nospoon.bmc.events import PREFIXES, EventType, Filter, RetryPolicy, Subscription
from nospoon.bmc.log import Severity
from nospoon.services.bmcs.redfish.messages import errors, uris
from nospoon.services.bmcs.redfish.messages.metadata import VERSIONS

MOST_ENTRIES, LARGEST = 64, 8192
"""Entries of each list of a subscription, and bytes of JSON of the whole."""
KINDS = ("ComputerSystem", "LogEntry", "LogService", "ManagerAccountCollection", "Task",
         "VirtualMedia")  # fmt: skip
"""Types of resources that events are of."""
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+\Z")
_VALUE = re.compile(r"[\x20-\x7e\x80-\xff]*\Z")
_OURS = frozenset({"content-length", "transfer-encoding", "connection", "host"})
_FIXED = {"Protocol": "Redfish", "SubscriptionType": "RedfishEvent", "EventFormatType": "Event"}
"""What there is one of, and the default."""
CHANGEABLE = ("Context", "DeliveryRetryPolicy", "HttpHeaders", "VerifyCertificate")

Read = Callable[[str, object], object]


def _choices(*allowed: str) -> Read:
    def read(name: str, value: object) -> tuple[str, ...]:
        found = _texts(name, value)
        for each in found:
            if allowed and each not in allowed:
                raise errors.not_in_list(name, each, allowed)
        return found

    return read


def _texts(name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise errors.wrong_type(name, value)
    _check_few(name, value)
    return tuple(value)


def _check_few(name: str, value: Sequence[object]) -> None:
    """Every event is compared with each of them."""
    if len(value) > MOST_ENTRIES:
        raise errors.wrong_format(name, f"{len(value)} entries", f"at most {MOST_ENTRIES} entries")


def _types(name: str, value: object) -> tuple[str, ...]:
    """Types of resources; of those that never tell anything, too."""
    found = _texts(name, value)
    for each in found:
        if each not in VERSIONS and each not in KINDS:
            raise errors.not_in_list(name, each, KINDS)
    return found


def _message_ids(name: str, value: object) -> tuple[str, ...]:
    found = _texts(name, value)
    for each in found:
        if each.partition(".")[0] not in PREFIXES or "." not in each:
            raise errors.not_in_list(name, each, tuple(f"{p}.…" for p in PREFIXES))
    return found


def _origins(name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise errors.wrong_type(name, value)
    _check_few(name, value)
    found = []
    for each in value:
        match each:
            case {"@odata.id": str(path)}:
                found.append(path)
            case _:
                raise errors.wrong_type(name, each)
    return tuple(found)


def _truth(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise errors.wrong_type(name, value)
    return value


def _context(name: str, value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise errors.wrong_type(name, value)
    return value


def _policy(name: str, value: object) -> RetryPolicy:
    allowed = tuple(str(each) for each in RetryPolicy)
    if value not in allowed:
        raise errors.not_in_list(name, value, allowed)
    return RetryPolicy(value)


def _headers(name: str, value: object) -> tuple[tuple[str, str], ...]:
    """Objects of names and values; what frames a request is not theirs to say."""
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise errors.wrong_type(name, "…")
    pairs = [(key, text) for each in value for key, text in each.items()]
    for key, text in pairs:
        if not isinstance(text, str) or not _VALUE.match(text):
            raise errors.wrong_type(f"{name}/{key}", "…")
        if not _HEADER.match(key) or key.lower() in _OURS:
            raise errors.not_in_list(name, key, ("names of HTTP headers",))
    return tuple(pairs)


def _destination(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise errors.wrong_type(name, value)
    if not uris.is_web(value):
        raise errors.not_in_list(name, value, ("http://HOST…", "https://HOST…"))
    return value


_FILTER: Mapping[str, tuple[str, Read]] = {
    "RegistryPrefixes": ("prefixes", _choices(*PREFIXES)),
    "ExcludeRegistryPrefixes": ("no_prefixes", _choices(*PREFIXES)),
    "ResourceTypes": ("kinds", _types),
    "OriginResources": ("origins", _origins),
    "MessageIds": ("message_ids", _message_ids),
    "ExcludeMessageIds": ("no_message_ids", _message_ids),
    "EventTypes": ("types", _choices(*(str(each) for each in EventType), "Other")),
    "Severities": ("severities", _choices(*(str(each) for each in Severity))),
    "SubordinateResources": ("subordinate", _truth),
}
"""Property -> field of `Filter`, and how it is read."""
_REST: Mapping[str, tuple[str, Read]] = {
    "Destination": ("destination", _destination),
    "Context": ("context", _context),
    "HttpHeaders": ("headers", _headers),
    "DeliveryRetryPolicy": ("policy", _policy),
    "VerifyCertificate": ("verify", _truth),
}


def subscription(id_: str, body: Mapping[str, object]) -> Subscription:
    """Raises `RedfishError`."""
    _check_size(body)
    known = {*_FILTER, *_REST, *_FIXED}
    for name, value in body.items():
        if name in _FIXED and value != _FIXED[name]:
            raise errors.not_in_list(name, value, (_FIXED[name],))
        if name not in known and not name.startswith("@odata."):
            raise errors.unknown_property(name)
    for name in ("Destination", "Protocol"):
        if name not in body:
            raise errors.missing_property(name)
    wanted = Filter(**_read(_FILTER, body))
    return Subscription(id_, filter=wanted, **_read(_REST, body))


def changed(before: Subscription, body: Mapping[str, object]) -> Subscription:
    """After a PATCH; raises `RedfishError`."""
    _check_size(body)
    for name in body:
        if name not in CHANGEABLE and not name.startswith("@odata."):
            known = name in _FILTER or name in _REST or name in _FIXED or name in _SHOWN
            raise (errors.read_only if known else errors.unknown_property)(name)
    return replace(before, **_read(_REST, body))


def _check_size(body: Mapping[str, object]) -> None:
    if len(msgspec.json.encode(body)) > LARGEST:
        raise errors.too_large()


_SHOWN = frozenset({"Id", "Name", "Status", "Actions"})


def _read(table: Mapping[str, tuple[str, Read]], body: Mapping[str, object]) -> dict[str, Any]:
    return {
        attribute: read(name, body[name])
        for name, (attribute, read) in table.items()
        if name in body
    }


def shown(each: Subscription) -> dict[str, object]:
    """The properties of an EventDestination; headers are never told."""
    wanted = each.filter
    lists = {
        "RegistryPrefixes": wanted.prefixes,
        "ExcludeRegistryPrefixes": wanted.no_prefixes,
        "ResourceTypes": wanted.kinds,
        "MessageIds": wanted.message_ids,
        "ExcludeMessageIds": wanted.no_message_ids,
        "EventTypes": wanted.types,
        "Severities": wanted.severities,
    }
    return {
        "Destination": each.destination,
        **_FIXED,
        "Context": each.context,
        "HttpHeaders": [],
        "DeliveryRetryPolicy": str(each.policy),
        "VerifyCertificate": each.verify,
        "SubordinateResources": wanted.subordinate,
        **{name: list(values) for name, values in lists.items() if values},
        **(
            {"OriginResources": [{"@odata.id": o} for o in wanted.origins]}
            if wanted.origins
            else {}
        ),
        "Status": (
            {"State": "Disabled", "Health": "Warning"}
            if each.suspended
            else {"State": "Enabled", "Health": "OK"}
        ),
    }
