"""Parameter 0 of every group of configuration parameters: "set in progress" (§22.14a, §23.2, §26.3,
§28.13, §30.4).

Rules:

- It notifies, and locks nothing: other parameters can be written by anybody all the while.
- 81h: someone else's (or one's own) set is in progress already.
- "Commit write" is done at once, for every write takes effect when it is acknowledged.
- It ends with "set complete", with the session that began it, and with a restart of the BMC.
"""

from __future__ import annotations

from nospoon.bmc.ipmi.vocabulary import (
    INVALID_FIELD,
    OK,
    SET_IN_PROGRESS,
    WRONG_LENGTH,
    Context,
    Reply,
)
from nospoon.bmc.state import Parameters

PARAMETER = 0
_COMPLETE, _IN_PROGRESS = 0, 1


def get(context: Context, group: Parameters) -> bytes:
    """The value of parameter 0: one byte."""
    return bytes([_IN_PROGRESS if _is_in_progress(context, group) else _COMPLETE])


def put(context: Context, group: Parameters, value: bytes) -> Reply:
    """Write parameter 0."""
    if len(value) != 1:
        return Reply(WRONG_LENGTH)
    match value[0]:
        case 0:  # set complete
            context.bmc.state.setting.pop(group, None)
        case 1 if _is_in_progress(context, group):
            return Reply(SET_IN_PROGRESS)
        case 1:
            context.bmc.state.setting[group] = context.held.id
        case 2:  # commit write
            pass
        case _:
            return Reply(INVALID_FIELD)
    return Reply(OK)


def _is_in_progress(context: Context, group: Parameters) -> bool:
    session = context.sessions.get(context.bmc.state.setting.get(group, 0))
    return session is not None and session.active
