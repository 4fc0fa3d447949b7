"""How far a node is, read from its record: what is ours, what differs, what is told to Ironic."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from nospoon.model.ironic import IronicStanding, Standing
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.enrollment.enrol import settings
from nospoon.providers.ironic import records
from nospoon.providers.ironic.progress import (
    IN_USE,
    VERBS,
    deployed,
    is_ours,
    last_failure,
    notes,
    reached,
    roots,
    use_of,
)

NODE = UUID(int=7)
TAG = OwnerTag("d", UUID(int=1), 3, "t", "dev", 1000)


def record(state: str, *, noted: str = "active", **more: Any) -> dict[str, Any]:
    tag = records.tag_body(TAG, key="n0", state=noted, instance=["image_source", "root_gb"])
    told = {"image_source": "i", "root_gb": 4, "image_url": "Ironic's own"}
    return {
        "provision_state": state, "extra": {"nospoon": tag}, "instance_info": told, **more,
    }  # fmt: skip


def test_what_we_told_is_compared_and_what_ironic_adds_is_not() -> None:
    assert deployed(record("active")) == settings({"image_source": "i", "root_gb": 4})


def test_what_is_to_be_deployed_is_told_and_what_is_not_any_more_is_taken_back() -> None:
    shape = IronicStanding(NODE, "active", settings({"image_source": "j"}), ("n0-1",))
    assert notes(record("active"), shape, stale=True) == [
        {"op": "add", "path": "/extra/nospoon/state", "value": "active"},
        {"op": "add", "path": "/extra/nospoon/instance", "value": ["image_source"]},
        {"op": "add", "path": "/extra/nospoon/roots", "value": ("n0-1",)},
        {"op": "add", "path": "/extra/nospoon/stale", "value": True},
        {"op": "remove", "path": "/instance_info/root_gb"},
        {"op": "add", "path": "/instance_info/image_source", "value": "j"},
    ]


def test_what_was_told_and_not_deployed_yet_is_not_there() -> None:
    """An `up` that ended between both leaves a node that the next one deploys anew."""
    found = record("active")
    found["extra"]["nospoon"]["stale"] = True
    assert deployed(found) == ()


def test_where_it_was_deployed_is_noted_or_unknown() -> None:
    found = record("active")
    assert roots(found) is None
    found["extra"]["nospoon"]["roots"] = ["n0-1"]
    assert roots(found) == ("n0-1",)


@pytest.mark.parametrize(
    ("found", "ours"),
    [
        (record("active"), True),
        (record("deploy failed"), True),
        (record("active", noted="available"), False),
        (record("active", instance_uuid="nova's"), False),
        (record("available"), False),
    ],
)
def test_an_instance_is_ours_only_if_we_deployed_it(found: dict[str, Any], ours: bool) -> None:  # noqa: FBT001
    assert is_ours(found) is ours


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"instance_uuid": "a"}, "it has the instance a"),
        ({"instance_uuid": "a", "allocation_uuid": "a"}, "it has the allocation a"),
        ({}, "it is active"),
    ],
)
def test_who_uses_a_node_is_told(more: dict[str, str], told: str) -> None:
    assert use_of(record("active", **more)) == told


def test_why_a_node_failed_is_read_from_its_history() -> None:
    events = [
        ("INFO", "deploying", "deploy began"),
        ("ERROR", "deploying", "no space left"),
        ("ERROR", "monitoring", "the BMC is silent"),
        ("INFO", "deploying", "steps ended"),
    ]
    names = ("severity", "event_type", "event")
    history = [dict(zip(names, each, strict=True)) for each in events]
    assert last_failure(history) == "no space left"
    assert last_failure(history[:1]) == ""


@pytest.mark.parametrize("state", sorted({state for state, _ in VERBS} | IN_USE))
@pytest.mark.parametrize("wanted", [*Standing])
def test_a_node_is_there_or_a_verb_leads_on_or_it_is_told_why_not(
    state: str, wanted: Standing
) -> None:
    """No verb moves a node that is there already, and none moves somebody's instance away."""
    if reached(record(state), wanted):
        assert (
            state in IN_USE
            or wanted is Standing.ENROLL
            or (state, wanted) not in VERBS
            or (wanted is Standing.INSPECTED)
        )
    if wanted is not Standing.ACTIVE:
        assert (state, wanted) not in VERBS or state not in IN_USE
