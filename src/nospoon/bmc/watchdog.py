"""The watchdog timer (IPMI 2.0 §27): it counts down, warns, acts on the machine and logs.

Rules:

- It runs from the Reset Watchdog Timer command on, which starts it again each time; Set Watchdog
  Timer stops it unless told not to (§27.6). It is not kept over a restart of the daemon.
- What is left reads as the initial countdown after Set, as 0 after expiry (§27.7), and as it was
  when the machine stopped it.
- At its pre-timeout it interrupts the machine, when an NMI is asked for. At its timeout it does
  its action, once, and remembers for which use it expired until that flag is cleared.
- A machine that boots or goes off stops it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nospoon.bmc.log import Kind
from nospoon.model.machine import PowerCommand

TICK = 0.1
"""Countdowns are in steps of 100 ms (§27.6)."""
SECOND = 10
"""Ticks."""
NMI = 2


@dataclass(frozen=True, slots=True)
class Act:
    """What the timer wants done: log this, and give the machine this command."""

    kind: Kind
    command: PowerCommand | None


ACTIONS: Mapping[int, Act] = {
    0: Act(Kind.WATCHDOG_EXPIRED, None),
    1: Act(Kind.WATCHDOG_RESET, PowerCommand.RESET),
    2: Act(Kind.WATCHDOG_OFF, PowerCommand.OFF),
    3: Act(Kind.WATCHDOG_CYCLE, PowerCommand.CYCLE),
}
"""Timeout action (§27.6, byte 2, bits 2:0) -> what is done."""
WARNING = Act(Kind.WATCHDOG_INTERRUPT, PowerCommand.DIAG)


@dataclass(frozen=True, slots=True)
class WatchdogSettings:
    """Set Watchdog Timer (§27.6). `pretimeout` in seconds, `countdown` in ticks.

    `use`: bits 2:0 of byte 1. `interrupt`: the pre-timeout's; only NMI is one here.
    """

    use: int
    action: int
    interrupt: int = 0
    pretimeout: int = 0
    countdown: int = 0
    log: bool = True
    clear: int = 0
    keep_running: bool = False


class Watchdog:
    """One timer, made when a client first sets it. `expired`: a bit for each use that expired.

    `done`: the action of its last expiry.
    """

    __slots__ = ("_stopped_at", "_until", "_warn_at", "done", "expired", "settings")

    def __init__(self, settings: WatchdogSettings) -> None:
        self.settings = settings
        self.expired = self.done = 0
        self._stopped_at = settings.countdown
        self._until: float | None = None
        self._warn_at: float | None = None

    @property
    def running(self) -> bool:
        return self._until is not None

    @property
    def deadline(self) -> float | None:
        """When `expire` wants to be called."""
        return self._warn_at if self._warn_at is not None else self._until

    def set(self, settings: WatchdogSettings, now: float) -> None:
        """Take settings; a timer that is to go on starts from its new countdown."""
        self.settings = settings
        self.expired &= ~settings.clear
        if self.running and settings.keep_running:
            self.reset(now)
        else:
            self.stop(now)
            self._stopped_at = settings.countdown

    def reset(self, now: float) -> None:
        """Start, or start again."""
        settings = self.settings
        self._until = now + settings.countdown * TICK
        warns = settings.interrupt == NMI and settings.pretimeout * SECOND <= settings.countdown
        self._warn_at = self._until - settings.pretimeout if warns else None

    def stop(self, now: float) -> None:
        self._stopped_at = self.left(now)
        self._until = self._warn_at = None

    def left(self, now: float) -> int:
        """The present countdown, in ticks."""
        if self._until is None:
            return self._stopped_at
        return max(0, round((self._until - now) / TICK))

    def expire(self, now: float) -> Act | None:
        """What is due now."""
        if self._warn_at is not None and self._warn_at <= now:
            self._warn_at = None
            return WARNING
        if self._until is not None and self._until <= now:
            self.stop(self._until)
            self.expired |= 1 << self.settings.use
            self.done = self.settings.action
            return ACTIONS[self.done]
        return None
