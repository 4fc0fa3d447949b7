"""UpdateService: what firmware a machine and its BMC have, and SimpleUpdate (DSP0268).

An image is fetched as virtual media are, and its version recorded: firmware of a virtual machine is
the host's, so that nothing but the version changes. Without `Targets` the image's name tells what
it is for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette.responses import Response

from nospoon.bmc.faults import MEDIA
from nospoon.bmc.messages import SoftwareRequested
from nospoon.bmc.software import Component, installed, staged
from nospoon.errors import ProviderError
from nospoon.services.bmcs.redfish import errors, tasks
from nospoon.services.bmcs.redfish.actions import done, refuse_others
from nospoon.services.bmcs.redfish.exchange import (
    OK,
    ROOT,
    Exchange,
    Resource,
    collection,
    ref,
    resource,
    tagged,
)
from nospoon.services.bmcs.redfish.resources import software_version

if TYPE_CHECKING:
    from nospoon.services.bmcs.ports import Media
    from nospoon.services.bmcs.served import Served
    from nospoon.services.bmcs.service import BmcService

ABOUT = {Component.BMC: "nospoon's BMC", Component.BIOS: "the machine's firmware"}
INVENTORY = "UpdateService/FirmwareInventory"
ACTION = "UpdateService.SimpleUpdate"
PROTOCOLS = ("HTTP", "HTTPS")
IMMEDIATE, ON_RESET = "Immediate", "OnReset"
APPLY_TIME = "@Redfish.OperationApplyTime"
_PARAMETERS: Mapping[str, type] = {
    "ImageURI": str,
    "TransferProtocol": str,
    "Targets": list,
    "Username": str,
    "Password": str,
    APPLY_TIME: str,
}
_ID = r"(?P<id>[0-9a-fA-F-]{36})"
_TARGETS = (
    (re.compile(rf"{ROOT}/{INVENTORY}/{_ID}-BMC"), Component.BMC),
    (re.compile(rf"{ROOT}/{INVENTORY}/{_ID}-BIOS"), Component.BIOS),
    (re.compile(rf"{ROOT}/Managers/{_ID}"), Component.BMC),
    (re.compile(rf"{ROOT}/Systems/{_ID}(/Bios)?"), Component.BIOS),
)
_VERSION = re.compile(r"\d+(?:[._-]\d+)+(?:-?[A-Za-z]\w*)?")
_FOR_BIOS = re.compile(r"bios|uefi|ovmf", re.IGNORECASE)


async def _service(exchange: Exchange) -> Response:
    body = {
        **resource("UpdateService", "UpdateService", "UpdateService", "Update Service"),
        "ServiceEnabled": True,
        "Status": OK,
        "FirmwareInventory": ref(INVENTORY),
        "Actions": {
            f"#{ACTION}": {
                "target": f"{ROOT}/UpdateService/Actions/{ACTION}",
                "TransferProtocol@Redfish.AllowableValues": list(PROTOCOLS),
                "@Redfish.OperationApplyTimeSupport": {
                    "@odata.type": "#Settings.v1_4_0.OperationApplyTimeSupport",
                    "SupportedValues": [IMMEDIATE, ON_RESET],
                },
            }
        },
    }
    return tagged(exchange, body)


async def _inventory(exchange: Exchange) -> Response:
    ids = (f"{system}-{component}" for system in exchange.members() for component in Component)
    made = collection("SoftwareInventory", INVENTORY, ids)
    return tagged(exchange, {**made, "Name": "Firmware Inventory"})


async def _item(exchange: Exchange) -> Response:
    name = exchange.request.path_params["member"]
    system, _, component = name.rpartition("-")
    if component not in tuple(Component):
        raise errors.not_found(exchange.path)
    return tagged(exchange, _shown(exchange.served(system), Component(component)))


def _shown(served: Served, component: Component) -> dict[str, Any]:
    """SoftwareInventory: one component of one machine."""
    name, uuid = f"{served.bmc.uuid}-{component}", served.bmc.uuid
    about = ref(f"Managers/{uuid}" if component is Component.BMC else f"Systems/{uuid}/Bios")
    return {
        **resource("SoftwareInventory", f"{INVENTORY}/{name}", name, str(component)),
        "Description": ABOUT[component],
        "Updateable": True,
        "Version": software_version(served, component),
        "RelatedItem": [about],
        "RelatedItem@odata.count": 1,
        "Status": OK,
    }


async def _simple_update(exchange: Exchange) -> Response:
    """SimpleUpdate: fetched by the daemon, always as a Task."""
    media = exchange.service.media
    if media is None:
        raise errors.no_action(ACTION)
    body = await exchange.body()
    _check(body)
    served, components = _targets(exchange, body)
    job = exchange.service.jobs.start(
        served.bmc.uuid,
        f"Update {', '.join(components)} with {body['ImageURI']}",
        _update(exchange.service, media, served, components=components, body=body),
        shows_task=True,
    )
    return tasks.begun(job)


def _check(body: dict[str, Any]) -> None:
    refuse_others(body, tuple(_PARAMETERS))
    if "ImageURI" not in body:
        raise errors.missing_parameter(ACTION, "ImageURI")
    for name, kind in _PARAMETERS.items():
        if body.get(name) is not None and not isinstance(body[name], kind):
            raise errors.wrong_type(name, "…" if name == "Password" else body[name])
    if not str(body["ImageURI"]).startswith(("http://", "https://")):
        raise errors.not_in_list("ImageURI", body["ImageURI"], ("http://…", "https://…"))
    _one_of(body, "TransferProtocol", PROTOCOLS)
    _one_of(body, APPLY_TIME, (IMMEDIATE, ON_RESET))


def _one_of(body: dict[str, Any], name: str, allowed: tuple[str, ...]) -> None:
    if body.get(name) is not None and body[name] not in allowed:
        raise errors.not_in_list(name, body[name], allowed)


def _targets(exchange: Exchange, body: dict[str, Any]) -> tuple[Served, list[Component]]:
    """What is updated: components of one machine, which the caller administers."""
    given = body.get("Targets") or []
    if not given:
        return exchange.administered(_only(exchange)), [_for(body["ImageURI"])]
    found = [_target(each) for each in given]
    systems = {system for system, _ in found}
    if len(systems) > 1:
        raise errors.general(400, "One update is for one system: give Targets of one.")
    components = list(dict.fromkeys(component for _, component in found))
    return exchange.administered(systems.pop()), components


def _only(exchange: Exchange) -> str:
    members = exchange.members()
    if len(members) > 1:
        raise errors.missing_parameter(ACTION, "Targets")
    return members[0]


def _for(image: str) -> Component:
    return Component.BIOS if _FOR_BIOS.search(_name(image)) else Component.BMC


def _target(target: object) -> tuple[str, Component]:
    for pattern, component in _TARGETS:
        found = pattern.fullmatch(target) if isinstance(target, str) else None
        if found is not None:
            return found["id"].lower(), component
    raise errors.not_in_list("Targets", target, ("a FirmwareInventory item", "a Manager", "a Bios"))


async def _update(
    service: BmcService,
    media: Media,
    served: Served,
    *,
    components: list[Component],
    body: dict[str, Any],
) -> None:
    if served.strike(MEDIA, served.now()) is not None:
        raise ProviderError("the image cannot be fetched (a fault on demand)")
    digest = await media.fetch(
        body["ImageURI"],
        username=body.get("Username") or "",
        password=body.get("Password") or "",
        verify=served.aggregate.runtime.settings.verify_media,
    )
    version = _version(body["ImageURI"], digest)
    put = staged if body.get(APPLY_TIME) == ON_RESET else installed
    after = served.aggregate.runtime.software
    for component in components:
        after = put(after, component, version)
    done(await service.ask(served, lambda ticket: SoftwareRequested(after, ticket)))


def _version(image: str, digest: str) -> str:
    """That in the image's name; of a name without one the beginning of its SHA-256."""
    found = _VERSION.findall(PurePosixPath(_name(image)).stem)
    return found[-1] if found else digest[:12]


def _name(image: str) -> str:
    return PurePosixPath(urlsplit(image).path).name


RESOURCES = (
    Resource(f"{ROOT}/UpdateService", {"GET": _service}),
    Resource(f"{ROOT}/UpdateService/Actions/{ACTION}", {"POST": _simple_update}),
    Resource(f"{ROOT}/{INVENTORY}", {"GET": _inventory}),
    Resource(f"{ROOT}/{INVENTORY}/{{member}}", {"GET": _item}),
)
