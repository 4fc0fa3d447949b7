"""Sensors of one BMC: the table from which IPMI's sensor data records (IPMI 2.0 §43) and
Redfish's Sensors are both made. Readings are pure functions of the aggregate and of time.

What depends on a running machine has no reading while it is off, as on hardware. A machine of
which nothing is known has no readings but the log's. No reading is beyond what the raw byte of an
IPMI sensor can tell, so that all protocols tell the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from nospoon.bmc.log import CAPACITY
from nospoon.model.machine import PowerState

if TYPE_CHECKING:
    from nospoon.bmc.aggregate import Bmc

STANDBY_WATTS, IDLE_WATTS, WATTS_PER_CPU = 6.0, 60.0, 12.0
INLET_CELSIUS, CPU_RISE, WARM_UP_SECONDS = 23.0, 21.0, 90.0
FAN_RPM = 5400.0


class Unit(StrEnum):
    """Units; the values are Redfish's (UCUM)."""

    CELSIUS = "Cel"
    WATTS = "W"
    RPM = "{rev}/min"


@dataclass(frozen=True, slots=True)
class Thresholds:
    """In the sensor's unit (IPMI 2.0 §35.8); None: there is none."""

    lower_critical: float | None = None
    lower_caution: float | None = None
    upper_caution: float | None = None
    upper_critical: float | None = None
    upper_fatal: float | None = None


NO_THRESHOLDS = Thresholds()
ALL_STATES = 0x7FFF
"""A discrete sensor has 15 at most (§42.1)."""


@dataclass(frozen=True, slots=True)
class Analog:
    """A sensor with a reading. `type`: IPMI 2.0 table 42-3. `step`: the unit of its raw byte."""

    number: int
    name: str
    type: int
    unit: Unit
    step: int
    read: Callable[[Bmc, float], float]
    needs_running: bool = True
    thresholds: Thresholds = NO_THRESHOLDS

    def shown(self, value: float) -> float:
        """The nearest to it that the sensor can show; of what is not a number, the least."""
        return min(255.0 * self.step, max(0.0, value))


@dataclass(frozen=True, slots=True)
class Discrete:
    """A sensor with states: bit n is sensor-specific offset n (table 42-3), of those in `mask`."""

    number: int
    name: str
    type: int
    mask: int
    states: Callable[[Bmc, float], int]

    def shown(self, value: float) -> int:
        """Of these states, those that there are."""
        return int(min(ALL_STATES, max(0, value))) & self.mask


Sensor = Analog | Discrete


def _wave(now: float, *, period: float, number: int) -> float:
    """From -1 to 1, differing by sensor, so that graphs are not flat."""
    return math.sin(2 * math.pi * now / period + number)


def _watts(bmc: Bmc, now: float) -> float:
    if not bmc.is_on:
        return STANDBY_WATTS if bmc.has_power else 0.0
    cpus = bmc.state.inventory.cpus
    return IDLE_WATTS + WATTS_PER_CPU * cpus * (1 + 0.15 * _wave(now, period=47, number=5))


def _inlet(bmc: Bmc, now: float) -> float:
    del bmc
    return INLET_CELSIUS + _wave(now, period=900, number=1)


def _cpu(bmc: Bmc, now: float) -> float:
    warm = 1 - math.exp(-max(0.0, now - bmc.state.since) / WARM_UP_SECONDS)
    return INLET_CELSIUS + CPU_RISE * warm + 2 * _wave(now, period=61, number=2)


def _fan(number: int) -> Callable[[Bmc, float], float]:
    def read(bmc: Bmc, now: float) -> float:
        del bmc
        return FAN_RPM + 120 * _wave(now, period=31, number=number)

    return read


def _acpi(bmc: Bmc, now: float) -> int:
    """S0/G0 working, or S5/G2 soft-off."""
    del now
    return 1 << 0 if bmc.is_on else 1 << 5


def _power_unit(bmc: Bmc, now: float) -> int:
    """Power off, AC lost, soft power control failure."""
    del now
    off = 0 if bmc.is_on else 1 << 0
    lost = 0 if bmc.has_power else 1 << 4
    return off | lost | (1 << 5 if bmc.runtime.power_fault else 0)


