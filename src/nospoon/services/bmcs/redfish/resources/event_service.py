"""EventService and its Subscriptions (DSP0266 §12): delivery by HTTP, and server-sent events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from uuid import uuid4

from starlette.responses import Response, StreamingResponse

from nospoon.bmc import events
from nospoon.bmc.events import (
    PREFIXES,
    EventSettings,
    EventType,
    Happening,
    Subscription,
    unversioned,
)
from nospoon.bmc.log import Severity
from nospoon.bmc.users import ADMINISTRATOR
from nospoon.runtime import clock
from nospoon.services.bmcs.accounts import OPERATOR
from nospoon.services.bmcs.redfish.events import subscribing
from nospoon.services.bmcs.redfish.events.events import MOST, Stream, Wants
from nospoon.services.bmcs.redfish.events.streaming import sent
from nospoon.services.bmcs.redfish.http import filters, query, submitted
from nospoon.services.bmcs.redfish.http.answers import ODATA, check_match, respond, tagged
from nospoon.services.bmcs.redfish.http.exchange import Exchange
from nospoon.services.bmcs.redfish.http.parameters import Action
from nospoon.services.bmcs.redfish.http.routes import Resource
from nospoon.services.bmcs.redfish.messages import errors
from nospoon.services.bmcs.redfish.messages.bodies import OK, collection, ref, resource
from nospoon.services.bmcs.redfish.messages.uris import ROOT
from nospoon.services.bmcs.redfish.resources.changes import refuse_others

SERVICE = "EventService"
SUBSCRIPTIONS = f"{SERVICE}/Subscriptions"
MOST_FILTERED = 8
"""Streams with a filter of one account at one endpoint."""
MOST_COMPARISONS = 32
"""Of a stream's filter."""
_FILTERS = ("EventFormatType", "MessageId", "OriginResource", "RegistryPrefix", "ResourceType",
            "SubordinateResources")  # fmt: skip
_FILTERABLE = frozenset({*_FILTERS, "EventType"})
"""`EventType`, too, though it is deprecated."""
TEST = Action("EventService.TestEventSubscription")
ACTIONS = (submitted.SUBMIT, TEST)
RESUME = Action(
    "EventDestination.ResumeSubscription", others=frozenset({"DeliverBufferedEventDuration"})
)
_ATTEMPTS, _INTERVAL = "DeliveryRetryAttempts", "DeliveryRetryIntervalSeconds"
_LIMITS = {_ATTEMPTS: (0, 100), _INTERVAL: (1, 3600)}


def _may(exchange: Exchange, privilege: int) -> None:
    if exchange.least_privilege() < privilege:
        raise errors.forbidden()


def _settings(exchange: Exchange) -> EventSettings:
    return exchange.service.events.at(exchange.place, exchange.account)


def _streams(exchange: Exchange) -> dict[str, Stream]:
    here = exchange.place, exchange.account
    known = exchange.service.events.streams.items()
    return {id_: each for id_, each in known if (each.place, each.account) == here}


def _service_body(settings: EventSettings) -> dict[str, object]:
    place = f"{ROOT}/{SERVICE}/Actions"
    actions = {f"#{each.name}": {"target": f"{place}/{each.name}"} for each in ACTIONS}
    return {
        **resource("EventService", SERVICE, SERVICE, "Event Service"),
        "ServiceEnabled": settings.enabled,
        _ATTEMPTS: settings.attempts,
        _INTERVAL: settings.interval,
        "EventFormatTypes": ["Event"],
        "EventTypesForSubscription": [str(each) for each in EventType],
        "RegistryPrefixes": list(PREFIXES),
        "ResourceTypes": list(subscribing.KINDS),
        "Severities": [str(each) for each in Severity],
        "SubordinateResourcesSupported": True,
        "OriginResourcesSupported": True,
        "IncludeOriginOfConditionSupported": False,
        "ServerSentEventUri": f"{ROOT}/{SERVICE}/SSE",
        "SSEFilterPropertiesSupported": dict.fromkeys(_FILTERS, True),
        "Status": OK if settings.enabled else {"State": "Disabled", "Health": "OK"},
        "Subscriptions": ref(SUBSCRIPTIONS),
        "Actions": actions,
    }


async def _service(exchange: Exchange) -> Response:
    return tagged(exchange, _service_body(_settings(exchange)))


async def _patch_service(exchange: Exchange) -> Response:
    _may(exchange, ADMINISTRATOR)
    body = await exchange.body()
    refuse_others(body, ("ServiceEnabled", *_LIMITS), lambda: _service_body(_settings(exchange)))

    def change(settings: EventSettings) -> EventSettings:
        check_match(exchange, partial(_service_body, settings))
        enabled = body.get("ServiceEnabled", settings.enabled)
        if not isinstance(enabled, bool):
            raise errors.wrong_type("ServiceEnabled", enabled)
        return replace(
            settings,
            enabled=enabled,
            attempts=_number(body, _ATTEMPTS, settings.attempts),
            interval=_number(body, _INTERVAL, settings.interval),
        )

    return tagged(exchange, _service_body(await _changed(exchange, change)))


