"""Faults on demand: what a BMC does wrong because someone asked for it.

A fault strikes with its probability, until its time or its count is over. Chance and time come in.
Of several that could strike at once each has its chance, in the order in which they were put.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


class Kind(StrEnum):
    """What goes wrong. What is told of IPMI and of Redfish holds for that one only."""

    DROP = "drop"
    DELAY = "delay"
    IPMI_ERROR = "ipmi-error"
    REFUSE_SESSIONS = "refuse-sessions"
    HTTP_500 = "http-500"
    HTTP_503 = "http-503"
    HTTP_DELAY = "http-delay"
    SENSOR = "sensor"
    MEDIA_FAILS = "media-fails"
    POWER_STUCK = "power-stuck"
    POWER_LIES = "power-lies"
    POWER_OFF_SLOW = "power-off-slow"


ABOUT = {
    Kind.DROP: "IPMI datagrams get no answer",
    Kind.DELAY: "IPMI datagrams are taken `seconds` later",
    Kind.IPMI_ERROR: "IPMI commands get completion code FFh",
    Kind.REFUSE_SESSIONS: "IPMI sessions are refused for lack of resources",
    Kind.HTTP_500: "Redfish answers 500 for the node's resources",
    Kind.HTTP_503: "Redfish answers 503 with Retry-After `seconds`",
    Kind.HTTP_DELAY: "Redfish answers `seconds` later for the node's resources",
    Kind.SENSOR: "a sensor reads the given value",
    Kind.MEDIA_FAILS: "virtual media cannot be fetched, by Redfish",
    Kind.POWER_STUCK: "power commands fail",
    Kind.POWER_LIES: "power commands have no effect, and the BMC reports success",
    Kind.POWER_OFF_SLOW: "power-off takes `seconds` longer",
}
POWER = frozenset({Kind.POWER_STUCK, Kind.POWER_LIES})
POWER_LATE = frozenset({Kind.POWER_OFF_SLOW})
MEDIA = frozenset({Kind.MEDIA_FAILS})
HTTP_LATE = frozenset({Kind.HTTP_DELAY})
HTTP = frozenset({Kind.HTTP_500, Kind.HTTP_503})


@dataclass(frozen=True, slots=True)
class Fault:
    """`until`: of the BMC's clock; None: until cleared. `count`: how often yet, None: always.

    `probability` from 0 to 1; `seconds`: what `ABOUT` says of the kind.
    `sensor` and `value`: the number of the sensor that reads so, in its unit and as near as it can
    show that, whenever it is asked.
    """

    kind: Kind
    until: float | None = None
    probability: float = 1.0
    count: int | None = None
    seconds: float = 5.0
    sensor: int = 0
    value: float = 0.0

    def text(self, now: float) -> str:
        """'drop (20 %, 3 more, for 12 s)'."""
        sensor = self.kind is Kind.SENSOR
        limits = [f"sensor {self.sensor} reads {self.value:g}" if sensor else ""]
        limits += [f"{self.probability:.0%}" if self.probability < 1 else ""]
        limits.append(f"{self.count} more" if self.count is not None else "")
        limits.append(f"for {self.until - now:.0f} s" if self.until is not None else "")
        told = ", ".join(each for each in limits if each)
        return f"{self.kind} ({told})" if told else str(self.kind)


class Faults:
    """Those of one BMC: one of a kind, and one for each sensor."""

    __slots__ = ("_faults",)

    def __init__(self) -> None:
        self._faults: dict[tuple[Kind, int], Fault] = {}

    def put(self, fault: Fault) -> None:
        """Instead of the one of the same kind, and for the same sensor."""
        self._faults[fault.kind, fault.sensor] = fault

    def clear(self) -> None:
        self._faults.clear()

    def at(self, now: float) -> list[Fault]:
        """Those that are not over."""
        over = [f for f in self._faults.values() if f.until is not None and f.until <= now]
        for each in over:
            del self._faults[each.kind, each.sensor]
        return list(self._faults.values())

    def reading(self, sensor: int, now: float) -> float | None:
        """What this sensor shall read, whatever is so; None: what is so."""
        told = self._faults.get((Kind.SENSOR, sensor))
        return None if told is None or told not in self.at(now) else told.value

    def strike(self, kinds: frozenset[Kind], *, now: float, chance: float) -> Fault | None:
        """The fault of these kinds that happens now; `chance`: evenly from 0 to below 1.

        What is left of the chance after a miss is even again once it is stretched.
        """
        for each in self.at(now):
            if each.kind not in kinds:
                continue
            if chance < each.probability:
                if each.count is not None:
                    self._used(each, each.count - 1)
                return each
            chance = (chance - each.probability) / (1 - each.probability)
        return None

    def find(self, kind: Kind) -> Fault | None:
        """Of a kind that is not of sensors; it may be over by now."""
        return self._faults.get((kind, 0))

    def _used(self, fault: Fault, left: int) -> None:
        if left > 0:
            self.put(replace(fault, count=left))
        else:
            del self._faults[fault.kind, fault.sensor]
