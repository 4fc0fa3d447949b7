"""Faults on demand, as ipmitool sees them."""

from __future__ import annotations

import asyncio
import socket
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable

import pytest
from pydantic import ValidationError

from nospoon.api.wire import FaultRequest
from nospoon.bmc.faults import Fault, Kind
from nospoon.bmc.messages import AcLost, AcReturned
from nospoon.model.machine import MachineChange, PowerCommand, PowerState
from nospoon.runtime import process
from nospoon.runtime.process import Finished
from nospoon.runtime.tasks import Tasks
from nospoon.services.bmcs.ports import BmcConfig
from nospoon.services.bmcs.served import Served
from nospoon.testing.bench import Bench, bench
from nospoon.testing.console import Console
from nospoon.testing.due import forward
from nospoon.testing.redfish import client

PRESENCE_PING = bytes.fromhex("0600ff06000011be80420000")


def ping(tag: int) -> bytes:
    return PRESENCE_PING[:9] + bytes([tag]) + PRESENCE_PING[10:]


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
        assert "stuck" in served(b).power_fault


async def test_power_that_lies_reports_success_does_nothing_and_is_found_out_when_cleared() -> None:
    async with bench(1) as b:
        b.service.set_fault(b.first.bmc.uuid, Fault(Kind.POWER_LIES))
        assert (await ipmitool(b.first, "power", "on")).status == 0
        assert b.machines.told == []
        assert served(b).aggregate.power is PowerState.ON
        b.service.clear_faults(b.first.bmc.uuid)
        assert "is off" in (await ipmitool(b.first, "power", "status")).stdout
        assert (await ipmitool(b.first, "power", "on")).status == 0
        assert [command for _, command, _ in b.machines.told] == [PowerCommand.ON]


async def test_a_lie_is_found_out_when_its_time_is_over() -> None:
    async with bench(1) as b:
        b.service.set_fault(b.first.bmc.uuid, Fault(Kind.POWER_LIES))
        assert await b.service.power(b.first.bmc.uuid, PowerCommand.ON) == "done"
        assert served(b).aggregate.power is PowerState.ON
        until = b.service.now + 0.2
        b.service.set_fault(b.first.bmc.uuid, Fault(Kind.POWER_LIES, until=until))
        await _so(lambda: served(b).aggregate.power is PowerState.OFF)
        assert b.service.now >= until


async def test_a_slow_power_off_is_accepted_and_takes_its_time() -> None:
    async with bench(1) as b:
        await ipmitool(b.first, "power", "on")
        b.service.set_fault(b.first.bmc.uuid, Fault(Kind.POWER_OFF_SLOW, seconds=30))
        assert (await ipmitool(b.first, "power", "off")).status == 0
        assert "is on" in (await ipmitool(b.first, "power", "status")).stdout


async def test_a_slow_power_off_ends_when_the_fault_is_cleared() -> None:
    async with bench(1) as b:
        b.machines.report(b.first.bmc.uuid, MachineChange.STARTED, PowerState.ON)
        b.service.set_fault(b.first.bmc.uuid, Fault(Kind.POWER_OFF_SLOW, seconds=3600))
        assert await b.service.power(b.first.bmc.uuid, PowerCommand.OFF) == "accepted"
        assert b.machines.told == []
        b.service.clear_faults(b.first.bmc.uuid)
        await _so(lambda: served(b).aggregate.power is PowerState.OFF)


async def test_a_power_on_does_not_use_up_a_slow_power_off() -> None:
    async with bench(1) as b:
        fault = Fault(Kind.POWER_OFF_SLOW, seconds=3600, count=1)
        b.service.set_fault(b.first.bmc.uuid, fault)
        assert await b.service.power(b.first.bmc.uuid, PowerCommand.ON) == "done"
        assert b.service.faults(b.first.bmc.uuid) == [fault]
        assert await b.service.power(b.first.bmc.uuid, PowerCommand.OFF) == "accepted"
        assert b.service.faults(b.first.bmc.uuid) == []
        b.service.clear_faults(b.first.bmc.uuid)


