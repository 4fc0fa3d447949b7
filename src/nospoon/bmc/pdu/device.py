"""One PDU: outlets that are switched now, later, or off and on again; no socket, no clock.

Whether an outlet is on is the AC power of its node's BMC, so that the two cannot disagree. What was
to happen later is forgotten when the daemon ends, but for the second half of a reboot: an outlet
that is off for a reboot comes back (`OutletSettings.returns`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any
from uuid import UUID

from nospoon.bmc.aggregate import Bmc
from nospoon.bmc.runtime import OutletSettings

NEVER = -1
"""As a delay: a delayed command does nothing (PowerNet-MIB, rPDUOutletConfigPowerOnTime)."""


class Command(Enum):
    """What an outlet can be told."""

    ON = auto()
    OFF = auto()
    REBOOT = auto()
    DELAYED_ON = auto()
    DELAYED_OFF = auto()
    DELAYED_REBOOT = auto()
    CANCEL = auto()


LATER = {
    Command.DELAYED_ON: Command.ON,
    Command.DELAYED_OFF: Command.OFF,
    Command.DELAYED_REBOOT: Command.REBOOT,
}
"""What is done when the delay is over."""


@dataclass(frozen=True, slots=True)
class Switch:
    """Give AC power to this outlet, or take it away."""

    outlet: int
    on: bool


@dataclass(frozen=True, slots=True)
class Configure:
    """Keep these settings of an outlet."""

    outlet: int
    settings: OutletSettings


Effect = Switch | Configure


@dataclass(frozen=True, slots=True)
class Outlet:
    """An outlet and the BMC that it feeds. `node`: its name while no one gave it another."""

    uuid: UUID
    node: str
    bmc: Bmc

    @property
    def settings(self) -> OutletSettings:
        return self.bmc.runtime.settings.outlet

    @property
    def name(self) -> str:
        return self.settings.name or self.node


@dataclass(frozen=True, slots=True)
class _Pending:
    at: float
    command: Command


class Pdu:
    """`name` and `serial` as SNMP tells them. `started`: `now` of its start."""

    __slots__ = (
        "_changed", "_effects", "_pending", "_rows", "name", "outlets", "serial", "started",
    )  # fmt: skip

    def __init__(self, *, name: str, serial: str, started: float) -> None:
        self.name, self.serial, self.started = name, serial, started
        self.outlets: dict[int, Outlet] = {}
        self._rows: Sequence[int] = ()
        self._pending: dict[int, _Pending] = {}
        self._effects: list[Effect] = []
        self._changed: dict[int, OutletSettings] = {}

    @property
    def rows(self) -> Sequence[int]:
        """Numbers of its outlets, in order."""
        return self._rows

    @property
    def deadline(self) -> float | None:
        """When `expire` wants to be called."""
        return min((each.at for each in self._pending.values()), default=None)

    def plug(self, number: int, outlet: Outlet, now: float) -> None:
        """This node is fed by that outlet."""
        self.outlets[number] = outlet
        self._rows = sorted(self.outlets)
        if outlet.settings.returns and number not in self._pending:
            self._later(number, Command.ON, now + outlet.settings.reboot)

    def unplug(self, number: int) -> None:
        self.outlets.pop(number, None)
        self._pending.pop(number, None)
        self._rows = sorted(self.outlets)

    def is_pending(self, number: int) -> bool:
        return number in self._pending

    def drain(self) -> list[Effect]:
        """What is to be done since this was asked last."""
        effects, self._effects = self._effects, []
        self._changed.clear()
        return effects

    def settings(self, number: int) -> OutletSettings:
        """An outlet's, with what was told since `drain`."""
        return self._changed.get(number, self.outlets[number].settings)

    def command(self, number: int, command: Command, now: float) -> None:
        """Do it, instead of what was to happen later."""
        settings = self.settings(number)
        delays = {
            Command.DELAYED_ON: settings.on_delay,
            Command.DELAYED_OFF: settings.off_delay,
            Command.DELAYED_REBOOT: settings.off_delay,
        }
        if delays.get(command) == NEVER:
            return
        self._pending.pop(number, None)
        if settings.returns and command is not Command.REBOOT:
            self.configure(number, returns=False)
        match command:
            case Command.ON | Command.OFF:
                self._effects.append(Switch(number, on=command is Command.ON))
            case Command.REBOOT:
                self._reboot(number, now)
            case Command.DELAYED_ON | Command.DELAYED_OFF | Command.DELAYED_REBOOT:
                self._after(number, LATER[command], delays[command], now)
            case Command.CANCEL:
                pass

    def configure(self, number: int, **changed: Any) -> None:
        """Keep these fields of an outlet's settings; the others stay."""
        self._changed[number] = replace(self.settings(number), **changed)
        self._effects.append(Configure(number, self._changed[number]))

    def expire(self, now: float) -> None:
        """Do what was to be done by now."""
        due = [number for number, each in self._pending.items() if each.at <= now]
        for number in due:
            self.command(number, self._pending[number].command, now)

    def _reboot(self, number: int, now: float) -> None:
        self.configure(number, returns=True)
        self._effects.append(Switch(number, on=False))
        self._later(number, Command.ON, now + self.settings(number).reboot)

    def _after(self, number: int, command: Command, delay: int, now: float) -> None:
        if delay == 0:
            self.command(number, command, now)
        else:
            self._later(number, command, now + delay)

    def _later(self, number: int, command: Command, at: float) -> None:
        self._pending[number] = _Pending(at, command)
