"""The event log of one BMC: a ring that the System Event Log (IPMI 2.0 §31) and Redfish's
LogService are both made of.

Rules:

- The aggregate records by itself what happens to the machine; clients may add raw records.
- It keeps the newest 512. Numbers go on rising; the SEL's record id is the number modulo FFFEh.
- Time is the log's own clock: Unix seconds plus the offset that Set SEL Time left.
- An empty log is an empty tuple, shared by all.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

CAPACITY = 512
LAST_RECORD_ID = 0xFFFE
SYSTEM_EVENT, OEM_TIMESTAMPED, OEM = 0x02, 0xC0, 0xE0
"""Record types (§32): C0h to DFh carry a timestamp, E0h to FFh don't."""
BMC_GENERATOR = 0x0020
EVENT_FORMAT = 0x04
SENSOR_SPECIFIC = 0x6F
_EVENT = struct.Struct("<HBIHBBBB3s")


class Kind(StrEnum):
    """What was recorded. ADDED: a client wrote the record itself, its bytes say what it means."""

    POWER_ON = "power on"
    POWER_OFF = "power off"
    POWER_CYCLE = "power cycle"
    POWER_FAULT = "power fault"
    AC_LOST = "AC lost"
    AC_RETURNED = "AC returned"
    BOOTED = "booted"
    RESET = "reset"
    REBOOTED = "rebooted"
    GUEST_STOPPED = "guest stopped"
    WATCHDOG_EXPIRED = "watchdog expired"
    WATCHDOG_RESET = "watchdog reset"
    WATCHDOG_OFF = "watchdog off"
    WATCHDOG_CYCLE = "watchdog cycle"
    WATCHDOG_INTERRUPT = "watchdog interrupt"
    BMC_RESTARTED = "BMC restarted"
    ADDED = "added"


class Severity(StrEnum):
    """Redfish's `Severity` of a log entry."""

    OK = "OK"
    WARNING = "Warning"
    CRITICAL = "Critical"


@dataclass(frozen=True, slots=True)
class Meaning:
    """How a kind looks in the SEL (§42.2, sensor-specific offsets) and to people.

    `type` and `sensor`: the sensor's type and number in `nospoon.bmc.sensors`. `asserted` False:
    the deassertion of that offset.
    """

    type: int
    sensor: int
    offset: int
    text: str
    severity: Severity = Severity.OK
    asserted: bool = True


MEANINGS: Mapping[Kind, Meaning] = {
    Kind.POWER_ON: Meaning(0x22, 6, 0x00, "The machine was powered on"),
    Kind.POWER_OFF: Meaning(0x22, 6, 0x05, "The machine was powered off"),
    Kind.POWER_CYCLE: Meaning(0x09, 7, 0x01, "The machine was power cycled"),
    Kind.POWER_FAULT: Meaning(0x09, 7, 0x05, "A power command failed", Severity.CRITICAL),
    Kind.AC_LOST: Meaning(0x09, 7, 0x04, "AC power was lost", Severity.CRITICAL),
    Kind.AC_RETURNED: Meaning(0x09, 7, 0x04, "AC power returned", asserted=False),
    Kind.BOOTED: Meaning(0x1D, 12, 0x00, "The system boots after power-up"),
    Kind.RESET: Meaning(0x1D, 12, 0x01, "The system boots after a hard reset"),
    Kind.REBOOTED: Meaning(0x1D, 12, 0x02, "The operating system rebooted"),
    Kind.GUEST_STOPPED: Meaning(0x20, 9, 0x01, "The machine failed", Severity.CRITICAL),
    Kind.WATCHDOG_EXPIRED: Meaning(0x23, 10, 0x00, "The watchdog expired", Severity.WARNING),
    Kind.WATCHDOG_RESET: Meaning(0x23, 10, 0x01, "The watchdog reset it", Severity.CRITICAL),
    Kind.WATCHDOG_OFF: Meaning(0x23, 10, 0x02, "The watchdog powered it off", Severity.CRITICAL),
    Kind.WATCHDOG_CYCLE: Meaning(0x23, 10, 0x03, "The watchdog cycled it", Severity.CRITICAL),
    Kind.BMC_RESTARTED: Meaning(0x28, 13, 0x02, "The BMC restarts"),
    Kind.WATCHDOG_INTERRUPT: Meaning(0x23, 10, 0x08, "The watchdog warned it", Severity.WARNING),
}