def _boot_error(bmc: Bmc, now: float) -> int:
    """No bootable media: a machine that has nothing to boot from."""
    del now
    return 0 if bmc.boot.now else 1 << 0


def _critical_stop(bmc: Bmc, now: float) -> int:
    del now
    return 1 << 1 if bmc.power is PowerState.FAILED else 0


def _watchdog(bmc: Bmc, now: float) -> int:
    """What the timer did when it expired last, while that flag stands."""
    del now
    watchdog = bmc.watchdog
    return 1 << watchdog.done if watchdog is not None and watchdog.expired else 0


def _log_area(bmc: Bmc, now: float) -> int:
    """Almost full; a ring is never full for good."""
    del now
    return 1 << 5 if len(bmc.log.records) > CAPACITY * 3 // 4 else 0


def _nothing(bmc: Bmc, now: float) -> int:
    """Of sensors that only log."""
    del bmc, now
    return 0


SENSORS: tuple[Sensor, ...] = (
    Analog(
        1, "Inlet Temp", 0x01, Unit.CELSIUS, 1, _inlet, needs_running=False,
        thresholds=Thresholds(upper_caution=38, upper_critical=42, upper_fatal=46),
    ),
    Analog(
        2, "CPU Temp", 0x01, Unit.CELSIUS, 1, _cpu,
        thresholds=Thresholds(upper_caution=85, upper_critical=95, upper_fatal=100),
    ),
    Analog(
        3, "Fan 1", 0x04, Unit.RPM, 60, _fan(3),
        thresholds=Thresholds(lower_critical=600, lower_caution=1200),
    ),
    Analog(
        4, "Fan 2", 0x04, Unit.RPM, 60, _fan(4),
        thresholds=Thresholds(lower_critical=600, lower_caution=1200),
    ),
    Analog(5, "Power Draw", 0x03, Unit.WATTS, 4, _watts, needs_running=False),
    Discrete(6, "ACPI Power", 0x22, 0x0021, _acpi),
    Discrete(7, "Power Unit", 0x09, 0x0033, _power_unit),
    Discrete(8, "Boot Error", 0x1E, 0x0001, _boot_error),
    Discrete(9, "OS Stop", 0x20, 0x0002, _critical_stop),
    Discrete(10, "Watchdog", 0x23, 0x010F, _watchdog),
    Discrete(11, "Event Log", 0x10, 0x0020, _log_area),
    Discrete(12, "System Boot", 0x1D, 0x0007, _nothing),
    Discrete(13, "BMC Health", 0x28, 0x0004, _nothing),
)  # fmt: skip
BY_NUMBER: Mapping[int, Sensor] = {each.number: each for each in SENSORS}


def _told(sensor: Sensor, bmc: Bmc, now: float) -> float | None:
    faults = bmc.state.faults
    return faults.reading(sensor.number, now) if faults is not None else None


def named(name: str) -> Sensor | None:
    """The sensor of this name, in any case and with or without its spaces."""
    wanted = name.replace(" ", "").lower()
    return next((s for s in SENSORS if s.name.replace(" ", "").lower() == wanted), None)


def reading(sensor: Analog, bmc: Bmc, now: float) -> float | None:
    """In the sensor's unit; None: there is none now. A fault on demand goes before all."""
    told = _told(sensor, bmc, now)
    if told is not None:
        return sensor.shown(told)
    if bmc.power is PowerState.UNKNOWN or (sensor.needs_running and not bmc.is_on):
        return None
    return sensor.shown(sensor.read(bmc, now))


def states(sensor: Discrete, bmc: Bmc, now: float) -> int | None:
    """Bits of `mask`; None while nothing is known of the machine."""
    told = _told(sensor, bmc, now)
    if told is not None:
        return sensor.shown(told)
    log_area = sensor.states is _log_area
    if bmc.power is PowerState.UNKNOWN and not log_area:
        return None
    return sensor.states(bmc, now)