@pytest.mark.parametrize("kind", [Kind.POWER_STUCK, Kind.POWER_LIES])
async def test_no_fault_of_a_bmc_keeps_an_outlet_from_taking_the_power_away(kind: Kind) -> None:
    async with bench(1) as b:
        b.machines.report(b.first.bmc.uuid, MachineChange.STARTED, PowerState.ON)
        b.service.set_fault(b.first.bmc.uuid, Fault(kind))
        b.service.feed(served(b), AcLost())
        await _so(lambda: served(b).aggregate.power is PowerState.OFF)
        assert [command for _, command, _ in b.machines.told] == [PowerCommand.OFF]


async def test_a_late_datagram_to_a_bmc_that_lost_its_power_gets_no_answer() -> None:
    async with bench(2) as b, Tasks("test") as tasks:
        b.service.set_fault(b.first.bmc.uuid, Fault(Kind.DELAY, seconds=60, count=1))
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
            line.settimeout(0)
            line.connect((b.first.bmc.address, b.first.bmc.ipmi_port))
            await loop.sock_sendall(line, PRESENCE_PING)
            await _so(lambda: b.service.faults(b.first.bmc.uuid) == [])
            b.service.feed(served(b), AcLost())
            forward(60)
            for _ in range(2):  # the second one comes after all that was due before
                answer = tasks.start(asyncio.to_thread(pinged, b.configs[1]), name="ping")
                assert (await answer)[9] == 7
            with pytest.raises(BlockingIOError):
                line.recv(100)


async def test_a_late_datagram_is_lost_when_the_fault_is_cleared() -> None:
    async with bench(1) as b:
        b.service.set_fault(b.first.bmc.uuid, Fault(Kind.DELAY, seconds=60, count=1))
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
            line.settimeout(0)
            line.connect((b.first.bmc.address, b.first.bmc.ipmi_port))
            await loop.sock_sendall(line, ping(1))
            await _so(lambda: b.service.faults(b.first.bmc.uuid) == [])
            b.service.clear_faults(b.first.bmc.uuid)
            forward(60)
            for tag in (2, 3):
                await loop.sock_sendall(line, ping(tag))
                async with asyncio.timeout(20):
                    assert (await loop.sock_recv(line, 100))[9] == tag


async def test_redfish_that_is_late_answers_at_once_when_the_fault_is_cleared() -> None:
    async with bench(1) as b, Tasks("test") as tasks:
        b.service.set_fault(b.first.bmc.uuid, Fault(Kind.HTTP_DELAY, seconds=3600))
        asked = [tasks.start(_get(b.first), name="get") for _ in range(2)]
        await _so(lambda: served(b).well is not None)
        pong = tasks.start(asyncio.to_thread(pinged, b.first), name="ping")
        assert (await pong)[9] == 7, "IPMI of it is not late"
        assert not any(each.done() for each in asked)
        b.service.clear_faults(b.first.bmc.uuid)
        async with asyncio.timeout(20):
            assert [await each for each in asked] == [(200, None)] * 2


async def test_a_session_that_is_refused_late_is_refused_all_the_same() -> None:
    async with bench(1) as b:
        b.service.set_fault(b.first.bmc.uuid, Fault(Kind.DELAY, seconds=0.1))
        b.service.set_fault(b.first.bmc.uuid, Fault(Kind.REFUSE_SESSIONS))
        loop, console = asyncio.get_running_loop(), Console(b"admin", b.first.password.encode())
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
            line.settimeout(0)
            line.connect((b.first.bmc.address, b.first.bmc.ipmi_port))
            for data in (console.open_request(), PRESENCE_PING):
                await loop.sock_sendall(line, data)
            async with asyncio.timeout(20):
                console.take_open(await loop.sock_recv(line, 100))
        assert console.status == 0x01


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
        for event, status in ((AcLost(), 401), (AcReturned(), 200)):
            b.service.feed(served(b), event)
            turn = served(b).turn
            assert turn is not None
            await turn
            assert (await _get(b.first))[0] == status
            assert await _get(b.configs[1]) == (200, None)


