"""The watchdog timer (§27)."""

from __future__ import annotations

from nospoon.bmc.ipmi.vocabulary import (
    INVALID_FIELD,
    NEVER_SET,
    OK,
    Ask,
    Command,
    Context,
    Group,
    Reply,
    Result,
)
from nospoon.bmc.messages import WatchdogRequested, WatchdogReset
from nospoon.bmc.watchdog import ACTIONS, NMI, SECOND, WatchdogSettings
from nospoon.protocols.ipmi.session import Privilege

_USER, _OPERATOR = Privilege.USER, Privilege.OPERATOR
_DO_NOT_LOG, _RUNNING = 0x80, 0x40
_USES = range(1, 6)


def _reset(context: Context, data: bytes) -> Result:
    """§27.5: start, or start again."""
    del data
    return Ask(WatchdogReset()) if context.bmc.watchdog is not None else Reply(NEVER_SET)


def _set(context: Context, data: bytes) -> Result:
    """§27.6: six bytes. A warning cannot come before the start."""
    del context
    use, action, interrupt = data[0] & 0x07, data[1] & 0x07, data[1] >> 4 & 0x07
    if use not in _USES or action not in ACTIONS or interrupt not in {0, NMI}:
        return Reply(INVALID_FIELD)
    countdown = int.from_bytes(data[4:6], "little")
    if interrupt and data[2] * SECOND > countdown:
        return Reply(INVALID_FIELD)
    settings = WatchdogSettings(
        use=use,
        action=action,
        interrupt=interrupt,
        pretimeout=data[2],
        countdown=countdown,
        log=not data[0] & _DO_NOT_LOG,
        clear=data[3],
        keep_running=bool(data[0] & _RUNNING),
    )
    return Ask(WatchdogRequested(settings))


def _get(context: Context, data: bytes) -> Result:
    """§27.7: what was set, whether it runs, and what is left."""
    del data
    watchdog = context.bmc.watchdog
    if watchdog is None:
        return Reply(OK, bytes(8))
    settings = watchdog.settings
    first = settings.use | (0 if settings.log else _DO_NOT_LOG)
    first |= _RUNNING if watchdog.running else 0
    head = bytes(
        [first, settings.interrupt << 4 | settings.action, settings.pretimeout, watchdog.expired]
    )
    left = watchdog.left(context.now)
    return Reply(OK, head + settings.countdown.to_bytes(2, "little") + left.to_bytes(2, "little"))


COMMANDS: Group = {
    (0x06, 0x22): Command("Reset Watchdog Timer", _OPERATOR, 0, _reset),
    (0x06, 0x24): Command("Set Watchdog Timer", _OPERATOR, 6, _set),
    (0x06, 0x25): Command("Get Watchdog Timer", _USER, 0, _get),
}
