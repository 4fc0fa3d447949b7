"""A record of the SEL in the words of LogEntry v1.21: what its bytes say, as IPMI reads them.

`SensorType` names table 42-3 of IPMI 2.0, `EntryCode` tables 42-1 and 42-2.
"""

from __future__ import annotations

from nospoon.bmc.log import SENSOR_SPECIFIC, SYSTEM_EVENT, Record, encode

SENSOR_TYPES = dict(
    enumerate(
        (
            "Temperature", "Voltage", "Current", "Fan", "Physical Chassis Security",
            "Platform Security Violation Attempt", "Processor", "Power Supply / Converter",
            "PowerUnit", "CoolingDevice", "Other Units-based Sensor", "Memory", "Drive Slot/Bay",
            "POST Memory Resize", "System Firmware Progress", "Event Logging Disabled", "Watchdog",
            "System Event", "Critical Interrupt", "Button/Switch", "Module/Board",
            "Microcontroller/Coprocessor", "Add-in Card", "Chassis", "ChipSet", "Other FRU",
            "Cable/Interconnect", "Terminator", "SystemBoot/Restart", "Boot Error",
            "BaseOSBoot/InstallationStatus", "OS Stop/Shutdown", "Slot/Connector",
            "System ACPI PowerState", "Watchdog", "Platform Alert", "Entity Presence",
            "Monitor ASIC/IC", "LAN", "Management Subsystem Health", "Battery", "Session Audit",
            "Version Change", "FRUState",
        ),
        start=1,
    )
)  # fmt: skip
_THRESHOLDS = tuple(
    f"{side} {which} - going {way}"
    for side in ("Lower", "Upper")
    for which in ("Non-critical", "Critical", "Non-recoverable")
    for way in ("low", "high")
)
CODES: dict[int, tuple[str, ...]] = {
    0x01: _THRESHOLDS,
    0x02: ("Transition to Idle", "Transition to Active", "Transition to Busy"),
    0x03: ("State Deasserted", "State Asserted"),
    0x04: ("Predictive Failure deasserted", "Predictive Failure asserted"),
    0x05: ("Limit Not Exceeded", "Limit Exceeded"),
    0x06: ("Performance Met", "Performance Lags"),
    0x07: (
        "Transition to OK", "Transition to Non-Critical from OK",
        "Transition to Critical from less severe",
        "Transition to Non-recoverable from less severe",
        "Transition to Non-Critical from more severe",
        "Transition to Critical from Non-recoverable", "Transition to Non-recoverable", "Monitor",
        "Informational",
    ),
    0x08: ("Device Removed / Device Absent", "Device Inserted / Device Present"),
    0x09: ("Device Disabled", "Device Enabled"),
    0x0A: (
        "Transition to Running", "Transition to In Test", "Transition to Power Off",
        "Transition to On Line", "Transition to Off Line", "Transition to Off Duty",
        "Transition to Degraded", "Transition to Power Save", "Install Error",
    ),
    0x0B: (
        "Fully Redundant", "Redundancy Lost", "Redundancy Degraded",
        "Non-redundant:Sufficient Resources from Redundant",
        "Non-redundant:Sufficient Resources from Insufficient Resources",
        "Non-redundant:Insufficient Resources", "Redundancy Degraded from Fully Redundant",
        "Redundancy Degraded from Non-redundant",
    ),
    0x0C: ("D0 Power State", "D1 Power State", "D2 Power State", "D3 Power State"),
}  # fmt: skip
"""Event/reading type -> what its offsets mean (table 42-2)."""
_OEM = "OEM"


def decoded(record: Record) -> dict[str, object]:
    """The properties of a LogEntry that only the SEL has."""
    raw = encode(record)
    told: dict[str, object] = {"MessageId": f"0x{raw[12:16].hex()}", "SensorNumber": None}
    if raw[2] != SYSTEM_EVENT:
        return told
    return {
        **told,
        "GeneratorId": f"0x{int.from_bytes(raw[7:9], 'little'):04x}",
        "SensorType": SENSOR_TYPES.get(raw[10], _OEM),
        "SensorNumber": raw[11],
        "EntryCode": _code(raw[12], raw[13]),
    }


def _code(direction: int, data: int) -> str:
    """By direction and type of the event (§29.7), and the offset in its data."""
    if direction & 0x7F == SENSOR_SPECIFIC:
        return "Deassert" if direction & 0x80 else "Assert"
    words, offset = CODES.get(direction & 0x7F, ()), data & 0x0F
    return words[offset] if offset < len(words) else _OEM
