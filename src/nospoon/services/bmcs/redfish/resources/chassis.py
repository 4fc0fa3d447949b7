"""Chassis: the case of a system, with its light and its tag."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from starlette.responses import Response

from nospoon.bmc.log import Severity
from nospoon.services.bmcs.redfish.http.answers import check_match, tagged
from nospoon.services.bmcs.redfish.http.exchange import Exchange
from nospoon.services.bmcs.redfish.http.routes import Resource, of_each_system, read
from nospoon.services.bmcs.redfish.messages.bodies import ref
from nospoon.services.bmcs.redfish.messages.metadata import odata_type
from nospoon.services.bmcs.redfish.messages.uris import ROOT
from nospoon.services.bmcs.redfish.resources import environment
from nospoon.services.bmcs.redfish.resources.case import (
    LIGHTS,
    POWER_STATES,
    asset_tag,
    changed_light,
    changed_settings,
    light,
)
from nospoon.services.bmcs.redfish.resources.changes import change, refuse_others

if TYPE_CHECKING:
    from nospoon.services.bmcs.redfish.http.service import Service
    from nospoon.services.bmcs.served import Served


def chassis(served: Served) -> dict[str, object]:
    """Chassis: the case that is not there."""
    uuid = served.bmc.uuid
    return {
        "@odata.type": odata_type("Chassis"),
        "@odata.id": f"{ROOT}/Chassis/{uuid}",
        "Id": str(uuid),
        "Name": f"Chassis of {served.config.node}",
        "ChassisType": "StandAlone",
        "Manufacturer": "nospoon",
        "SerialNumber": served.config.machine.serial_number,
        "AssetTag": asset_tag(served),
        "PowerState": POWER_STATES[served.aggregate.power],
        **light(served),
        "Status": _status(served),
        "Power": ref(f"Chassis/{uuid}/Power"),
        "Thermal": ref(f"Chassis/{uuid}/Thermal"),
        "PowerSubsystem": ref(f"Chassis/{uuid}/PowerSubsystem"),
        "ThermalSubsystem": ref(f"Chassis/{uuid}/ThermalSubsystem"),
        "EnvironmentMetrics": ref(f"Chassis/{uuid}/EnvironmentMetrics"),
        "Sensors": ref(f"Chassis/{uuid}/Sensors"),
        "Drives": ref(f"Chassis/{uuid}/Drives"),
        "Links": {
            "ComputerSystems": [ref(f"Systems/{uuid}")],
            "ManagedBy": [ref(f"Managers/{uuid}")],
        },
    }


def _status(served: Served) -> dict[str, str]:
    """A power fault is its own; sensors are what depends on it."""
    own = Severity.CRITICAL if served.power_fault else Severity.OK
    worst = own if own is Severity.CRITICAL else environment.rollup(served)
    return {"State": "Enabled", "Health": str(own), "HealthRollup": str(worst)}


async def patch_chassis(service: Service, served: Served, body: dict[str, object]) -> None:
    """Its light and its tag are those of its system."""
    refuse_others(body, (*LIGHTS, "AssetTag"), partial(chassis, served))
    await change(service, served, [*changed_settings(served, body), *changed_light(body)])


async def _patch(exchange: Exchange) -> Response:
    served = exchange.served()
    check_match(exchange, partial(chassis, served))
    await patch_chassis(exchange.service, served, await exchange.body())
    return tagged(exchange, chassis(served))


RESOURCES = (
    Resource(f"{ROOT}/Chassis", {"GET": of_each_system("Chassis", "Chassis")}),
    Resource(f"{ROOT}/Chassis/{{id}}", {"GET": read(chassis), "PATCH": _patch}),
)
