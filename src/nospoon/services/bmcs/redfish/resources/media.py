"""Virtual media: the CD drive of a machine, under its system and its manager alike."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.responses import Response

from nospoon.bmc.faults import MEDIA
from nospoon.bmc.messages import SettingsRequested
from nospoon.errors import Obstacle, Unfetchable
from nospoon.runtime.http import without_account
from nospoon.services.bmcs.redfish.http.answers import check_match, tagged
from nospoon.services.bmcs.redfish.http.exchange import Exchange
from nospoon.services.bmcs.redfish.http.parameters import Action, Given, Parameter
from nospoon.services.bmcs.redfish.messages import errors, uris
from nospoon.services.bmcs.redfish.messages.bodies import OK, resource
from nospoon.services.bmcs.redfish.messages.uris import ROOT
from nospoon.services.bmcs.redfish.resources import tasks
from nospoon.services.bmcs.redfish.resources.changes import done, refuse_others

if TYPE_CHECKING:
    from nospoon.services.bmcs.ports import Media
    from nospoon.services.bmcs.served import Served

DRIVE = "Cd"
PROTOCOLS = ("HTTP", "HTTPS")
QUICK = 1.0
"""Seconds in which an insertion may end to be answered at once; a longer one is a Task."""
INSERT = Action(
    "VirtualMedia.InsertMedia",
    (
        Parameter("Image", required=True),
        Parameter("Inserted", bool),
        Parameter("WriteProtected", bool),
        Parameter("UserName"),
        Parameter("Password", secret=True),
        Parameter("TransferMethod", allowed=("Stream", "Upload")),
        Parameter("TransferProtocolType", allowed=PROTOCOLS),
        Parameter("MediaType"),
    ),
)
EJECT = Action("VirtualMedia.EjectMedia")


def drives(served: Served) -> list[str] | None:
    """One, of a machine that boots what is in it; None of others."""
    return [DRIVE] if served.config.machine.takes_media else None


def drive(owner: str, served: Served, member: str) -> dict[str, object] | None:
    """VirtualMedia."""
    if member not in (drives(served) or ()):
        return None
    path = f"{owner}/{served.bmc.uuid}/VirtualMedia/{DRIVE}"
    media = served.aggregate.runtime.media
    actions = f"{ROOT}/{path}/Actions/VirtualMedia"
    return {
        **resource("VirtualMedia", path, DRIVE, "Virtual CD"),
        "MediaTypes": ["CD", "DVD"],
        "Image": media or None,
        "ImageName": PurePosixPath(urlsplit(media).path).name or None,
        "Inserted": bool(media),
        "WriteProtected": True,
        "ConnectedVia": _connected(media),
        "TransferMethod": "Upload" if media else None,
        "TransferProtocolType": urlsplit(media).scheme.upper() or None if _is_url(media) else None,
        "VerifyCertificate": served.aggregate.runtime.settings.verify_media,
        "Status": OK,
        "Actions": {
            "#VirtualMedia.InsertMedia": {
                "target": f"{actions}.InsertMedia",
                "TransferProtocolType@Redfish.AllowableValues": list(PROTOCOLS),
            },
            "#VirtualMedia.EjectMedia": {"target": f"{actions}.EjectMedia"},
        },
    }


def _connected(media: str) -> str:
    if not media:
        return "NotConnected"
    return "URI" if _is_url(media) else "Applet"


def _is_url(media: str) -> bool:
    return media.startswith(("http://", "https://"))


def _served(exchange: Exchange) -> tuple[Served, Media]:
    media = exchange.service.media
    if media is None:
        raise errors.general(501, "This service has no virtual media.")
    served = exchange.served()
    if not drives(served):
        raise errors.not_found(exchange.path)
    return served, media


async def insert(exchange: Exchange) -> Response:
    """InsertMedia: fetched by the daemon, as a Task when that takes its time."""
    served, media = _served(exchange)
    given = INSERT.read(await exchange.given())
    image = _image(given)
    verify = served.aggregate.runtime.settings.verify_media
    work = (
        _fail(image)
        if served.strike(MEDIA, served.now()) is not None
        else media.insert(
            served.bmc.uuid,
            image,
            username=given.text("UserName"),
            password=given.text("Password"),
            verify=verify,
        )
    )
    job = exchange.service.jobs.start(served.bmc.uuid, f"Insert {without_account(image)}", work)
    assert job.task is not None, "it was just begun"
    await asyncio.wait({job.task}, timeout=QUICK)
    return tasks.outcome(job)


async def _fail(url: str) -> None:
    raise on_demand(url)


def on_demand(url: str) -> Unfetchable:
    """The fault on demand that nothing can be fetched."""
    message = "the image cannot be fetched (an injected fault)"
    return Unfetchable(message, url=url, why=Obstacle.UNREACHABLE)


def _image(given: Given) -> str:
    """Its URI, after what a table cannot say was checked. Raises `RedfishError`."""
    image = uris.with_scheme(given.text("Image"), given.text("TransferProtocolType"))
    if not uris.is_web(image):
        raise INSERT.wrong_format("Image", given["Image"], uris.SHAPE)
    for name in ("Inserted", "WriteProtected"):
        if given.get(name) is False:
            raise INSERT.not_in_list(name, given[name], ("true",))
    return image


async def eject(exchange: Exchange) -> Response:
    """EjectMedia; an empty drive is no error."""
    served, media = _served(exchange)
    EJECT.read(await exchange.given())
    work = media.eject(served.bmc.uuid)
    job = exchange.service.jobs.start(served.bmc.uuid, "Eject media", work)
    assert job.task is not None, "it was just begun"
    await asyncio.wait({job.task}, timeout=QUICK)
    return tasks.outcome(job)


async def patch(owner: str, exchange: Exchange) -> Response:
    """Whether certificates of media servers must hold."""
    served = exchange.served()
    before = drive(owner, served, exchange.request.path_params["member"])
    if before is None:
        raise errors.not_found(exchange.path)
    check_match(exchange, lambda: before)
    body = await exchange.body()
    refuse_others(body, ("VerifyCertificate",), lambda: before)
    if "VerifyCertificate" not in body:
        return tagged(exchange, before)
    verify = body["VerifyCertificate"]
    if not isinstance(verify, bool):
        raise errors.wrong_type("VerifyCertificate", verify)
    settings = replace(served.aggregate.runtime.settings, verify_media=verify)
    done(await exchange.service.ask(served, lambda ticket: SettingsRequested(settings, ticket)))
    after = drive(owner, served, DRIVE)
    assert after is not None, "it was there before"
    return tagged(exchange, after)
