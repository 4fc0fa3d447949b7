"""APC rack PDUs as a table: the objects of PowerNet-MIB (enterprise 318) by which outlets are
switched in rPDU (…318.1.1.12), sPDU (…318.1.1.4, MasterSwitch) and sPDUMSP (…318.1.1.6,
MasterSwitch plus), and the system group (RFC 3418). Ironic's `snmp` driver uses one each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nospoon import __version__
from nospoon.bmc.pdu.device import NEVER, Command, Pdu
from nospoon.protocols.snmp.ber import Oid, Tag, Value, integer, text
from nospoon.protocols.snmp.mib import Column

SYSTEM = (1, 3, 6, 1, 2, 1, 1)
APC = (1, 3, 6, 1, 4, 1, 318)
RPDU = (*APC, 1, 1, 12)
SPDU = (*APC, 1, 1, 4)
MSP = (*APC, 1, 1, 6)
MODEL = "AP7900"
ON, OFF = 1, 2
YES, NO = 1, 2
LONGEST_DELAY = 7200
REBOOT_SECONDS = range(5, 61)
NAME_LENGTH = 23

_RPDU_COMMANDS = {
    1: Command.ON,
    2: Command.OFF,
    3: Command.REBOOT,
    4: Command.DELAYED_ON,
    5: Command.DELAYED_OFF,
    6: Command.DELAYED_REBOOT,
    7: Command.CANCEL,
}
_ALL_COMMANDS = {number + 1: command for number, command in _RPDU_COMMANDS.items()}
"""rPDUOutletDevCommand: 1 is noCommand."""
_MASTER_COMMANDS = {
    1: Command.ON,
    2: Command.DELAYED_ON,
    3: Command.OFF,
    4: Command.REBOOT,
    5: Command.DELAYED_REBOOT,
    7: Command.DELAYED_OFF,
}
"""sPDUMasterControlSwitch: turnAllOnNow, turnAllOnSequence (by each outlet's delay) …; 6 is
noCommand.
"""
_NO_MASTER_COMMAND = 6
_SPDU_COMMANDS = {
    1: Command.ON,
    2: Command.OFF,
    3: Command.REBOOT,
    5: Command.DELAYED_ON,
    6: Command.DELAYED_OFF,
    7: Command.DELAYED_REBOOT,
    8: Command.CANCEL,
}
_MSP_COMMANDS = {1: Command.ON, 3: Command.OFF}

Read = Callable[[Pdu, int, float], Value]


def _state(device: Pdu, outlet: int, now: float) -> Value:
    del now
    return integer(ON if device.outlets[outlet].bmc.has_power else OFF)


def _msp_state(device: Pdu, outlet: int, now: float) -> Value:
    del now
    return integer(1 if device.outlets[outlet].bmc.has_power else 3)


def _pending(device: Pdu, outlet: int, now: float) -> Value:
    del now
    return integer(YES if device.is_pending(outlet) else NO)


def _any_pending(device: Pdu, _: int, now: float) -> Value:
    del now
    return integer(YES if any(device.is_pending(each) for each in device.rows) else NO)


def _name(device: Pdu, outlet: int, now: float) -> Value:
    del now
    return text(device.outlets[outlet].name)


def _uptime(device: Pdu, _: int, now: float) -> Value:
    return Value(Tag.TIMETICKS, int((now - device.started) * 100) & 0xFFFFFFFF)


def _states(device: Pdu, _: int, now: float) -> Value:
    """sPDUMasterState: "On On Off …"."""
    del now
    return text(
        " ".join("On" if device.outlets[each].bmc.has_power else "Off" for each in device.rows)
    )


def _number(device: Pdu, outlet: int, now: float) -> Value:
    del device, now
    return integer(outlet)


def _size(device: Pdu, _: int, now: float) -> Value:
    del now
    return integer(len(device.rows))


def _setting(field: str) -> Read:
    def read(device: Pdu, outlet: int, now: float) -> Value:
        del now
        return integer(getattr(device.outlets[outlet].settings, field))

    return read


def _constant(value: Value) -> Read:
    return lambda _device, _outlet, _now: value


def _commanded(
    oid: Oid, name: str, read: Read, commands: Mapping[int, Command], *, everywhere: bool = False
) -> Column[Pdu]:
    """An object that is written with a command; `everywhere`: a scalar, for all outlets."""

    def write(device: Pdu, outlet: int, value: int | bytes, now: float) -> None:
        command = commands.get(value) if isinstance(value, int) else None
        if command is None:
            return
        for each in device.rows if everywhere else (outlet,):
            device.command(each, command, now)

    nothing = _NO_MASTER_COMMAND if commands is _MASTER_COMMANDS else 1
    allowed = {*commands, nothing}
    return Column(oid, name, read, write, accepts=allowed.__contains__, rows=not everywhere)


def _configured(oid: Oid, name: str, field: str, accepts: Callable[[int], bool]) -> Column[Pdu]:
    """A number of seconds that is kept."""

    def write(device: Pdu, outlet: int, value: int | bytes, now: float) -> None:
        del now
        changed: dict[str, object] = {field: value}
        device.configure(outlet, **changed)

    return Column(
        oid,
        name,
        _setting(field),
        write,
        accepts=lambda value: isinstance(value, int) and accepts(value),
    )


def _named(oid: Oid, name: str) -> Column[Pdu]:
    def write(device: Pdu, outlet: int, value: int | bytes, now: float) -> None:
        del now
        assert isinstance(value, bytes), "the type was checked"
        device.configure(outlet, name=value.decode())

    return Column(oid, name, _name, write, tag=Tag.OCTETS, accepts=_is_name)


def _is_name(value: int | bytes) -> bool:
    return isinstance(value, bytes) and value.isascii() and 0 < len(value) <= NAME_LENGTH


def _is_delay(seconds: int) -> bool:
    return NEVER <= seconds <= LONGEST_DELAY


def _scalar(oid: Oid, name: str, read: Read) -> Column[Pdu]:
    return Column(oid, name, read, rows=False)


def _fixed(oid: Oid, name: str, value: Value) -> Column[Pdu]:
    return _scalar(oid, name, _constant(value))


COLUMNS: tuple[Column[Pdu], ...] = (
    _fixed((*SYSTEM, 1), "sysDescr", text(f"APC Rack PDU {MODEL} (nospoon {__version__})")),
    # hardware tells a product (…318.1.3.4.5); Ironic's `auto` looks for the MIB's own branch
    _fixed((*SYSTEM, 2), "sysObjectID", Value(Tag.OID, RPDU)),
    _scalar((*SYSTEM, 3), "sysUpTime", _uptime),
    _fixed((*SYSTEM, 4), "sysContact", text("")),
    _scalar((*SYSTEM, 5), "sysName", lambda device, _outlet, _now: text(device.name)),
    _fixed((*SYSTEM, 6), "sysLocation", text("")),
    _fixed((*SYSTEM, 7), "sysServices", integer(72)),
    _commanded(
        (*SPDU, 2, 1), "sPDUMasterControlSwitch", _constant(integer(_NO_MASTER_COMMAND)),
        _MASTER_COMMANDS, everywhere=True,
    ),
    _scalar((*SPDU, 2, 2), "sPDUMasterState", _states),
    _scalar((*SPDU, 2, 3), "sPDUMasterPending", _any_pending),
    _fixed((*SPDU, 3, 1), "sPDUMasterConfigPowerOn", integer(0)),
    _scalar((*SPDU, 4, 1), "sPDUOutletControlTableSize", _size),
    Column((*SPDU, 4, 2, 1, 1), "sPDUOutletControlIndex", _number),
    Column((*SPDU, 4, 2, 1, 2), "sPDUOutletPending", _pending),
    _commanded((*SPDU, 4, 2, 1, 3), "sPDUOutletCtl", _state, _SPDU_COMMANDS),
    Column((*SPDU, 4, 2, 1, 4), "sPDUOutletCtlName", _name),
    Column((*SPDU, 5, 2, 1, 1), "sPDUOutletConfigIndex", _number),
    _configured((*SPDU, 5, 2, 1, 2), "sPDUOutletPowerOnTime", "on_delay", _is_delay),
    _named((*SPDU, 5, 2, 1, 3), "sPDUOutletName"),
    _configured((*SPDU, 5, 2, 1, 4), "sPDUOutletPowerOffTime", "off_delay", _is_delay),
    _configured(
        (*SPDU, 5, 2, 1, 5), "sPDUOutletRebootDuration", "reboot", REBOOT_SECONDS.__contains__
    ),
    _commanded((*MSP, 5, 1, 1, 5), "sPDUOutletControlMSPOutletCommand", _msp_state, _MSP_COMMANDS),
    _scalar((*RPDU, 1, 1), "rPDUIdentName", lambda device, _outlet, _now: text(device.name)),
    _fixed((*RPDU, 1, 2), "rPDUIdentHardwareRev", text("B2")),
    _fixed((*RPDU, 1, 3), "rPDUIdentFirmwareRev", text(__version__)),
    _fixed((*RPDU, 1, 5), "rPDUIdentModelNumber", text(MODEL)),
    _scalar(
        (*RPDU, 1, 6), "rPDUIdentSerialNumber", lambda device, _outlet, _now: text(device.serial)
    ),
    _scalar((*RPDU, 1, 8), "rPDUIdentDeviceNumOutlets", _size),
    _commanded(
        (*RPDU, 3, 1, 1), "rPDUOutletDevCommand", _constant(integer(1)), _ALL_COMMANDS,
        everywhere=True,
    ),
    _scalar((*RPDU, 3, 1, 3), "rPDUOutletDevNumCntrlOutlets", _size),
    _scalar((*RPDU, 3, 1, 4), "rPDUOutletDevNumTotalOutlets", _size),
    Column((*RPDU, 3, 3, 1, 1, 1), "rPDUOutletControlIndex", _number),
    Column((*RPDU, 3, 3, 1, 1, 2), "rPDUOutletControlOutletName", _name),
    Column((*RPDU, 3, 3, 1, 1, 3), "rPDUOutletControlOutletPhase", _constant(integer(1))),
    _commanded(
        (*RPDU, 3, 3, 1, 1, 4), "rPDUOutletControlOutletCommand", _state, _RPDU_COMMANDS
    ),
    Column((*RPDU, 3, 3, 1, 1, 5), "rPDUOutletControlOutletBank", _constant(integer(1))),
    Column((*RPDU, 3, 4, 1, 1, 1), "rPDUOutletConfigIndex", _number),
    _named((*RPDU, 3, 4, 1, 1, 2), "rPDUOutletConfigOutletName"),
    Column((*RPDU, 3, 4, 1, 1, 3), "rPDUOutletConfigOutletPhase", _constant(integer(1))),
    _configured((*RPDU, 3, 4, 1, 1, 4), "rPDUOutletConfigPowerOnTime", "on_delay", _is_delay),
    _configured((*RPDU, 3, 4, 1, 1, 5), "rPDUOutletConfigPowerOffTime", "off_delay", _is_delay),
    _configured(
        (*RPDU, 3, 4, 1, 1, 6), "rPDUOutletConfigRebootDuration", "reboot",
        REBOOT_SECONDS.__contains__,
    ),
    Column((*RPDU, 3, 5, 1, 1, 1), "rPDUOutletStatusIndex", _number),
    Column((*RPDU, 3, 5, 1, 1, 2), "rPDUOutletStatusOutletName", _name),
    Column((*RPDU, 3, 5, 1, 1, 3), "rPDUOutletStatusOutletPhase", _constant(integer(1))),
    Column((*RPDU, 3, 5, 1, 1, 4), "rPDUOutletStatusOutletState", _state),
    Column((*RPDU, 3, 5, 1, 1, 5), "rPDUOutletStatusCommandPending", _pending),
    Column((*RPDU, 3, 5, 1, 1, 6), "rPDUOutletStatusOutletBank", _constant(integer(1))),
)  # fmt: skip
