"""Entries of the log: the same records that IPMI reads, in the words of LogEntry."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nospoon.bmc.log import MEANINGS, Kind, Record
from nospoon.model.machine import PowerCommand
from nospoon.services.bmcs.redfish.resources.sel import CODES, SENSOR_TYPES, decoded
from nospoon.testing import dmtf_tools
from nospoon.testing.bench import bench
from nospoon.testing.redfish import client, system_of


def added(*last: int, type_: int = 0x02) -> Record:
    """One that a client added, by its bytes from the generator on."""
    return Record(1, 0.0, Kind.ADDED, raw=bytes((0, 0, type_, 0, 0, 0, 0, *last)))


@pytest.mark.parametrize(
    ("record", "shown"),
    [
        (Record(1, 0.0, Kind.POWER_ON), ("0x6f00ffff", "System ACPI PowerState", 6, "Assert")),
        (Record(1, 0.0, Kind.AC_RETURNED), ("0xef04ffff", "PowerUnit", 7, "Deassert")),
        (
            added(0x41, 0x00, 0x04, 0x01, 0x30, 0x01, 0x59, 0x2C, 0x28),
            ("0x01592c28", "Temperature", 48, "Upper Critical - going high"),
        ),
        (
            added(0x20, 0x00, 0x04, 0x2C, 0x07, 0x6F, 0x01, 0xFF, 0xFF),
            ("0x6f01ffff", "FRUState", 7, "Assert"),
        ),
        (
            added(0x20, 0x00, 0x04, 0xC0, 0x07, 0x7F, 0x01, 0xFF, 0xFF),
            ("0x7f01ffff", "OEM", 7, "OEM"),
        ),
        (
            added(0x20, 0x00, 0x04, 0x08, 0x07, 0x03, 0x05, 0xFF, 0xFF),
            ("0x0305ffff", "Power Supply / Converter", 7, "OEM"),
        ),
    ],
)
def test_a_record_is_told_in_redfishs_words(
    record: Record, shown: tuple[str, str, int, str]
) -> None:
    found = decoded(record)
    names = ("MessageId", "SensorType", "SensorNumber", "EntryCode")
    assert tuple(found[name] for name in names) == shown


def test_a_record_of_a_vendor_says_its_bytes_only() -> None:
    found = decoded(added(1, 2, 3, 4, 5, 6, 7, 8, 9, type_=0xC0))
    assert found == {"MessageId": "0x06070809", "SensorNumber": None}


def test_what_the_bmc_records_itself_has_a_type_that_is_known() -> None:
    for kind in MEANINGS:
        assert decoded(Record(1, 0.0, kind))["SensorType"] in SENSOR_TYPES.values()


@given(st.binary(min_size=13, max_size=13))
def test_whatever_a_client_adds_is_told(data: bytes) -> None:
    found = decoded(Record(1, 0.0, Kind.ADDED, raw=bytes(2) + b"\x02" + data))
    assert re.fullmatch("0x[0-9a-f]{8}", str(found["MessageId"]))
    known = {"Assert", "Deassert", "OEM", *(each for words in CODES.values() for each in words)}
    assert found["EntryCode"] in known


@pytest.mark.tools
async def test_dmtfs_tool_lists_the_log() -> None:
    async with bench(1) as b:
        await b.service.power(b.first.bmc.uuid, PowerCommand.ON)
        assert "The machine was powered on" in await dmtf_tools.run(b, "rf_logs.py")
        entry = f"{system_of(b.first)}/LogServices/SEL/Entries/1"
        assert (await client(b.first).get(entry)).json["GeneratorId"] == "0x0020"
