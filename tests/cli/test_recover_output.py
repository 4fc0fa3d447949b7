"""What `recover` says of other deployments."""

from __future__ import annotations

from nospoon.cli.commands.recover import describe_others


def test_resources_of_other_deployments_are_counted_and_offered_only_without_a_daemon() -> None:
    assert describe_others("here", "d1", 1, ["d2"]) == (
        "host here: 1 resource of deployment d1. "
        "If it has no daemon any more: nospoon recover --deployment d1"
    )
    assert describe_others("here", "d1", 2, ["d1"]) == (
        "host here: 2 resources of deployment d1, whose daemon runs on this machine"
    )