async def _changed(
    exchange: Exchange, change: Callable[[EventSettings], EventSettings]
) -> EventSettings:
    return await exchange.service.events.change(_settings(exchange).key, change)


def _number(body: dict[str, object], name: str, default: int) -> int:
    value = body.get(name, default)
    least, most = _LIMITS[name]
    if not isinstance(value, int) or isinstance(value, bool):
        raise errors.wrong_type(name, value)
    if not least <= value <= most:
        raise errors.not_in_list(name, value, (f"a number from {least} to {most}",))
    return value


async def _subscriptions(exchange: Exchange) -> Response:
    ids = [each.id for each in _settings(exchange).subscriptions]
    return tagged(
        exchange, collection("EventDestination", SUBSCRIPTIONS, [*ids, *_streams(exchange)])
    )


async def _subscribe(exchange: Exchange) -> Response:
    _may(exchange, OPERATOR)
    made = subscribing.subscription(uuid4().hex, await exchange.body())

    def add(settings: EventSettings) -> EventSettings:
        _check_room(exchange, settings)
        return replace(settings, subscriptions=(*settings.subscriptions, made))

    await _changed(exchange, add)
    headers = {"Location": f"{ROOT}/{SUBSCRIPTIONS}/{made.id}"}
    return respond(_destination(made), status=201, headers=headers)


def _check_room(exchange: Exchange, settings: EventSettings) -> None:
    if len(settings.subscriptions) + len(_streams(exchange)) >= MOST:
        raise _limit_exceeded()


def _limit_exceeded() -> errors.RedfishError:
    return errors.RedfishError(
        503,
        "EventSubscriptionLimitExceeded",
        resolution="Remove other subscriptions and resubmit the request.",
    )


def _destination(each: Subscription) -> dict[str, object]:
    place = f"{SUBSCRIPTIONS}/{each.id}"
    target = f"{ROOT}/{place}/Actions/EventDestination.ResumeSubscription"
    return {
        **resource("EventDestination", place, each.id, f"Subscription {each.id}"),
        **subscribing.shown(each),
        "Actions": {"#EventDestination.ResumeSubscription": {"target": target}},
    }


def _stream_body(each: Stream) -> dict[str, object]:
    place = f"{SUBSCRIPTIONS}/{each.id}"
    return {
        **resource("EventDestination", place, each.id, f"Stream {each.id}"),
        "Destination": each.client,
        "Context": None,
        "Protocol": "Redfish",
        "SubscriptionType": "SSE",
        "EventFormatType": "Event",
        "Status": OK,
    }


def _one(exchange: Exchange) -> Subscription:
    wanted = exchange.request.path_params["member"]
    for each in _settings(exchange).subscriptions:
        if each.id == wanted:
            return each
    raise errors.not_found(exchange.path)


async def _subscription(exchange: Exchange) -> Response:
    stream = _streams(exchange).get(exchange.request.path_params["member"])
    body = _stream_body(stream) if stream is not None else _destination(_one(exchange))
    return tagged(exchange, body)


async def _with(exchange: Exchange, change: Callable[[Subscription], Subscription | None]) -> None:
    """Change the subscription that the path names; None: it is no more."""

    def all_of(settings: EventSettings) -> EventSettings:
        wanted = _one(exchange)
        check_match(exchange, partial(_destination, wanted))
        after = change(wanted)
        kept = (after if each.id == wanted.id else each for each in settings.subscriptions)
        return replace(settings, subscriptions=tuple(each for each in kept if each is not None))

    await _changed(exchange, all_of)


async def _patch(exchange: Exchange) -> Response:
    _may(exchange, OPERATOR)
    if exchange.request.path_params["member"] in _streams(exchange):
        raise errors.not_allowed("DELETE, GET, HEAD")
    _one(exchange)
    body = await exchange.body()
    await _with(exchange, lambda before: subscribing.changed(before, body))
    return tagged(exchange, _destination(_one(exchange)))


async def _resume(exchange: Exchange) -> Response:
    """ResumeSubscription: what happens from now on is delivered again."""
    _may(exchange, OPERATOR)
    RESUME.read(await exchange.given())
    await _with(exchange, lambda before: replace(before, suspended=False))
    return Response(status_code=204, headers=ODATA)


async def _unsubscribe(exchange: Exchange) -> Response:
    _may(exchange, OPERATOR)
    stream = _streams(exchange).get(exchange.request.path_params["member"])
    if stream is not None:
        stream.end()
        return Response(status_code=204, headers=ODATA)
    await _with(exchange, lambda _: None)
    return Response(status_code=204, headers=ODATA)