async def test_ipmi_that_is_late_answers_after_the_seconds_it_was_told() -> None:
    async with bench(2) as b, Tasks("test") as tasks:
        b.service.set_fault(b.first.bmc.uuid, Fault(Kind.DELAY, seconds=600, count=1))
        late = tasks.start(asyncio.to_thread(pinged, b.first), name="ping")
        await _so(lambda: b.service.faults(b.first.bmc.uuid) == [])
        for seconds in (0, 500):
            forward(seconds)
            assert (await asyncio.to_thread(pinged, b.configs[1]))[9] == 7
            assert not late.done()
        forward(100)
        assert (await late)[9] == 7


async def test_redfish_that_is_late_answers_right_after_the_seconds_it_was_told() -> None:
    async with bench(2) as b, Tasks("test") as tasks:
        b.service.set_fault(b.first.bmc.uuid, Fault(Kind.HTTP_DELAY, seconds=600, count=1))
        late = tasks.start(_get(b.first), name="get")
        await _so(lambda: b.service.faults(b.first.bmc.uuid) == [])
        for seconds in (0, 500):
            forward(seconds)
            for each in b.configs:  # it is late once
                assert await _get(each) == (200, None)
            assert not late.done()
        forward(100)
        assert await late == (200, None)


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


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("field", ["value", "for_seconds", "seconds", "probability"])
def test_what_is_no_number_is_refused_by_name(field: str, number: str) -> None:
    body = f'{{"kind": "sensor", "sensor": "CPU Temp", "value": 1, "{field}": {number}}}'
    with pytest.raises(ValidationError, match=rf"(?s){field}\b.*finite number"):
        FaultRequest.model_validate_json(body)


@pytest.mark.parametrize("value", [0.5, -1.0, 32768.0, 1e300])
def test_what_is_no_set_of_states_is_refused(value: float) -> None:
    body = {"kind": "sensor", "sensor": "Boot Error", "value": value}
    with pytest.raises(ValidationError, match=r"Boot Error has states: expected a whole number"):
        FaultRequest.model_validate(body)


@pytest.mark.parametrize(
    ("sensor", "value", "shown"),
    [("Inlet Temp", -40.0, 0), ("CPU Temp", 1e300, 255), ("Power Draw", 70000.0, 1020),
     ("Power Draw", -1.0, 0), ("Fan 1", 1e9, 15300)],
)  # fmt: skip
async def test_a_sensor_shows_by_every_protocol_what_is_nearest_to_what_it_cannot_show(
    sensor: str, value: float, shown: int
) -> None:
    async with bench(1) as b:
        body = {"kind": "sensor", "sensor": sensor, "value": value}
        b.service.set_fault(b.first.bmc.uuid, FaultRequest.model_validate(body).fault())
        found = await ipmitool(b.first, "sensor", "reading", sensor)
        assert found.stdout.split("|")[1].strip() == str(shown)
        resource = f"/redfish/v1/Chassis/{b.first.bmc.uuid}/Sensors/{sensor.replace(' ', '')}"
        assert (await client(b.first).get(resource)).json["Reading"] == shown
        dcmi = await ipmitool(b.first, "dcmi", "power", "reading")
        drawn = shown if sensor == "Power Draw" else 6
        assert f"Instantaneous power reading:              {drawn:>8} Watts" in dcmi.stdout
        assert (await ipmitool(b.first, "dcmi", "get_temp_reading")).status == 0


def test_a_sensor_is_named_as_ipmi_or_as_redfish_names_it() -> None:
    for name in ("CPU Temp", "CPUTemp", "cpu temp"):
        body = {"kind": "sensor", "sensor": name, "value": 97}
        assert FaultRequest.model_validate(body).fault().sensor == 2


def pinged(each: BmcConfig) -> bytes:
    """What a BMC answers to a ping of tag 7."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.settimeout(60)
        line.connect((each.bmc.address, each.bmc.ipmi_port))
        line.send(ping(7))
        return line.recv(100)


def served(b: Bench) -> Served:
    found = b.service.status(b.first.bmc.uuid)
    assert found is not None
    return found


async def _so(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  (nobody tells)
            await asyncio.sleep(0.01)
