"""One PDU: outlets that are switched now, later, or off and on again; no socket, no clock.

Whether an outlet is on is the AC power of its node's BMC, so that the two cannot disagree. What was
to happen later is forgotten when the daemon ends, but for the second half of a reboot: an outlet
that is off for a reboot comes back (`OutletSettings.returns`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
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
    """An outlet and the BMC that it feeds. `node`: its name while nobody gave it another."""

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

    __slots__ = ("_effects", "_pending", "_rows", "name", "outlets", "serial", "started")

    def __init__(self, *, name: str, serial: str, started: float) -> None:
        self.name, self.serial, self.started = name, serial, started
        self.outlets: dict[int, Outlet] = {}
        self._rows: Sequence[int] = ()
        self._pending: dict[int, _Pending] = {}
        self._effects: list[Effect] = []

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
        if outlet.settings.returns:
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
        return effects

    def command(self, number: int, command: Command, now: float) -> None:
        """Do it, instead of what was to happen later."""
        self._pending.pop(number, None)
        settings = self.outlets[number].settings
        match command:
            case Command.ON | Command.OFF:
                self._switch(number, command)
            case Command.REBOOT:
                self._reboot(number, now)
            case Command.DELAYED_ON:
                self._after(number, Command.ON, settings.on_delay, now)
            case Command.DELAYED_OFF:
                self._after(number, Command.OFF, settings.off_delay, now)
            case Command.DELAYED_REBOOT:
                self._after(number, Command.REBOOT, settings.off_delay, now)
            case Command.CANCEL:
                pass

    def configure(self, number: int, settings: OutletSettings) -> None:
        self._effects.append(Configure(number, settings))

    def expire(self, now: float) -> None:
        """Do what was to be done by now."""
        due = [number for number, each in self._pending.items() if each.at <= now]
        for number in due:
            self.command(number, self._pending[number].command, now)

    def _switch(self, number: int, command: Command) -> None:
        settings = self.outlets[number].settings
        if settings.returns:
            self.configure(number, replace(settings, returns=False))
        self._effects.append(Switch(number, on=command is Command.ON))

    def _reboot(self, number: int, now: float) -> None:
        settings = self.outlets[number].settings
        self.configure(number, replace(settings, returns=True))
        self._effects.append(Switch(number, on=False))
        self._later(number, Command.ON, now + settings.reboot)

    def _after(self, number: int, command: Command, delay: int, now: float) -> None:
        if delay == 0:
            self.command(number, command, now)
        elif delay != NEVER:
            self._later(number, command, now + delay)

    def _later(self, number: int, command: Command, at: float) -> None:
        self._pending[number] = _Pending(at, command)
