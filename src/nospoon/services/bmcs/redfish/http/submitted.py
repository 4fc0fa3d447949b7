"""SubmitTestEvent: an event that a client makes up (EventService v1.12).

What the client leaves out is not in the event either; to find out who wants it, it counts as the
registry's test message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime

import msgspec

from nospoon.bmc import events
from nospoon.bmc.events import EventType, Happening, Message
from nospoon.bmc.log import Severity
from nospoon.runtime import clock
from nospoon.services.bmcs.redfish.http.parameters import Action, Given, Parameter
from nospoon.services.bmcs.redfish.messages import errors

LARGEST = 4096
"""Bytes of JSON of an event that a client makes up: each subscription may keep many of them."""
_HEALTHS = tuple(str(each) for each in Severity)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_A_TIME = "a date and time with its offset (RFC 3339), as 2026-01-31T12:00:00Z"
SUBMIT = Action(
    "EventService.SubmitTestEvent",
    (
        Parameter(
            "MessageId",
            required=True,
            like=re.compile(r"\w+\.\d+\.\d+\.\w+", re.ASCII),
            shape="a registry, its version and a key, as ResourceEvent.1.3.TestMessage",
        ),
        # it begins a server-sent event, whose lines end so (WHATWG HTML §9.2.5)
        Parameter("EventId", like=re.compile(r"[^\x00-\x1f\x7f]+"), shape="one line of text"),
        Parameter("EventTimestamp", like=_TIME, shape=_A_TIME),
        Parameter("EventType", allowed=tuple(str(each) for each in EventType)),
        Parameter("Severity", allowed=_HEALTHS),
        Parameter("MessageSeverity", allowed=_HEALTHS),
        Parameter("Message"),
        Parameter("MessageArgs", list),
        # filters look at all that it is below
        Parameter(
            "OriginOfCondition",
            like=re.compile(r"[^/]*(?:/[^/]*){0,15}"),
            shape="a path of at most 15 names",
        ),
        Parameter("EventGroupId", int),
    ),
)


def event(body: Mapping[str, object]) -> tuple[Happening, dict[str, object]]:
    """What happened, for filters, and its record as it is told. Raises `RedfishError`."""
    _check_size(body)
    given = SUBMIT.read(body)
    args = _checked_args(given)
    severity = given.text("Severity", events.TEST.severity)
    message = Message(
        given.text("MessageId"),
        given.text("Message"),
        EventType(given.text("EventType", events.TEST.type)),
        Severity(given.text("MessageSeverity", severity)),
    )
    origin = given.text("OriginOfCondition")
    what = Happening(message, origin, "EventService", clock.unix(), args, id=given.text("EventId"))
    shown = {**given, "OriginOfCondition": {"@odata.id": origin}} if origin else given
    if "Message" in given:
        shown = {**shown, "Message": message.told(what.args)}
        _check_size(shown)  # the text may name a long argument a thousand times
    return what, shown


def _check_size(event: Mapping[str, object]) -> None:
    if len(msgspec.json.encode(event)) > LARGEST:
        raise errors.too_large()


def _checked_args(given: Given) -> tuple[str, ...]:
    """Those of its message, once its time is one, too."""
    found = given.items_of("MessageArgs")
    args = tuple(each for each in found if isinstance(each, str))
    if len(args) < len(found):
        raise SUBMIT.wrong_type("MessageArgs", found)
    time = given.text("EventTimestamp")
    try:
        datetime.fromisoformat(time or "2026-01-01")
    except ValueError:
        raise SUBMIT.wrong_format("EventTimestamp", time, _A_TIME) from None
    return args
