"""UpdateService: what firmware a machine and its BMC have, and SimpleUpdate (DSP0268).

An image is fetched as virtual media are, and its version recorded: firmware of a virtual machine is
the host's, so that nothing but the version changes. Without `Targets` the image's name tells what
it is for.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from uuid import UUID

from starlette.responses import Response

from nospoon.bmc.faults import MEDIA
from nospoon.bmc.messages import SoftwareRequested
from nospoon.bmc.software import Component, Software, installed, staged, told
from nospoon.runtime.http import without_account
from nospoon.runtime.paced import paced
from nospoon.services.bmcs.redfish.http.answers import listed, tagged
from nospoon.services.bmcs.redfish.http.exchange import Exchange
from nospoon.services.bmcs.redfish.http.parameters import Action, Given, Parameter
from nospoon.services.bmcs.redfish.http.routes import Resource
from nospoon.services.bmcs.redfish.messages import errors, uris
from nospoon.services.bmcs.redfish.messages.bodies import OK, ref, resource
from nospoon.services.bmcs.redfish.messages.metadata import odata_type
from nospoon.services.bmcs.redfish.messages.uris import ROOT
from nospoon.services.bmcs.redfish.resources import tasks
from nospoon.services.bmcs.redfish.resources.changes import done
from nospoon.services.bmcs.redfish.resources.media import on_demand

if TYPE_CHECKING:
    from nospoon.services.bmcs.ports import Media
    from nospoon.services.bmcs.redfish.http.service import Service
    from nospoon.services.bmcs.served import Served

ABOUT = {Component.BMC: "nospoon's BMC", Component.BIOS: "the machine's firmware"}
INVENTORY = "UpdateService/FirmwareInventory"
ACTION = "UpdateService.SimpleUpdate"
PROTOCOLS = ("HTTP", "HTTPS")
IMMEDIATE, ON_RESET = "Immediate", "OnReset"
APPLY_TIME = "@Redfish.OperationApplyTime"
UPDATE = Action(
    ACTION,
    (
        Parameter("ImageURI", required=True),
        Parameter("TransferProtocol", allowed=PROTOCOLS),
        Parameter("Targets", list),
        Parameter("Username"),
        Parameter("Password", secret=True),
        Parameter(APPLY_TIME, allowed=(IMMEDIATE, ON_RESET)),
    ),
    frozenset({"ExcludeTargets", "ForceUpdate", "LocalImage", "Stage"}),
)
_ID = r"(?P<id>[0-9a-fA-F-]{36})"
_TARGETS = (
    (re.compile(rf"{ROOT}/{INVENTORY}/{_ID}-BMC"), Component.BMC),
    (re.compile(rf"{ROOT}/{INVENTORY}/{_ID}-BIOS"), Component.BIOS),
    (re.compile(rf"{ROOT}/Managers/{_ID}"), Component.BMC),
    (re.compile(rf"{ROOT}/Systems/{_ID}(/Bios)?"), Component.BIOS),
)
_VERSION = re.compile(r"(?<!\d)\d++(?:[._-]\d+)+(?:-?[A-Za-z]\w*)?")
LONGEST_VERSION = 64
"""Characters: each machine keeps up to four, in its record, too."""
_FOR_BIOS = re.compile(r"bios|uefi|ovmf", re.IGNORECASE)


def software_version(served: Served, component: Component) -> str:
    """As it is shown wherever that component is."""
    state = served.aggregate.state
    return told(state.runtime.software, component, state.inventory)


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
                    "@odata.type": odata_type("Settings", "OperationApplyTimeSupport"),
                    "SupportedValues": [IMMEDIATE, ON_RESET],
                },
            }
        },
    }
    return tagged(exchange, body)


async def _inventory(exchange: Exchange) -> Response:
    def names(system: str) -> list[str]:
        served = exchange.service.registry.status(UUID(system))
        components = _components(served) if served is not None else ()
        return [f"{system}-{component}" for component in components]

    return await listed(exchange, "SoftwareInventory", INVENTORY, names, Name="Firmware Inventory")


async def _item(exchange: Exchange) -> Response:
    name = exchange.request.path_params["member"]
    system, _, component = name.rpartition("-")
    if component not in tuple(Component):
        raise errors.not_found(exchange.path)
    served = exchange.served(system)
    if component not in _components(served):
        raise errors.not_found(exchange.path)
    return tagged(exchange, _shown(served, Component(component)))


def _components(served: Served) -> tuple[Component, ...]:
    """Those that a machine has: not each has firmware."""
    has_firmware = served.config.machine.has_firmware
    return tuple(each for each in Component if has_firmware or each is not Component.BIOS)


def _shown(served: Served, component: Component) -> dict[str, object]:
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
    given = UPDATE.read(await exchange.given())
    image = uris.with_scheme(given.text("ImageURI"), given.text("TransferProtocol"))
    if not uris.is_web(image):
        raise UPDATE.wrong_format("ImageURI", given["ImageURI"], uris.SHAPE)
    given["ImageURI"] = image
    machines, components = await _targets(exchange, given)
    job = exchange.service.jobs.start(
        machines[0].bmc.uuid,
        f"Update {', '.join(components)} with {without_account(image)}",
        _update(exchange.service, media, machines, components=components, given=given),
        shows_task=True,
    )
    return tasks.begun(job)


async def _targets(exchange: Exchange, given: Given) -> tuple[list[Served], list[Component]]:
    """What is updated: components of one machine; without `Targets`, that for which the image is of
    all machines (DSP0268, UpdateService.SimpleUpdate). The caller administers them.
    """
    targets = given.items_of("Targets")
    if not targets:
        all_, component = [], _for(given.text("ImageURI"))
        for system in await exchange.members():
            await exchange.rest()
            served = exchange.administered(system)
            if component in _components(served):
                all_.append(served)
        if not all_:
            raise UPDATE.not_in_list("Targets", targets, ("a Manager",))
        return all_, [component]
    found = [_target(each) for each in targets]
    members = frozenset(await exchange.members())
    for target, (system, _) in zip(targets, found, strict=True):
        if system not in members:
            raise errors.not_found(str(target))
    systems = {system for system, _ in found}
    if len(systems) > 1:
        raise UPDATE.not_in_list("Targets", targets, ("those of one system",))
    components = list(dict.fromkeys(component for _, component in found))
    served = exchange.administered(systems.pop())
    if not set(components) <= set(_components(served)):
        raise errors.not_found(str(targets[0]))
    return [served], components


def _for(image: str) -> Component:
    return Component.BIOS if _FOR_BIOS.search(_name(image)) else Component.BMC


def _target(target: object) -> tuple[str, Component]:
    for pattern, component in _TARGETS:
        found = pattern.fullmatch(target) if isinstance(target, str) else None
        if found is not None:
            return found["id"].lower(), component
    raise UPDATE.not_in_list("Targets", target, ("a FirmwareInventory item", "a Manager", "a Bios"))


async def _update(
    service: Service,
    media: Media,
    machines: list[Served],
    *,
    components: list[Component],
    given: Given,
) -> None:
    first, verify, image = machines[0], False, given.text("ImageURI")
    async for each in paced(machines):
        if each.strike(MEDIA, each.now()) is not None:
            raise on_demand(image)
        verify = verify or each.aggregate.runtime.settings.verify_media
    digest = await media.fetch(
        first.bmc.uuid,
        image,
        username=given.text("Username"),
        password=given.text("Password"),
        verify=verify,
    )
    version = _version(image, digest)
    put = staged if given.get(APPLY_TIME) == ON_RESET else installed
    for served in machines:
        after = served.aggregate.runtime.software
        for component in components:
            after = put(after, component, version)
        await _install(service, served, after)


async def _install(service: Service, served: Served, after: Software) -> None:
    done(await service.ask(served, lambda ticket: SoftwareRequested(after, ticket)))


def _version(image: str, digest: str) -> str:
    """That in the image's name; of a name without one the beginning of its SHA-256."""
    found = _VERSION.findall(PurePosixPath(_name(image)).stem)
    return found[-1][:LONGEST_VERSION] if found else digest[:12]


def _name(image: str) -> str:
    return PurePosixPath(urlsplit(image).path).name


RESOURCES = (
    Resource(f"{ROOT}/UpdateService", {"GET": _service}),
    Resource(f"{ROOT}/UpdateService/Actions/{ACTION}", {"POST": _simple_update}),
    Resource(f"{ROOT}/{INVENTORY}", {"GET": _inventory}),
    Resource(f"{ROOT}/{INVENTORY}/{{member}}", {"GET": _item}),
)
