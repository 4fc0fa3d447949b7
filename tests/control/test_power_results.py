"""What is shown of a power command that was carried out."""

from __future__ import annotations

import pytest

from nospoon.control.operations.nodes import result_shown
from nospoon.model.machine import Outcome, PowerCommand

ON, OFF = PowerCommand.ON, PowerCommand.OFF


@pytest.mark.parametrize(
    ("command", "result", "shown"),
    [
        (ON, "done", "done"),
        (ON, "accepted", "accepted"),
        (ON, Outcome.UNCHANGED, "already on, nothing changed; `cycle` or `reset` boots again"),
        (ON, Outcome.CONTINUED, "done: it was paused or saved, and continues without a boot"),
        (OFF, Outcome.UNCHANGED, "already off, nothing changed"),
    ],
)
def test_a_machine_that_continues_was_not_on_already(
    command: PowerCommand, result: str, shown: str
) -> None:
    assert result_shown(command, str(result)) == shown
