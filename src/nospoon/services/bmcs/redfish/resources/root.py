"""The service itself: its root, which anybody may read, and its documents."""

from __future__ import annotations

from uuid import NAMESPACE_DNS, UUID, uuid5

from starlette.responses import Response

from nospoon import __version__
from nospoon.services.bmcs.redfish.http.answers import ODATA, respond, tagged
from nospoon.services.bmcs.redfish.http.exchange import Exchange
from nospoon.services.bmcs.redfish.http.query import MAX_LEVELS
from nospoon.services.bmcs.redfish.http.routes import Resource
from nospoon.services.bmcs.redfish.messages import metadata
from nospoon.services.bmcs.redfish.messages.bodies import ref
from nospoon.services.bmcs.redfish.messages.metadata import odata_type
from nospoon.services.bmcs.redfish.messages.uris import ROOT
from nospoon.services.bmcs.redfish.resources import registries


def install_of(exchange: Exchange) -> UUID:
    """Of the service at this address and port."""
    address, port = exchange.request.scope["server"]
    return uuid5(NAMESPACE_DNS, f"nospoon.{address}:{port}")


def service_uuid(install: UUID) -> str:
    """Of the service that this is."""
    return str(uuid5(install, "redfish"))


def _service_root(install: UUID) -> dict[str, object]:
    """DSP0268, ServiceRoot: what anybody may read."""
    return {
        "@odata.type": odata_type("ServiceRoot"),
        "@odata.id": f"{ROOT}/",
        "Id": "RootService",
        "Name": "Root Service",
        "RedfishVersion": "1.18.0",
        "UUID": service_uuid(install),
        "Product": f"nospoon {__version__}",
        "Vendor": "nospoon",
        "Systems": ref("Systems"),
        "Chassis": ref("Chassis"),
        "Managers": ref("Managers"),
        "SessionService": ref("SessionService"),
        "Tasks": ref("TaskService"),
        "AccountService": ref("AccountService"),
        "UpdateService": ref("UpdateService"),
        "ProtocolFeaturesSupported": {
            "ExpandQuery": {
                "ExpandAll": True,
                "Levels": True,
                "Links": True,
                "NoLinks": True,
                "MaxLevels": MAX_LEVELS,
            },
            "SelectQuery": True,
            "FilterQuery": True,
            "OnlyMemberQuery": True,
            "ExcerptQuery": False,
        },
        "Links": {"Sessions": ref("SessionService/Sessions")},
    }


def _documents() -> dict[str, object]:
    """The OData service document (DSP0266 §8.3)."""
    names = ("Systems", "Chassis", "Managers", "SessionService", "Sessions")
    places = {name: f"{ROOT}/{name}" for name in names}
    places["Sessions"] = f"{ROOT}/SessionService/Sessions"
    value = [{"name": "Service", "kind": "Singleton", "url": f"{ROOT}/"}]
    value += [{"name": name, "kind": "Singleton", "url": url} for name, url in places.items()]
    return {"@odata.context": f"{ROOT}/$metadata", "value": value}


async def _versions(exchange: Exchange) -> Response:
    del exchange
    return respond({"v1": f"{ROOT}/"})


async def _root(exchange: Exchange) -> Response:
    """By address the root is the BMC's own; shared ones have one of their listener."""
    return tagged(exchange, {**_service_root(install_of(exchange)), **registries.LINKS})


async def _metadata(exchange: Exchange) -> Response:
    del exchange
    return Response(metadata.document(), headers=ODATA, media_type="application/xml;charset=utf-8")


async def _odata(exchange: Exchange) -> Response:
    del exchange
    return respond(_documents())


_OPEN = frozenset({"GET"})
RESOURCES = (
    Resource("/redfish", {"GET": _versions}, _OPEN),
    Resource(ROOT, {"GET": _root}, _OPEN),
    Resource(f"{ROOT}/", {"GET": _root}, _OPEN),
    Resource(f"{ROOT}/$metadata", {"GET": _metadata}, _OPEN),
    Resource(f"{ROOT}/odata", {"GET": _odata}, _OPEN),
)
