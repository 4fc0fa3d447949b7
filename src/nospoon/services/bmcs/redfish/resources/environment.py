"""Power and temperatures of a chassis: the sensors that IPMI reads too, in the words of both the
older resources (Power, Thermal) and their successors (subsystems and Sensors).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from nospoon.bmc.ipmi.sdr import raw
from nospoon.bmc.ipmi.sensor import crossed
from nospoon.bmc.log import Severity
from nospoon.bmc.sensors import SENSORS, Analog, Unit, reading
from nospoon.services.bmcs.redfish.messages.bodies import OK, ref, resource
from nospoon.services.bmcs.redfish.messages.uris import ROOT

if TYPE_CHECKING:
    from nospoon.services.bmcs.served import Served

READING_TYPES = {Unit.CELSIUS: "Temperature", Unit.WATTS: "Power", Unit.RPM: "Rotational"}
THRESHOLDS = {
    "LowerCritical": "lower_critical",
    "LowerCaution": "lower_caution",
    "UpperCaution": "upper_caution",
    "UpperCritical": "upper_critical",
    "UpperFatal": "upper_fatal",
}
_CRITICAL, _CAUTION = 0b110110, 0b001001
"""Bits of thresholds (§35.14, byte 3): critical and fatal ones, and non-critical ones."""
_BY_SEVERITY = tuple(Severity)
PRECISION = 1
CAPACITY_WATTS = 750.0


def _chassis(served: Served) -> str:
    return f"Chassis/{served.bmc.uuid}"


def _analogs(unit: Unit | None = None) -> Iterator[Analog]:
    for sensor in SENSORS:
        if isinstance(sensor, Analog) and unit in (None, sensor.unit):
            yield sensor


def _id(sensor: Analog) -> str:
    return sensor.name.replace(" ", "")


def _reading(served: Served, sensor: Analog) -> float | None:
    value = reading(sensor, served.aggregate, served.now())
    return round(value, PRECISION) if value is not None else None


def _health(served: Served, sensor: Analog) -> Severity | None:
    """By the thresholds that the reading is at or beyond, as IPMI tells it; None without one."""
    value = reading(sensor, served.aggregate, served.now())
    if value is None:
        return None
    bits = crossed(sensor, raw(sensor, value))
    if bits & _CRITICAL:
        return Severity.CRITICAL
    return Severity.WARNING if bits & _CAUTION else Severity.OK


def _status(served: Served, sensor: Analog) -> dict[str, str]:
    health = _health(served, sensor)
    if health is None:
        return {"State": "UnavailableOffline"}
    return {"State": "Enabled", "Health": str(health)}


def rollup(served: Served, *units: Unit) -> Severity:
    """The worst of its sensors with these units, or with none named of all of them."""
    found = (_health(served, each) for each in _analogs() if not units or each.unit in units)
    told = [each for each in found if each is not None]
    return max(told, key=_BY_SEVERITY.index, default=Severity.OK)


def sensors(served: Served) -> list[str]:
    """Ids of the sensors that have a reading."""
    del served
    return [_id(sensor) for sensor in _analogs()]


def sensor(served: Served, member: str) -> dict[str, object] | None:
    """Sensor."""
    found = next((each for each in _analogs() if _id(each) == member), None)
    if found is None:
        return None
    limits = {
        name: {"Reading": value}
        for name, attribute in THRESHOLDS.items()
        if (value := getattr(found.thresholds, attribute)) is not None
    }
    return {
        **resource("Sensor", f"{_chassis(served)}/Sensors/{member}", member, found.name),
        "ReadingType": READING_TYPES[found.unit],
        "ReadingUnits": str(found.unit),
        "Reading": _reading(served, found),
        "Status": _status(served, found),
        **({"Thresholds": limits} if limits else {}),
    }


def _excerpt(served: Served, each: Analog) -> dict[str, object]:
    uri = f"{ROOT}/{_chassis(served)}/Sensors/{_id(each)}"
    return {"DataSourceUri": uri, "Reading": _reading(served, each)}


def thermal(served: Served) -> dict[str, object]:
    """Thermal, the older resource."""
    path = f"{_chassis(served)}/Thermal"
    return {
        **resource("Thermal", path, "Thermal", "Thermal"),
        "Temperatures": [
            {
                "@odata.id": f"{ROOT}/{path}#/Temperatures/{index}",
                "MemberId": str(index),
                "Name": each.name,
                "SensorNumber": each.number,
                "ReadingCelsius": _reading(served, each),
                "UpperThresholdNonCritical": each.thresholds.upper_caution,
                "UpperThresholdCritical": each.thresholds.upper_critical,
                "UpperThresholdFatal": each.thresholds.upper_fatal,
                "PhysicalContext": "Intake" if "Inlet" in each.name else "CPU",
                "Status": _status(served, each),
            }
            for index, each in enumerate(_analogs(Unit.CELSIUS))
        ],
        "Fans": [
            {
                "@odata.id": f"{ROOT}/{path}#/Fans/{index}",
                "MemberId": str(index),
                "Name": each.name,
                "SensorNumber": each.number,
                "Reading": _whole(_reading(served, each)),
                "ReadingUnits": "RPM",
                "LowerThresholdNonCritical": _whole(each.thresholds.lower_caution),
                "LowerThresholdCritical": _whole(each.thresholds.lower_critical),
                "Status": _status(served, each),
            }
            for index, each in enumerate(_analogs(Unit.RPM))
        ],
    }


def _whole(value: float | None) -> int | None:
    return round(value) if value is not None else None


def power(served: Served) -> dict[str, object]:
    """Power, the older resource."""
    path = f"{_chassis(served)}/Power"
    (draw,) = _analogs(Unit.WATTS)
    return {
        **resource("Power", path, "Power", "Power"),
        "PowerControl": [
            {
                "@odata.id": f"{ROOT}/{path}#/PowerControl/0",
                "MemberId": "0",
                "Name": "System Power Control",
                "PowerConsumedWatts": _reading(served, draw),
                "PowerCapacityWatts": CAPACITY_WATTS,
                "Status": _status(served, draw),
            }
        ],
        "PowerSupplies": [
            {
                "@odata.id": f"{ROOT}/{path}#/PowerSupplies/0",
                "MemberId": "0",
                "Name": "Power Supply 0",
                "PowerSupplyType": "AC",
                "PowerCapacityWatts": CAPACITY_WATTS,
                "Status": OK,
            }
        ],
    }


def thermal_subsystem(served: Served) -> dict[str, object]:
    """ThermalSubsystem."""
    path = f"{_chassis(served)}/ThermalSubsystem"
    return {
        **resource("ThermalSubsystem", path, "ThermalSubsystem", "Thermal Subsystem"),
        "Fans": ref(f"{path}/Fans"),
        "ThermalMetrics": ref(f"{path}/ThermalMetrics"),
        "Status": {**OK, "HealthRollup": str(rollup(served, Unit.CELSIUS, Unit.RPM))},
    }


def fans(served: Served) -> list[str]:
    """Ids of the fans."""
    del served
    return [_id(each) for each in _analogs(Unit.RPM)]


def fan(served: Served, member: str) -> dict[str, object] | None:
    """Fan."""
    found = next((each for each in _analogs(Unit.RPM) if _id(each) == member), None)
    if found is None:
        return None
    path = f"{_chassis(served)}/ThermalSubsystem/Fans/{member}"
    speed = _excerpt(served, found)
    return {
        **resource("Fan", path, member, found.name),
        "SpeedPercent": {
            "DataSourceUri": speed["DataSourceUri"],
            "Reading": None,
            "SpeedRPM": speed["Reading"],
        },
        "Status": _status(served, found),
    }


def thermal_metrics(served: Served) -> dict[str, object]:
    """ThermalMetrics: every temperature."""
    path = f"{_chassis(served)}/ThermalSubsystem/ThermalMetrics"
    readings = [
        {**_excerpt(served, each), "DeviceName": each.name} for each in _analogs(Unit.CELSIUS)
    ]
    return {
        **resource("ThermalMetrics", path, "ThermalMetrics", "Thermal Metrics"),
        "TemperatureReadingsCelsius": readings,
        "TemperatureReadingsCelsius@odata.count": len(readings),
    }


def power_subsystem(served: Served) -> dict[str, object]:
    """PowerSubsystem."""
    path = f"{_chassis(served)}/PowerSubsystem"
    return {
        **resource("PowerSubsystem", path, "PowerSubsystem", "Power Subsystem"),
        "CapacityWatts": CAPACITY_WATTS,
        "PowerSupplies": ref(f"{path}/PowerSupplies"),
        "Status": OK,
    }


def power_supplies(served: Served) -> list[str]:
    """There is one."""
    del served
    return ["0"]


def power_supply(served: Served, member: str) -> dict[str, object] | None:
    """PowerSupply."""
    if member not in power_supplies(served):
        return None
    path = f"{_chassis(served)}/PowerSubsystem/PowerSupplies/{member}"
    present = served.aggregate.has_power
    return {
        **resource("PowerSupply", path, member, f"Power Supply {member}"),
        "PowerSupplyType": "AC",
        "PowerCapacityWatts": CAPACITY_WATTS,
        "Status": OK if present else {"State": "UnavailableOffline", "Health": "Critical"},
    }


def metrics(served: Served) -> dict[str, object]:
    """EnvironmentMetrics: temperature and power in one."""
    path = f"{_chassis(served)}/EnvironmentMetrics"
    inlet = next(_analogs(Unit.CELSIUS))
    (draw,) = _analogs(Unit.WATTS)
    return {
        **resource("EnvironmentMetrics", path, "EnvironmentMetrics", "Environment Metrics"),
        "TemperatureCelsius": _excerpt(served, inlet),
        "PowerWatts": _excerpt(served, draw),
    }
