"""Sensors, FRU inventory and users: what IPMI and Redfish are both made of."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from nospoon.bmc import fru, ipmi, users
from nospoon.bmc.aggregate import Bmc
from nospoon.bmc.faults import Fault, Faults
from nospoon.bmc.faults import Kind as FaultKind
from nospoon.bmc.fru import Inventory
from nospoon.bmc.messages import AcLost, MachineReported
from nospoon.bmc.sensors import BY_NUMBER, SENSORS, Analog, Discrete, Sensor, reading, states
from nospoon.bmc.users import User
from nospoon.model.boot import BootDevice
from nospoon.model.machine import MachineChange, MachineEvent, PowerState
from nospoon.protocols.ipmi.crypto import SUITES
from nospoon.protocols.ipmi.session import Asked, Identity, Privilege, Session
from nospoon.runtime.udp import Peer
from nospoon.testing.bench import CLUSTER

IDENTITY = Identity(b"admin", b"s3cret", bytes(16))


def session() -> Session:
    made = Session(
        id=1,
        asked=Asked(1, 4, 7, SUITES[-1]),
        suite=SUITES[-1],
        identity=IDENTITY,
        source=Peer("127.0.0.1", 1, "127.0.0.1"),
        now=0.0,
    )
    made.privilege, made.active = Privilege.ADMINISTRATOR, True
    return made


def bmc(power: PowerState, *, cpus: int = 2, order: tuple[BootDevice, ...] | None = None) -> Bmc:
    boots = (BootDevice.DISK,) if order is None else order
    subject = Bmc(order=boots, script=False, inventory=Inventory(cpus=cpus))
    event = MachineEvent(CLUSTER, MachineChange.OBSERVED, power)
    list(subject.receive(MachineReported(event), 0.0))
    return subject


def read(subject: Bmc, number: int, now: float = 0.0) -> float | None:
    sensor = BY_NUMBER[number]
    assert isinstance(sensor, Analog)
    return reading(sensor, subject, now)


def bits(subject: Bmc, number: int) -> int | None:
    sensor = BY_NUMBER[number]
    assert isinstance(sensor, Discrete)
    return states(sensor, subject, 0.0)


def watts(subject: Bmc) -> float:
    drawn = read(subject, 5)
    assert drawn is not None
    return drawn


def test_power_draw_follows_power_and_cpus() -> None:
    off, small, large = (
        bmc(PowerState.OFF), bmc(PowerState.ON, cpus=1), bmc(PowerState.ON, cpus=32),
    )  # fmt: skip
    assert watts(off) < watts(small) < watts(large)
    list(off.receive(AcLost(), 0.0))
    assert watts(off) == 0


def test_the_cpu_warms_up_and_has_no_reading_when_off() -> None:
    subject = bmc(PowerState.ON)
    cold, warm = read(subject, 2, 0.0), read(subject, 2, 600.0)
    assert cold is not None
    assert warm is not None
    assert warm - cold > 10
    assert read(bmc(PowerState.OFF), 2) is None
    assert read(bmc(PowerState.OFF), 3) is None
    assert read(bmc(PowerState.OFF), 1) is not None


def test_discrete_sensors_tell_power_failure_and_nothing_to_boot() -> None:
    on, off, failed = bmc(PowerState.ON), bmc(PowerState.OFF), bmc(PowerState.FAILED)
    assert (bits(on, 6), bits(off, 6)) == (0x01, 0x20)
    assert (bits(on, 9), bits(failed, 9)) == (0x00, 0x02)
    assert (bits(on, 8), bits(bmc(PowerState.ON, order=()), 8)) == (0x00, 0x01)


def test_of_an_unknown_machine_only_the_log_is_known() -> None:
    subject = bmc(PowerState.UNKNOWN)
    told = [each.number for each in SENSORS if isinstance(each, Discrete)]
    assert [number for number in told if bits(subject, number) is not None] == [11]
    assert read(subject, 1) is None


def test_a_fault_on_demand_goes_before_all() -> None:
    subject = bmc(PowerState.OFF)
    subject.state.faults = Faults()
    subject.state.faults.put(Fault(FaultKind.SENSOR, sensor=2, value=99.0))
    subject.state.faults.put(Fault(FaultKind.SENSOR, sensor=8, value=1.0))
    assert read(subject, 2) == 99.0
    assert bits(subject, 8) == 1


@given(
    st.sampled_from(SENSORS), st.floats(), st.sampled_from([PowerState.ON, PowerState.OFF])
)  # fmt: skip
def test_whatever_a_sensor_is_told_to_read_every_command_tells_of_it(
    sensor: Sensor, value: float, power: PowerState
) -> None:
    subject = bmc(power)
    subject.state.faults = Faults()
    subject.state.faults.put(Fault(FaultKind.SENSOR, sensor=sensor.number, value=value))
    held = session()
    context = ipmi.Context(subject, IDENTITY, held, 100.0, {held.id: held}, sol=0)
    asked = [(0x04, command, bytes([sensor.number])) for command in (0x2B, 0x2D)]
    asked += [(0x2C, 0x02, b"\xdc\x01\0\0"), (0x2C, 0x10, b"\xdc\x01\x40\0\0")]
    asked += [(0x2C, 0x10, b"\xdc\x01\x41\0\0")]
    for netfn, command, data in asked:
        answer = ipmi.answer(context, netfn, command, data)
        assert isinstance(answer, ipmi.Reply)
        assert answer.code == 0
    if isinstance(sensor, Analog):
        told = reading(sensor, subject, 0.0)
        assert told is not None
        assert 0 <= told <= 255 * sensor.step
    else:
        found = states(sensor, subject, 0.0)
        assert found is not None
        assert found & ~sensor.mask == 0


@given(st.sampled_from(PowerState), st.floats(0, 1e9), st.integers(1, 1024))
def test_readings_fit_their_raw_byte(power: PowerState, now: float, cpus: int) -> None:
    subject = bmc(power, cpus=cpus)
    for each in SENSORS:
        if isinstance(each, Analog):
            value = reading(each, subject, now)
            assert value is None or 0 <= round(value / each.step) <= 255
        else:
            told = states(each, subject, now)
            assert told is None or told & ~each.mask == 0


def test_numbers_and_names_are_unique() -> None:
    assert len(BY_NUMBER) == len(SENSORS) == len({each.name for each in SENSORS})


@given(st.text(max_size=80), st.text(max_size=20), st.text(max_size=70))
def test_fru_areas_are_whole_whatever_they_say(name: str, version: str, tag: str) -> None:
    data = fru.encode(Inventory(name, CLUSTER, "NS1", version=version), asset_tag=tag)
    assert sum(data[:8]) & 0xFF == 0
    for place in data[2:5]:
        area = data[place * 8 : place * 8 + data[place * 8 + 1] * 8]
        assert sum(area) & 0xFF == 0
        assert 0xC1 in area
    assert len(data) % 8 == 0


def test_users_are_added_changed_and_taken_away() -> None:
    table = users.with_user((), User(3, "bob"))
    assert table == (User(3, "bob"),)
    assert not users.user(table, 3).may_log_in
    able = replace(
        table[0], password="secret", privilege=3, enabled=True, messaging=True
    )  # fmt: skip
    table = users.with_user(table, able)
    assert users.user(table, 3).may_log_in
    assert users.without_user(table, 3) == ()
    assert users.user(table, 9) == User(9)
