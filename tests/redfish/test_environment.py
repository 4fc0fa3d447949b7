"""Health of what the sensors measure: what IPMI says of a reading, in Redfish's words."""

from __future__ import annotations

from typing import Any

import pytest

from nospoon.bmc.faults import Fault, Kind
from nospoon.bmc.ipmi.sdr import raw
from nospoon.bmc.ipmi.sensor import crossed
from nospoon.bmc.sensors import SENSORS, Analog, named
from nospoon.model.machine import PowerCommand
from nospoon.testing.bench import Bench, bench
from nospoon.testing.redfish import client

OFFLINE = {"State": "UnavailableOffline"}


async def get(b: Bench, path: str) -> Any:
    return (await client(b.first).get(f"/redfish/v1/Chassis/{b.first.bmc.uuid}{path}")).json


async def healths(b: Bench, name: str) -> set[Any]:
    """What every resource that shows this sensor says of it."""
    id_ = name.replace(" ", "")
    thermal, power = await get(b, "/Thermal"), await get(b, "/Power")
    shown = [*thermal["Temperatures"], *thermal["Fans"], *power["PowerControl"]]
    aliases = {"System Power Control": "Power Draw"}
    found = [each for each in shown if aliases.get(each["Name"], each["Name"]) == name]
    found.append(await get(b, f"/Sensors/{id_}"))
    if name.startswith("Fan"):
        found.append(await get(b, f"/ThermalSubsystem/Fans/{id_}"))
    assert len(found) >= 2
    return {each["Status"].get("Health") for each in found}


def put(b: Bench, name: str, value: float) -> None:
    sensor = named(name)
    assert sensor is not None
    b.service.set_fault(b.first.bmc.uuid, Fault(Kind.SENSOR, sensor=sensor.number, value=value))


@pytest.mark.parametrize(
    ("name", "value", "health"),
    [
        ("CPU Temp", 84, "OK"),
        ("CPU Temp", 85, "Warning"),
        ("CPU Temp", 95, "Critical"),
        ("CPU Temp", 105, "Critical"),
        ("Inlet Temp", 46, "Critical"),
        ("Fan 1", 1260, "OK"),
        ("Fan 1", 1200, "Warning"),
        ("Fan 2", 0, "Critical"),
        ("Power Draw", 700, "OK"),
    ],
)
async def test_health_is_what_thresholds_say_of_a_reading(
    name: str, value: float, health: str
) -> None:
    async with bench(1) as b:
        await b.service.power(b.first.bmc.uuid, PowerCommand.ON)
        put(b, name, value)
        assert await healths(b, name) == {health}
        sensor = named(name)
        assert isinstance(sensor, Analog)
        assert bool(crossed(sensor, raw(sensor, value))) is (health != "OK"), "IPMI agrees"
        assert (await get(b, ""))["Status"]["HealthRollup"] == health
        assert (await get(b, ""))["Status"]["Health"] == "OK"
        assert (await get(b, "/ThermalSubsystem"))["Status"]["HealthRollup"] == health
        b.service.clear_faults(b.first.bmc.uuid)
        assert await healths(b, name) == {"OK"}
        assert (await get(b, ""))["Status"]["HealthRollup"] == "OK"


async def test_readings_that_are_not_there_are_not_healthy() -> None:
    """A machine that is off turns no fan; of what needs it not the readings go on."""
    async with bench(1) as b:
        for sensor in SENSORS:
            if isinstance(sensor, Analog):
                wanted = {None} if sensor.needs_running else {"OK"}
                assert await healths(b, sensor.name) == wanted
        (fan, _) = (await get(b, "/Thermal"))["Fans"]
        assert (fan["Reading"], fan["Status"]) == (None, OFFLINE)
        assert (await get(b, ""))["Status"]["HealthRollup"] == "OK"