@dataclass(frozen=True, slots=True)
class Record:
    """`number`: rising, from 1. `at`: Unix seconds of the log's clock. `text`: the reason, if any.

    `raw`: the 16 bytes of a record that a client added, b"" of ours.
    """

    number: int
    at: float
    kind: Kind
    text: str = ""
    raw: bytes = b""

    @property
    def id(self) -> int:
        """The SEL's record id, 1 to FFFEh (§31.5)."""
        return (self.number - 1) % LAST_RECORD_ID + 1

    @property
    def message(self) -> str:
        """For people."""
        if self.kind is Kind.ADDED:
            return f"Record added by a client: {self.raw.hex()}"
        told = MEANINGS[self.kind].text
        return f"{told}: {self.text}" if self.text else told

    @property
    def severity(self) -> Severity:
        return MEANINGS[self.kind].severity if self.kind is not Kind.ADDED else Severity.OK


def encode(record: Record) -> bytes:
    """The record's 16 bytes in the SEL (§32.1)."""
    if record.raw:
        return record.id.to_bytes(2, "little") + record.raw[2:]
    what = MEANINGS[record.kind]
    direction = SENSOR_SPECIFIC if what.asserted else 0x80 | SENSOR_SPECIFIC
    data = bytes([what.offset, 0xFF, 0xFF])
    return _EVENT.pack(
        record.id,
        SYSTEM_EVENT,
        int(record.at) & 0xFFFFFFFF,
        BMC_GENERATOR,
        EVENT_FORMAT,
        what.type,
        what.sensor,
        direction,
        data,
    )


def stamped(raw: bytes, at: float) -> bytes:
    """An added record as it is kept: types that have a timestamp get the BMC's (§31.6)."""
    if raw[2] >= OEM:
        return raw
    return raw[:3] + (int(at) & 0xFFFFFFFF).to_bytes(4, "little") + raw[7:]


class Log:
    """The ring. `overflowed`: an old record gave way since the log was cleared.

    `added_at` and `erased_at`: the log's clock at the last addition and erasure, 0.0 for never.
    `reservation`: the one that holds, 0 for none (§31.4).
    """

    __slots__ = (
        "_next",
        "_reserved",
        "added_at",
        "erased_at",
        "overflowed",
        "records",
        "reservation",
    )

    def __init__(self, records: Sequence[Record] = ()) -> None:
        self.records: tuple[Record, ...] = tuple(records)[-CAPACITY:]
        self._next = self.records[-1].number + 1 if self.records else 1
        self.added_at = self.records[-1].at if self.records else 0.0
        self.erased_at = 0.0
        self._reserved = 0
        self.reservation = 0
        self.overflowed = len(records) > CAPACITY

    @property
    def next_id(self) -> int:
        """The SEL's id of the record that is added next."""
        return (self._next - 1) % LAST_RECORD_ID + 1

    def add(self, kind: Kind, at: float, *, text: str = "", raw: bytes = b"") -> Record:
        """Append a record; the oldest gives way."""
        record = Record(self._next, at, kind, text, raw)
        self.overflowed = self.overflowed or len(self.records) == CAPACITY
        self.records = (*self.records[-(CAPACITY - 1) :], record)
        self._next += 1
        self.added_at = at
        return record

    def give_way(self) -> Record:
        """The oldest record goes, as where the ring is full, though it is not."""
        oldest, *kept = self.records
        self.records, self.overflowed = tuple(kept), True
        return oldest

    def find(self, id_: int) -> int | None:
        """The place of a record in `records` by its SEL id; 0 is the first, FFFFh the last."""
        if not self.records:
            return None
        if id_ in {0x0000, 0xFFFF}:
            return 0 if id_ == 0 else len(self.records) - 1
        places = (place for place, each in enumerate(self.records) if each.id == id_)
        return next(places, None)

    def reserve(self) -> int:
        """A new reservation, 1 to FFFFh, which cancels the one before (§31.4)."""
        self._reserved = self._reserved % 0xFFFF + 1
        self.reservation = self._reserved
        return self.reservation

    def erase(self, number: int | None, at: float) -> None:
        """Remove one record, or with None all of them.

        Clearing cancels the reservation. One record that goes does not: the ids of others stay, and
        only their change would (§31.4.1); so a client may delete several with one reservation.
        """
        kept = () if number is None else (r for r in self.records if r.number != number)
        self.records = tuple(kept)
        self.overflowed = self.overflowed and number is not None
        self.erased_at = at
        if number is None:
            self.reservation = 0