async def _submit(exchange: Exchange) -> Response:
    """SubmitTestEvent: whatever the client says happened, and no more than it says (DSP0268)."""
    _may(exchange, OPERATOR)
    what, told = submitted.event(await exchange.given())
    exchange.service.events.tell(what, exchange.place, exchange.account, told)
    return Response(status_code=204, headers=ODATA)


async def _test(exchange: Exchange) -> Response:
    """TestEventSubscription: the registry's test message."""
    _may(exchange, OPERATOR)
    TEST.read(await exchange.given())
    what = Happening(events.TEST, f"{ROOT}/{SERVICE}", SERVICE, clock.unix())
    exchange.service.events.tell(what, exchange.place, exchange.account)
    return Response(status_code=204, headers=ODATA)


async def _sse(exchange: Exchange) -> Response:
    """Server-sent events, until either side ends it."""
    headers = {**ODATA, "X-Accel-Buffering": "no"}
    kind = "text/event-stream;charset=utf-8"
    _check_enabled(exchange)
    if exchange.request.method == "HEAD":
        return Response(headers=headers, media_type=kind)
    text = exchange.request.query_params.get("$filter")
    wants = _wanting(query.filter_of(text, _FILTERABLE)) if text is not None else _everything
    _check_room(exchange, _settings(exchange))
    filtered = sum(each.wants is not _everything for each in _streams(exchange).values())
    if text is not None and filtered >= MOST_FILTERED:
        raise _limit_exceeded()
    client = exchange.request.client
    stream = Stream(
        exchange.place,
        exchange.account,
        wants,
        client=_destination_of(client.host, client.port) if client is not None else "",
        session=exchange.session,
    )
    content = sent(stream, exchange.service.events.streams, exchange.service.slices)
    return StreamingResponse(content, headers=headers, media_type=kind)


def _check_enabled(exchange: Exchange) -> None:
    """No connection is established while the service is disabled (EventService v1.12)."""
    if not _settings(exchange).enabled:
        place = f"{ROOT}/{SERVICE}"
        raise errors.RedfishError(
            503,
            "ServiceDisabled",
            place,
            resolution="Enable the service and resubmit the request.",
        )


def _destination_of(host: str, port: int) -> str:
    """The client of a stream (EventDestination v1.16, `Destination`); RFC 3986 §3.2.2."""
    return f"redfish-sse://{f'[{host}]' if ':' in host else host}:{port}"


def _everything(what: Happening) -> bool:
    del what
    return True


def _wanting(expression: filters.Expression) -> Wants:
    """What a filter of a stream accepts; `SubordinateResources` widens `OriginResource`.

    All streams of all accounts are asked in one turn of the loop. Raises `RedfishError`.
    """
    number = filters.comparisons(expression)
    if number > MOST_COMPARISONS:
        raise errors.general(
            400, f"Expected a $filter of at most {MOST_COMPARISONS} comparisons, got {number}."
        )
    fits = filters.compiled(expression)

    def wants(what: Happening) -> bool:
        places = ((what.origin, False), *((each, True) for each in what.origins))
        return any(fits(_facts(what, *each)) for each in places)

    return wants


def _facts(what: Happening, origin: str, below: bool) -> dict[str, object]:  # noqa: FBT001
    """An event as a body; its identifier with the version as it is sent, and without."""
    id_ = what.message.id
    return {
        "EventFormatType": "Event",
        "EventType": str(what.message.type),
        "MessageId": [id_, ".".join(unversioned(id_))],
        "OriginResource": origin,
        "RegistryPrefix": what.message.prefix,
        "ResourceType": what.kind,
        "SubordinateResources": below,
    }


_PLACE = f"{ROOT}/{SUBSCRIPTIONS}"
_ACTIONS = f"{_PLACE}/{{member}}/Actions"
RESOURCES = (
    Resource(f"{ROOT}/{SERVICE}", {"GET": _service, "PATCH": _patch_service}),
    Resource(f"{ROOT}/{SERVICE}/Actions/{submitted.SUBMIT.name}", {"POST": _submit}),
    Resource(f"{ROOT}/{SERVICE}/Actions/{TEST.name}", {"POST": _test}),
    Resource(f"{ROOT}/{SERVICE}/SSE", {"GET": _sse}, endless=True),
    Resource(_PLACE, {"GET": _subscriptions, "POST": _subscribe}),
    Resource(f"{_PLACE}/Members", {"POST": _subscribe}),
    Resource(
        f"{_PLACE}/{{member}}", {"GET": _subscription, "PATCH": _patch, "DELETE": _unsubscribe}
    ),
    Resource(f"{_ACTIONS}/EventDestination.ResumeSubscription", {"POST": _resume}),
)
