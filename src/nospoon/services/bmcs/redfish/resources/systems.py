"""Systems as clients ask for them: again and again, to see whether a machine is on. They are
changed and reset here, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from starlette.responses import Response

from nospoon.bmc.messages import PowerRequested
from nospoon.bmc.software import Component
from nospoon.model.machine import PowerCommand, PowerState
from nospoon.services.bmcs.redfish.http.answers import ODATA, check_tag, tagged, tagged_json
from nospoon.services.bmcs.redfish.http.exchange import Exchange
from nospoon.services.bmcs.redfish.http.parameters import Action, Parameter
from nospoon.services.bmcs.redfish.http.routes import Resource, of_each_system
from nospoon.services.bmcs.redfish.messages import errors
from nospoon.services.bmcs.redfish.messages.bodies import collection, ref
from nospoon.services.bmcs.redfish.messages.encoding import JSON, tag_of
from nospoon.services.bmcs.redfish.messages.metadata import odata_type
from nospoon.services.bmcs.redfish.messages.uris import ROOT
from nospoon.services.bmcs.redfish.resources.boot import boot, changed_boot
from nospoon.services.bmcs.redfish.resources.case import (
    LIGHTS,
    POLICIES,
    POLICY,
    POWER_STATES,
    asset_tag,
    changed_light,
    changed_settings,
    light,
)
from nospoon.services.bmcs.redfish.resources.changes import change, done, refuse_others
from nospoon.services.bmcs.redfish.resources.media import drives
from nospoon.services.bmcs.redfish.resources.secure_boot import has_secure_boot
from nospoon.services.bmcs.redfish.resources.update import software_version
from nospoon.services.bmcs.served import Served, Shown

if TYPE_CHECKING:
    from nospoon.services.bmcs.redfish.http.service import Service

GIB = 1 << 30
NMI = "Nmi"
RESET_TYPES: Mapping[str, PowerCommand] = {
    "On": PowerCommand.ON,
    "ForceOn": PowerCommand.ON,
    "ForceOff": PowerCommand.OFF,
    "GracefulShutdown": PowerCommand.SOFT,
    "GracefulRestart": PowerCommand.SOFT,
    "ForceRestart": PowerCommand.RESET,
    "PowerCycle": PowerCommand.CYCLE,
    NMI: PowerCommand.DIAG,
    "PushPowerButton": PowerCommand.SOFT,
}
TURN_ON = frozenset({"PushPowerButton", "GracefulRestart", "ForceRestart", "PowerCycle"})
"""These turn on a machine that is off (ADR 11)."""
RESTARTS = frozenset({"GracefulRestart"})
"""On again once the guest has shut down."""
STATES: Mapping[PowerState, str] = {
    PowerState.ON: "Enabled",
    PowerState.FAILED: "Enabled",
    PowerState.OFF: "Disabled",
    PowerState.ABSENT: "Absent",
    PowerState.UNKNOWN: "UnavailableOffline",
}
RESET = Action("ComputerSystem.Reset", (Parameter("ResetType", allowed=tuple(RESET_TYPES)),))


def system(served: Served) -> dict[str, object]:
    """ComputerSystem."""
    machine, uuid = served.config.machine, str(served.bmc.uuid)
    path = f"Systems/{uuid}"
    return {
        "@odata.type": odata_type("ComputerSystem"),
        "@odata.id": f"{ROOT}/{path}",
        "Id": uuid,
        "Name": served.config.node,
        "HostName": served.config.node,
        "SystemType": "Virtual",
        "Manufacturer": "nospoon",
        "Model": f"{machine.arch} {machine.firmware}" if machine.has_firmware else machine.arch,
        "SerialNumber": machine.serial_number,
        "UUID": str(served.smbios or uuid),
        "AssetTag": asset_tag(served),
        "PowerState": POWER_STATES[served.aggregate.power],
        "PowerRestorePolicy": POLICIES[served.aggregate.runtime.settings.policy],
        **light(served),
        "Status": _status(served),
        "Boot": boot(served, path),
        "ProcessorSummary": {
            "Count": machine.cpus,
            "CoreCount": machine.cpus,
            "LogicalProcessorCount": machine.cpus,
            "Model": f"QEMU {machine.arch}" if machine.has_firmware else machine.arch,
        },
        "MemorySummary": {"TotalSystemMemoryGiB": machine.memory / GIB},
        "EthernetInterfaces": ref(f"{path}/EthernetInterfaces"),
        "Processors": ref(f"{path}/Processors"),
        "Memory": ref(f"{path}/Memory"),
        "Storage": ref(f"{path}/Storage"),
        "LogServices": ref(f"{path}/LogServices"),
        **({"VirtualMedia": ref(f"{path}/VirtualMedia")} if drives(served) else {}),
        **(_firmware(served, path) if machine.has_firmware else {}),
        "Links": {"Chassis": [ref(f"Chassis/{uuid}")], "ManagedBy": [ref(f"Managers/{uuid}")]},
        "Actions": {
            "#ComputerSystem.Reset": {
                "target": f"{ROOT}/{path}/Actions/ComputerSystem.Reset",
                "ResetType@Redfish.AllowableValues": [
                    each for each in RESET_TYPES if machine.has_firmware or each != NMI
                ],
            }
        },
    }


def _firmware(served: Served, path: str) -> dict[str, object]:
    secure = {"SecureBoot": ref(f"{path}/SecureBoot")} if has_secure_boot(served) else {}
    return {
        "BiosVersion": software_version(served, Component.BIOS),
        "Bios": ref(f"{path}/Bios"),
        **secure,
    }


def _status(served: Served) -> dict[str, object]:
    fault = served.power_fault
    health = "Critical" if fault else "OK"
    status: dict[str, object] = {
        "State": STATES[served.aggregate.power],
        "Health": health,
        "HealthRollup": health,
    }
    if fault:
        status["Conditions"] = [_condition(fault)]
    return status


def _condition(fault: str) -> dict[str, object]:
    return {
        "MessageId": "Base.1.18.GeneralError",
        "Message": fault,
        "Severity": "Critical",
    }


def interface(served: Served, index: int) -> dict[str, object]:
    """EthernetInterface: a NIC of the system, by its place."""
    nic = served.config.machine.nics[index]
    return {
        "@odata.type": odata_type("EthernetInterface"),
        "@odata.id": f"{ROOT}/Systems/{served.bmc.uuid}/EthernetInterfaces/{index}",
        "Id": str(index),
        "Name": f"NIC {index}",
        "Description": f"{nic.model} on {nic.network or 'a user-mode network'}",
        "MACAddress": nic.mac,
        "PermanentMACAddress": nic.mac,
        "InterfaceEnabled": True,
        "LinkStatus": "LinkUp" if served.aggregate.is_on else "NoLink",
        "Status": {"State": "Enabled", "Health": "OK"},
    }


async def patch_system(service: Service, served: Served, body: Mapping[str, object]) -> None:
    """Check everything first, then change."""
    refuse_others(body, (*LIGHTS, "Boot", "AssetTag", POLICY), partial(system, served))
    await change(
        service,
        served,
        [*changed_boot(served, body), *changed_settings(served, body), *changed_light(body)],
    )


async def _restart(service: Service, served: Served, body: dict[str, object]) -> None:
    """ComputerSystem.Reset; without a ResetType it is a restart (DSP0268)."""
    kind = RESET.read(body).text("ResetType", "ForceRestart")
    asked = PowerRequested(RESET_TYPES[kind], restart=kind in RESTARTS, turns_on=kind in TURN_ON)
    done(await service.ask(served, lambda ticket: replace(asked, ticket=ticket)))


async def _get(exchange: Exchange) -> Response:
    return _answer(exchange, exchange.served())


async def _patch(exchange: Exchange) -> Response:
    """What was made for who looked before is compared, and the answer is for who looks next."""
    served = exchange.served()
    check_tag(exchange, lambda: as_json(served).tag)
    await patch_system(exchange.service, served, await exchange.body())
    return _answer(exchange, served)


def _answer(exchange: Exchange, served: Served) -> Response:
    found = as_json(served)
    return tagged_json(exchange, found.data, found.tag, odata_type("ComputerSystem"))


def as_json(served: Served) -> Shown:
    """A System, which is made again when something has changed of what it is made of."""
    now = _made_of(served)
    if served.system is None or served.system.of != now:
        data = JSON.encode(system(served))
        served.system = Shown(now, data, tag_of(data))
    return served.system


def _made_of(served: Served) -> tuple[object, ...]:
    """All that `system` reads: values that are replaced when they change, which are compared at
    once where they are the same.
    """
    aggregate = served.aggregate
    return (
        served.config, aggregate.runtime, aggregate.power, aggregate.fault, aggregate.identify,
        aggregate.boot_order, aggregate.state.inventory, served.smbios,
    )  # fmt: skip


async def _reset(exchange: Exchange) -> Response:
    served = exchange.served()
    await _restart(exchange.service, served, await exchange.body())
    return Response(status_code=204, headers=ODATA)


async def _interfaces(exchange: Exchange) -> Response:
    served = exchange.served()
    path = f"Systems/{served.bmc.uuid}/EthernetInterfaces"
    members = [str(index) for index in range(len(served.config.machine.nics))]
    return tagged(exchange, collection("EthernetInterface", path, members))


async def _interface(exchange: Exchange) -> Response:
    served, wanted = exchange.served(), exchange.request.path_params["nic"]
    for index in range(len(served.config.machine.nics)):
        if str(index) == wanted:
            return tagged(exchange, interface(served, index))
    raise errors.not_found(exchange.path)


RESOURCES = (
    # what clients ask for most comes first
    Resource(f"{ROOT}/Systems/{{id}}", {"GET": _get, "PATCH": _patch}),
    Resource(f"{ROOT}/Systems", {"GET": of_each_system("ComputerSystem", "Systems")}),
    Resource(f"{ROOT}/Systems/{{id}}/Actions/ComputerSystem.Reset", {"POST": _reset}),
    Resource(f"{ROOT}/Systems/{{id}}/EthernetInterfaces", {"GET": _interfaces}),
    Resource(f"{ROOT}/Systems/{{id}}/EthernetInterfaces/{{nic}}", {"GET": _interface}),
)
