"""How an operation is shown."""

from __future__ import annotations

from nospoon.cli.follow import failures
from nospoon.model.rest.operations import FailedStep


def test_a_reason_for_which_many_things_failed_is_shown_once() -> None:
    away = "Ironic at http://i does not answer"
    failed = [
        FailedStep("ironic-standing/n0@Ironic", away),
        FailedStep("machine/n1@here", "no memory left"),
        *(FailedStep(f"ironic-standing/n{n}@Ironic", away) for n in range(2, 9)),
    ]
    assert list(failures(failed)) == [
        f"ironic-standing/n0@Ironic and 7 more: {away}",
        "machine/n1@here: no memory left",
    ]
