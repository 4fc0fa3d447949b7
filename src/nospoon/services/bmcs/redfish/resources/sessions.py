"""SessionService: who logged in, and may be logged out (DSP0266 §13.3.4)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from starlette.responses import Response

from nospoon.runtime import clock
from nospoon.services.bmcs.accounts import SESSION_TIMEOUT, RedfishSession
from nospoon.services.bmcs.redfish.http.answers import ODATA, check_match, long, respond, tagged
from nospoon.services.bmcs.redfish.http.exchange import Exchange
from nospoon.services.bmcs.redfish.http.logins import account_of
from nospoon.services.bmcs.redfish.http.routes import Resource
from nospoon.services.bmcs.redfish.messages import errors
from nospoon.services.bmcs.redfish.messages.bodies import collection, ref
from nospoon.services.bmcs.redfish.messages.listings import ordered
from nospoon.services.bmcs.redfish.messages.metadata import odata_type
from nospoon.services.bmcs.redfish.messages.uris import ROOT

SESSIONS = "SessionService/Sessions"
LARGEST = 16 << 10
"""Bytes of a body that comes from who has not logged in."""


def _shown_service() -> dict[str, object]:
    """SessionService."""
    return {
        "@odata.type": odata_type("SessionService"),
        "@odata.id": f"{ROOT}/SessionService",
        "Id": "SessionService",
        "Name": "Session Service",
        "ServiceEnabled": True,
        "SessionTimeout": int(SESSION_TIMEOUT),
        "Status": {"State": "Enabled", "Health": "OK"},
        "Sessions": ref("SessionService/Sessions"),
    }


def _shown(each: RedfishSession) -> dict[str, object]:
    """Session; the token is told once, in a header."""
    return {
        "@odata.type": odata_type("Session"),
        "@odata.id": f"{ROOT}/SessionService/Sessions/{each.id}",
        "Id": each.id,
        "Name": f"Session of {each.username}",
        "UserName": each.username,
    }


async def _session_service(exchange: Exchange) -> Response:
    return tagged(exchange, _shown_service())


async def _sessions(exchange: Exchange) -> Response:
    found = list[str]()
    for some in exchange.accounts.sessions(
        exchange.account, place=exchange.place, now=clock.monotonic()
    ):
        await exchange.rest()
        found.extend(each.id for each in some)
    ids = await ordered(found, exchange.rest)
    paths = [f"{SESSIONS}/{each}" for each in ids]
    return await long(exchange, collection("Session", SESSIONS, ()), paths)


def _text(body: Mapping[str, object], name: str) -> str:
    if name not in body:
        raise errors.missing_property(name)
    value = body[name]
    if not isinstance(value, str):
        raise errors.wrong_type(name, value if name != "Password" else "…")
    return value


async def _create_session(exchange: Exchange) -> Response:
    body = await exchange.body()
    name, password = _text(body, "UserName"), _text(body, "Password")
    account = await account_of(exchange, name, password)
    made = exchange.accounts.log_in(account, name, place=exchange.place, now=clock.monotonic())
    location = f"{ROOT}/{SESSIONS}/{made.id}"
    headers = {"X-Auth-Token": made.token, "Location": location}
    return respond(_shown(made), status=201, headers=headers)


def _session_of(exchange: Exchange) -> RedfishSession:
    wanted, now = exchange.request.path_params["session"], clock.monotonic()
    found = exchange.accounts.find_session(exchange.account, wanted, place=exchange.place, now=now)
    if found is None:
        raise errors.not_found(exchange.path)
    return found


async def _session(exchange: Exchange) -> Response:
    return tagged(exchange, _shown(_session_of(exchange)))


async def _delete_session(exchange: Exchange) -> Response:
    gone = _session_of(exchange)
    check_match(exchange, partial(_shown, gone))
    exchange.accounts.log_out(gone)
    exchange.service.events.logged_out(gone.id)
    return Response(status_code=204, headers=ODATA)


RESOURCES = (
    Resource(f"{ROOT}/SessionService", {"GET": _session_service}),
    Resource(
        f"{ROOT}/{SESSIONS}",
        {"GET": _sessions, "POST": _create_session},
        frozenset({"POST"}),
        LARGEST,
        lists=True,
    ),
    Resource(f"{ROOT}/{SESSIONS}/Members", {"POST": _create_session}, frozenset({"POST"}), LARGEST),
    Resource(f"{ROOT}/{SESSIONS}/{{session}}", {"GET": _session, "DELETE": _delete_session}),
)
