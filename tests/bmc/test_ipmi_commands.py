"""The table of IPMI commands: privileges, lengths, and what each answers, byte by byte."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nospoon.bmc import ipmi
from nospoon.bmc.aggregate import Bmc
from nospoon.bmc.fru import Inventory
from nospoon.bmc.ipmi.boot_options import decode_flags, encode_flags
from nospoon.bmc.messages import (
    ClearingRequested,
    IdentifyRequested,
    MachineReported,
    OverrideRequested,
    PowerRequested,
    SettingsRequested,
    Verdict,
)
from nospoon.bmc.runtime import Runtime, Settings
from nospoon.bmc.software import AS_MADE, Component, installed
from nospoon.bmc.users import OWNER, User
from nospoon.model.boot import BootDevice, BootMode, BootOverride, OverrideEnabled
from nospoon.model.machine import MachineChange, MachineEvent, PowerCommand, PowerState
from nospoon.protocols.ipmi.crypto import SUITES
from nospoon.protocols.ipmi.session import Asked, Identity, Privilege, Session
from nospoon.runtime.udp import Peer
from nospoon.testing.bench import CLUSTER, ORDER

GUID = bytes(range(16))
IDENTITY = Identity(b"admin", b"s3cret", GUID)


def bmc(power: PowerState = PowerState.OFF, runtime: Runtime | None = None, why: str = "") -> Bmc:
    subject = Bmc(order=ORDER, script=False, runtime=runtime)
    event = MachineEvent(CLUSTER, MachineChange.OBSERVED, power, why)
    list(subject.receive(MachineReported(event), 0.0))
    return subject


def session(privilege: Privilege = Privilege.ADMINISTRATOR) -> Session:
    made = Session(
        id=0x01020304,
        asked=Asked(1, privilege, 7, SUITES[-1]),
        suite=SUITES[-1],
        identity=IDENTITY,
        source=Peer("127.0.0.1", 1, "127.0.0.1"),
        now=0.0,
    )
    made.privilege, made.active = privilege, True
    return made


def ask(
    netfn: int,
    command: int,
    data: bytes = b"",
    *,
    subject: Bmc | None = None,
    privilege: Privilege = Privilege.ADMINISTRATOR,
    now: float = 100.0,
) -> ipmi.Result | None:
    held = session(privilege) if privilege else None
    sessions = {held.id: held} if held is not None else {}
    context = ipmi.Context(subject or bmc(), IDENTITY, held, now, sessions, sol=0)
    return ipmi.answer(context, netfn, command, data)


def code(result: ipmi.Result | None) -> int:
    assert isinstance(result, ipmi.Reply)
    return result.code


def data_of(result: ipmi.Result | None) -> bytes:
    assert isinstance(result, ipmi.Reply)
    assert result.code == 0
    return result.data


@pytest.mark.parametrize("key", sorted(ipmi.COMMANDS))
def test_every_command_needs_its_privilege(key: tuple[int, int]) -> None:
    row = ipmi.COMMANDS[key]
    for privilege in Privilege:
        result = ask(*key, bytes(row.length), privilege=privilege)
        if privilege is Privilege.NONE and row.privilege is not Privilege.NONE:
            assert result is None
        elif privilege < row.privilege:
            assert code(result) == 0xD4
        else:
            assert result != ipmi.Reply(0xD4)


@pytest.mark.parametrize("key", sorted(k for k, row in ipmi.COMMANDS.items() if row.length))
def test_a_request_that_is_too_short_is_told_so(key: tuple[int, int]) -> None:
    assert code(ask(*key, bytes(ipmi.COMMANDS[key].length - 1))) == 0xC7


@pytest.mark.parametrize(
    "key", sorted(k for k, row in ipmi.COMMANDS.items() if row.more is not None)
)
def test_a_request_that_is_too_long_is_told_so_and_not_done(key: tuple[int, int]) -> None:
    row = ipmi.COMMANDS[key]
    assert row.more is not None
    assert code(ask(*key, bytes([1] * (row.length + row.more + 1)))) == 0xC7


def test_chassis_control_with_a_byte_too_many_switches_nothing() -> None:
    assert ask(0x00, 0x02, b"\1\1") == ipmi.Reply(0xC7)
    assert ask(0x00, 0x04, b"\1\0") != ipmi.Reply(0xC7)


def test_an_unknown_command_is_told_so_within_a_session_only() -> None:
    assert code(ask(0x0A, 0x7F)) == 0xC1
    assert ask(0x0A, 0x7F, privilege=Privilege.NONE) is None


@given(st.sampled_from(sorted(ipmi.COMMANDS)), st.binary(max_size=40), st.sampled_from(Privilege))
def test_no_data_makes_a_handler_fail(
    key: tuple[int, int], data: bytes, privilege: Privilege
) -> None:
    reply = ask(*key, data, privilege=privilege)
    assert reply is not None or privilege < Privilege.USER, "who is logged in is answered"
    if isinstance(reply, ipmi.Reply):
        assert 0 <= reply.code <= 0xFF
        assert reply.data == b"" or not reply.code, "an error has no data"


_PLAUSIBLE = st.lists(
    st.sampled_from([0, 1, 2, 3, 4, 5, 0x10, 0x41, 0x80, 0xAA, 0xDC, 0xFF]), max_size=24
).map(bytes)
"""Data that handlers get further with than with any bytes."""


@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(ipmi.COMMANDS)), st.binary(max_size=30), st.floats(0, 9)),
        max_size=12,
    )
)
def test_no_sequence_of_commands_breaks_the_aggregate(
    requests: list[tuple[tuple[int, int], bytes, float]],
) -> None:
    subject, now = bmc(PowerState.ON), 0.0
    for key, data, later in requests:
        now += later
        list(subject.expire(now))
        padded = data.ljust(ipmi.COMMANDS[key].length, b"\0")
        match ask(*key, padded, subject=subject, now=now):
            case ipmi.Reply(code=code, data=reply):
                assert 0 <= code <= 0xFF
                assert isinstance(reply, bytes)
            case ipmi.Ask(event=event):
                list(subject.receive(event, now))
            case _:
                pass
    assert msgspec.convert(msgspec.to_builtins(subject.runtime), Runtime) == subject.runtime


@pytest.mark.parametrize(
    ("power", "runtime", "byte"),
    [
        (PowerState.OFF, Runtime(), 0x20),
        (PowerState.ON, Runtime(), 0x21),
        (PowerState.FAILED, Runtime(), 0x29),
        (PowerState.OFF, Runtime(power_fault="no"), 0x38),
        (PowerState.ABSENT, Runtime(), 0x28),
    ],
)
def test_chassis_status_tells_power_and_faults(
    power: PowerState, runtime: Runtime, byte: int
) -> None:
    assert data_of(ask(0x00, 0x01, subject=bmc(power, runtime)))[0] == byte


def test_the_status_of_a_machine_out_of_reach_is_no_answer() -> None:
    assert code(ask(0x00, 0x01, subject=bmc(PowerState.UNKNOWN))) == 0xD3


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (b"", ipmi.Ask(IdentifyRequested(lit=True, seconds=15))),
        (b"\x05", ipmi.Ask(IdentifyRequested(lit=True, seconds=5))),
        (b"\x00", ipmi.Ask(IdentifyRequested(lit=False, seconds=0))),
        (b"\x00\x01", ipmi.Ask(IdentifyRequested(lit=True))),
    ],
)
def test_identify_is_for_seconds_or_for_good(data: bytes, wanted: ipmi.Ask) -> None:
    assert ask(0x00, 0x04, data) == wanted


def test_the_identify_light_shows_in_the_status() -> None:
    subject = bmc()
    list(subject.receive(IdentifyRequested(lit=True, ticket=1, seconds=5), 0.0))
    assert data_of(ask(0x00, 0x01, subject=subject))[2] == 0x50
    list(subject.receive(IdentifyRequested(lit=True, ticket=2), 0.0))
    assert data_of(ask(0x00, 0x01, subject=subject))[2] == 0x60


@pytest.mark.parametrize(
    ("byte", "command"),
    [(0, "off"), (1, "on"), (2, "cycle"), (3, "reset"), (4, "diag"), (5, "soft")],
)
def test_chassis_control_asks_for_the_command(byte: int, command: str) -> None:
    assert ask(0x00, 0x02, bytes([byte])) == ipmi.Ask(PowerRequested(PowerCommand(command)))


def test_an_unknown_chassis_control_is_an_invalid_field() -> None:
    assert code(ask(0x00, 0x02, b"\x0e")) == 0xCC


def test_every_verdict_has_a_completion_code() -> None:
    assert set(ipmi.CODES) == set(Verdict)
    good = {verdict for verdict, value in ipmi.CODES.items() if value == 0}
    assert good == {Verdict.DONE, Verdict.ACCEPTED}


@pytest.mark.parametrize(
    ("flags", "override"),
    [
        ("a0 04 00 00 00", ("network", "Once", "UEFI")),
        ("e0 08 00 00 00", ("disk", "Continuous", "UEFI")),
        ("80 14 00 00 00", ("cdrom", "Once", None)),
        ("80 18 00 00 00", ("setup", "Once", None)),
        ("00 04 00 00 00", None),
        ("80 00 00 00 00", None),
    ],
    ids=["Ironic PXE", "Ironic disk", "cdrom", "bios", "not valid", "no device"],
)
def test_boot_flags_of_real_clients_are_understood(
    flags: str, override: tuple[str, str, str | None] | None
) -> None:
    wanted = BootOverride()
    if override is not None:
        target, enabled, mode = override
        wanted = BootOverride(
            BootDevice(target), OverrideEnabled(enabled), BootMode(mode) if mode else None
        )
    data = bytes.fromhex(flags)
    assert ask(0x00, 0x08, b"\x05" + data) == ipmi.Ask(OverrideRequested(wanted, flags=data))


def test_a_boot_device_that_no_machine_has_is_an_invalid_field() -> None:
    assert code(ask(0x00, 0x08, bytes.fromhex("05 80 3c 00 00 00"))) == 0xCC


def test_ironic_keeps_flags_without_timeout() -> None:
    assert ask(0x00, 0x08, b"\x03\x08") == ipmi.Ask(ClearingRequested(0x08))


def test_flags_are_read_as_they_were_written() -> None:
    written = bytes.fromhex("a0 04 00 00 00")
    subject = bmc(runtime=Runtime(boot_flags=written))
    assert data_of(ask(0x00, 0x09, b"\x05\x00\x00", subject=subject)) == b"\x01\x05" + written


def test_what_boots_its_root_alone_takes_no_other_device() -> None:
    subject = bmc()
    subject.state.inventory = Inventory(boots_root=True)
    for refused in (0x04, 0x14, 0x18):
        flags = bytes([5, 0x80, refused, 0, 0, 0])
        assert code(ask(0x00, 0x08, flags, subject=subject)) == 0xCC
    for taken in (0x00, 0x08):
        flags = bytes([5, 0x80, taken, 0, 0, 0])
        assert isinstance(ask(0x00, 0x08, flags, subject=subject), ipmi.Ask)


_OVERRIDES = st.builds(
    BootOverride,
    st.sampled_from(
        [each for each in BootDevice if each is not BootDevice.HTTP]
    ),  # IPMI has no word
    st.sampled_from([OverrideEnabled.ONCE, OverrideEnabled.CONTINUOUS]),
    st.sampled_from([None, BootMode.UEFI]),
)


@given(_OVERRIDES)
def test_flags_for_an_override_mean_that_override(override: BootOverride) -> None:
    assert decode_flags(encode_flags(override)) == override


@given(st.binary(min_size=5, max_size=5))
def test_any_five_bytes_are_an_override_or_refused(flags: bytes) -> None:
    decoded = decode_flags(flags)
    assert decoded is None or decoded == decode_flags(encode_flags(decoded))


def test_privilege_cannot_be_raised_above_the_limit() -> None:
    held = session(Privilege.USER)
    context = ipmi.Context(bmc(), IDENTITY, held)
    assert code(ipmi.answer(context, 0x06, 0x3B, b"\x04")) == 0x81
    assert held.privilege is Privilege.USER
    assert data_of(ipmi.answer(context, 0x06, 0x3B, b"\x00")) == b"\x02"


def test_the_guid_and_the_suites_are_told_without_login() -> None:
    assert data_of(ask(0x06, 0x37, privilege=Privilege.NONE)) == GUID
    told = data_of(ask(0x06, 0x54, b"\x0e\x00\x80", privilege=Privilege.NONE))
    assert told.hex() == "01" + "c003014181" + "c011034481"
    assert data_of(ask(0x06, 0x54, b"\x0e\x00\x81", privilege=Privilege.NONE)) == b"\x01"
    told = data_of(ask(0x06, 0x38, b"\x8e\x04", privilege=Privilege.NONE))
    assert told[1:4] == bytes([0x80, 0x04, 0x02])


def test_only_ones_own_session_is_closed() -> None:
    assert ask(0x06, 0x3C, bytes([4, 3, 2, 1])) == ipmi.Close(0x01020304)
    assert code(ask(0x06, 0x3C, bytes([9, 9, 9, 9]))) == 0x87


@pytest.mark.parametrize(("handle", "said"), [(0, 0x88), (2, 0x88), (1, None)])
def test_a_handle_that_no_session_has_is_told_as_such(handle: int, said: int | None) -> None:
    answer = ask(0x06, 0x3C, bytes([0, 0, 0, 0, handle]))
    if said is None:
        assert answer == ipmi.Close(0x01020304)
    else:
        assert code(answer) == said


def test_channel_info_counts_the_sessions() -> None:
    assert data_of(ask(0x06, 0x42, b"\x0e"))[:4] == bytes([1, 4, 1, 0x80 | 1])


SHORT, LONG = 16, 20


@pytest.mark.parametrize(
    ("kept", "number", "given", "size", "said"),
    [
        (User(3, "bob", "hunter22"), 3, b"hunter22", SHORT, 0x00),
        (User(3, "bob", "hunter22"), 3, b"hunter2", SHORT, 0x80),
        (User(3, "bob", "hunter22"), 3, b"hunter22", LONG, 0x81),
        (User(3, "bob", "hunter22", long=True), 3, b"hunter22", LONG, 0x00),
        (User(3, "bob", "hunter22", long=True), 3, b"hunter22", SHORT, 0x81),
        (User(3, "bob", "seventeen letters"), 3, b"seventeen letter", SHORT, 0x81),
        (User(3, "bob", "seventeen letters"), 3, b"seventeen letters", LONG, 0x00),
        (User(3, "bob"), OWNER, b"s3cret", SHORT, 0x00),
    ],
)
def test_a_password_is_tested_in_the_size_in_which_it_was_set(
    kept: User, number: int, given: bytes, size: int, said: int
) -> None:
    subject = bmc(runtime=Runtime(settings=Settings(users=(kept,))))
    head = bytes([(0x80 if size == LONG else 0) | number, 3])
    assert code(ask(0x06, 0x47, head + given.ljust(size, b"\0"), subject=subject)) == said


def test_a_password_is_kept_with_the_size_in_which_it_was_set() -> None:
    for first, long in ((3, False), (0x83, True)):
        size = LONG if long else SHORT
        answer = ask(0x06, 0x47, bytes([first, 2]) + b"hunter22".ljust(size, b"\0"))
        assert isinstance(answer, ipmi.Ask)
        assert isinstance(answer.event, SettingsRequested)
        assert [each.long for each in answer.event.settings.users] == [long]


def test_a_warning_of_the_watchdog_before_its_start_is_refused() -> None:
    assert code(ask(0x06, 0x24, bytes([4, 0x21, 6, 0, 50, 0]))) == 0xCC
    assert isinstance(ask(0x06, 0x24, bytes([4, 0x21, 5, 0, 50, 0])), ipmi.Ask)
    assert isinstance(ask(0x06, 0x24, bytes([4, 0x01, 6, 0, 50, 0])), ipmi.Ask), "none is asked for"


_TAG, _ID = (0x08, 0x06), (0x0A, 0x09)
_TEXTS = st.binary(min_size=1, max_size=63).map(lambda data: data.replace(b"\0", b"\xff"))


def written(subject: Bmc, set_: int, offset: int, part: bytes) -> ipmi.Result | None:
    """Carries out what is asked for."""
    told = ask(0x2C, set_, bytes([0xDC, offset, len(part)]) + part, subject=subject)
    if isinstance(told, ipmi.Ask):
        list(subject.receive(told.event, 0.0))
    return told


@given(text=_TEXTS, size=st.integers(1, 16), commands=st.sampled_from([_TAG, _ID]))
@example(text="abcdefghijklmnoéXYZ0123456789".encode(), size=16, commands=_TAG)
@example(text=b"\xff" * 63, size=16, commands=_TAG)
def test_dcmi_gives_back_every_byte_in_whatever_parts_it_was_written(
    text: bytes, size: int, commands: tuple[int, int]
) -> None:
    subject, (set_, get) = bmc(), commands
    end = b"\0" if commands == _ID else b""
    for offset in range(0, len(text + end), size):
        told = written(subject, set_, offset, (text + end)[offset : offset + size])
        assert isinstance(told, ipmi.Ask)
    found = b"".join(
        data_of(ask(0x2C, get, bytes([0xDC, offset, 16]), subject=subject))[2:]
        for offset in range(0, len(text + end), 16)
    )
    assert found == text + end


@pytest.mark.parametrize("set_", [_TAG[0], _ID[0]])
def test_dcmi_has_room_for_63_bytes_and_a_zero(set_: int) -> None:
    subject = bmc()
    for offset in (0, 16, 32):
        assert isinstance(written(subject, set_, offset, b"x" * 16), ipmi.Ask)
    assert code(written(subject, set_, 48, b"x" * 16)) == 0xC9
    assert isinstance(written(subject, set_, 48, b"x" * 15 + b"\0"), ipmi.Ask)


@pytest.mark.parametrize(
    ("instance", "start", "told"),
    [(0, 0, "dc01010100"), (0, 1, "dc01010100"), (0, 2, "dc0100"), (1, 0, "dc01010100"),
     (2, 0, "dc0100")],
)  # fmt: skip
def test_dcmi_tells_of_the_instances_that_are_asked_for(
    instance: int, start: int, told: str
) -> None:
    data = bytes([0xDC, 0x01, 0x40, instance, start])
    assert data_of(ask(0x2C, 0x07, data)).hex() == told
    assert code(ask(0x2C, 0x07, b"\xdc\x02" + data[2:])) == 0xCC
    readings = data_of(ask(0x2C, 0x10, data))
    assert readings[:2] == b"\xdc\x01"
    assert len(readings) == (5 if len(told) > 6 else 3)


@pytest.mark.parametrize(
    ("version", "told"),
    [
        ("0.1.0", "00 01 02 8f 00 00 00 00 00 00 00 00 00"),
        ("4.12.0-rc2", "04 12 02 8f 00 00 00 00 00 00 02 00 00"),
        ("2026.123.7.300", "7f 99 02 8f 00 00 00 00 00 07 ff 00 00"),
        ("9afe5b0c1d2e", "01 00 02 8f 00 00 00 00 00 00 00 00 00"),
        ("123456789012", "01 00 02 8f 00 00 00 00 00 00 00 00 00"),
    ],
)
def test_the_device_id_tells_the_version_to_which_the_bmc_was_updated(
    version: str, told: str
) -> None:
    software = installed(AS_MADE, Component.BMC, version)
    subject = bmc(runtime=Runtime(software=software))
    assert data_of(ask(0x06, 0x01, subject=subject)) == bytes.fromhex("20 01" + told)


def test_system_info_tells_the_firmware_of_the_machine_as_made_and_as_updated() -> None:
    for version, length in (("", 7), ("2.10.3", 6)):
        software = installed(AS_MADE, Component.BIOS, version) if version else AS_MADE
        subject = bmc(runtime=Runtime(software=software))
        subject.state.inventory = Inventory(version="0.1.0", firmware="SeaBIOS")
        told = bytes([0x11, 0, 0, length]) + (version or "SeaBIOS").encode()
        assert data_of(ask(0x06, 0x59, b"\0\1\0\0", subject=subject)) == told.ljust(18, b"\0")
