"""Faults on demand, as ipmitool sees them."""

from __future__ import annotations

import asyncio
import socket
import urllib.error
import urllib.request
from base64 import b64encode

import pytest
from pydantic import ValidationError

from nospoon.api.wire import FaultRequest
from nospoon.bmc.faults import Fault, Kind
from nospoon.bmc.messages import AcLost, AcReturned
from nospoon.model.machine import PowerState
from nospoon.runtime import process
from nospoon.runtime.process import Finished
from nospoon.services.bmcs.ports import BmcConfig
from nospoon.testing.bench import Bench, bench
from nospoon.testing.redfish import client


async def ipmitool(config: BmcConfig, *argv: str) -> Finished:
    line = ["ipmitool", "-I", "lanplus", "-H", config.bmc.address, "-p", str(config.bmc.ipmi_port),
            "-U", "admin", "-P", config.password, "-N", "1", "-R", "1", *argv]  # fmt: skip
    return await process.run(line, check=False)


@pytest.mark.parametrize("kind", [Kind.DROP, Kind.REFUSE_SESSIONS, Kind.IPMI_ERROR])
async def test_a_bmc_that_fails_on_demand_is_well_when_cleared(kind: Kind) -> None:
    async with bench(2) as b:
        b.service.set_fault(b.first.bmc.uuid, Fault(kind))
        assert (await ipmitool(b.first, "power", "status")).status != 0
        assert (await ipmitool(b.configs[1], "power", "status")).status == 0
        b.service.clear_faults(b.first.bmc.uuid)
        assert "is off" in (await ipmitool(b.first, "power", "status")).stdout


async def test_power_that_is_stuck_fails_and_shows_as_power_fault() -> None:
    async with bench(1) as b:
        b.service.set_fault(b.first.bmc.uuid, Fault(Kind.POWER_STUCK))
        assert (await ipmitool(b.first, "power", "on")).status != 0
        assert b.machines.told == []
        assert "stuck" in _fault(b)


async def test_power_that_lies_reports_success_and_does_nothing() -> None:
    async with bench(1) as b:
        b.service.set_fault(b.first.bmc.uuid, Fault(Kind.POWER_LIES, count=1))
        assert (await ipmitool(b.first, "power", "on")).status == 0
        assert b.machines.told == []
        served = b.service.status(b.first.bmc.uuid)
        assert served is not None
        assert served.aggregate.power is PowerState.ON


async def test_a_slow_power_off_is_accepted_and_takes_its_time() -> None:
    async with bench(1) as b:
        await ipmitool(b.first, "power", "on")
        b.service.set_fault(b.first.bmc.uuid, Fault(Kind.POWER_OFF_SLOW, seconds=30))
        assert (await ipmitool(b.first, "power", "off")).status == 0
        assert "is on" in (await ipmitool(b.first, "power", "status")).stdout


async def _get(config: BmcConfig) -> tuple[int, str | None]:
    """Status and Retry-After of the node's System."""
    url = f"http://127.0.0.1:{config.bmc.redfish_port}/redfish/v1/Systems/{config.bmc.uuid}"
    login = b64encode(f"admin:{config.password}".encode()).decode()
    request = urllib.request.Request(url, headers={"Authorization": f"Basic {login}"})
    return await asyncio.to_thread(_ask, request)


def _ask(request: urllib.request.Request) -> tuple[int, str | None]:
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, None
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers.get("Retry-After")


async def test_redfish_fails_as_often_as_it_was_told() -> None:
    async with bench(2) as b:
        b.service.set_fault(b.first.bmc.uuid, Fault(Kind.HTTP_503, count=1, seconds=7))
        assert await _get(b.configs[1]) == (200, None)
        assert await _get(b.first) == (503, "7")
        assert await _get(b.first) == (200, None)
        b.service.set_fault(b.first.bmc.uuid, Fault(Kind.HTTP_500))
        assert await _get(b.first) == (500, None)


async def test_without_ac_power_a_node_is_gone_from_redfish_until_it_returns() -> None:
    async with bench(2) as b:
        served = b.service.status(b.first.bmc.uuid)
        assert served is not None
        for event, status in ((AcLost(), 401), (AcReturned(), 200)):
            b.service.feed(served, event)
            assert served.turn is not None
            await served.turn
            assert (await _get(b.first))[0] == status
            assert await _get(b.configs[1]) == (200, None)


async def test_ipmi_that_is_late_answers_after_the_seconds_it_was_told() -> None:
    async with bench(2) as b:
        b.service.set_fault(b.first.bmc.uuid, Fault(Kind.DELAY, seconds=0.4))
        late, soon = await _presence(b.first), await _presence(b.configs[1])
        assert soon < 0.4 <= late < 3


async def _presence(config: BmcConfig) -> float:
    """Seconds until the answer to an ASF presence ping (§13.2.3)."""
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.settimeout(0)
        line.connect((config.bmc.address, config.bmc.ipmi_port))
        begun = loop.time()
        await loop.sock_sendall(line, bytes.fromhex("0600ff06000011be80420000"))
        async with asyncio.timeout(5):
            assert await loop.sock_recv(line, 100)
        return loop.time() - begun


async def test_redfish_that_is_late_answers_right_after_the_seconds_it_was_told() -> None:
    async with bench(2) as b:
        loop = asyncio.get_running_loop()
        b.service.set_fault(b.first.bmc.uuid, Fault(Kind.HTTP_DELAY, seconds=0.5, count=1))
        took = []
        for config in (b.configs[1], b.first, b.first):
            begun = loop.time()
            assert await _get(config) == (200, None)
            took.append(loop.time() - begun)
        other, late, later = took
        assert other < 0.5 <= late
        assert later < 0.5


async def test_a_sensor_reads_the_same_by_ipmi_and_redfish_as_it_was_told() -> None:
    async with bench(1) as b:
        fault = Fault(Kind.SENSOR, sensor=2, value=97.0)
        b.service.set_fault(b.first.bmc.uuid, fault)
        found = await ipmitool(b.first, "sensor", "reading", "CPU Temp")
        assert found.stdout.split("|")[1].strip() == "97"
        sensor = f"/redfish/v1/Chassis/{b.first.bmc.uuid}/Sensors/CPUTemp"
        assert (await client(b.first).get(sensor)).json["Reading"] == 97.0
        b.service.clear_faults(b.first.bmc.uuid)
        assert (await client(b.first).get(sensor)).json["Reading"] is None, "it is off"


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "sensor"},
        {"kind": "sensor", "sensor": "CPU Temp"},
        {"kind": "sensor", "sensor": "Nose", "value": 1},
        {"kind": "sensor", "sensor": "CPU Temp", "value": 1, "count": 3},
        {"kind": "drop", "value": 1},
    ],
)
def test_a_sensor_fault_needs_a_sensor_and_a_value(body: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        FaultRequest.model_validate(body)


def test_a_sensor_is_named_as_ipmi_or_as_redfish_names_it() -> None:
    for name in ("CPU Temp", "CPUTemp", "cpu temp"):
        body = {"kind": "sensor", "sensor": name, "value": 97}
        assert FaultRequest.model_validate(body).fault().sensor == 2


def _fault(b: Bench) -> str:
    served = b.service.status(b.first.bmc.uuid)
    assert served is not None
    return served.power_fault
