"""Records of Ironic's API and shapes: what a change writes, and what it lets be."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.enrollment.enrol import settings
from nospoon.providers.ironic import records
from nospoon.providers.ironic.errors import said

NODE = "11111111-2222-5333-8444-555555555555"
TAG = OwnerTag("d", UUID(int=1), 3, "t", "dev", 1000)


def record(**more: Any) -> dict[str, Any]:
    ours = ["driver", "properties/cpus", "properties/gone"]
    tag = records.tag_body(TAG, key="n0", ours=ours, credentials="c")
    return {"uuid": NODE, "driver": "ipmi", "extra": {"nospoon": tag}, "traits": [], **more}


def test_a_tag_is_read_as_it_was_written() -> None:
    assert records.tag_of(record()) == TAG
    assert records.noted(record(), "key") == "n0"


def test_what_others_added_is_no_part_of_the_shape_and_is_let_be() -> None:
    there = record(properties={"cpus": 4, "theirs": 1})
    assert [each.name for each in records.node_shape(there).settings] == [
        "driver", "properties/cpus",
    ]  # fmt: skip
    wanted = settings({"driver": "ipmi", "properties/cpus": 4})
    assert records.operations(there, wanted, {}) == []


def test_what_is_wanted_no_more_is_removed_and_the_rest_is_written() -> None:
    there = record(properties={"cpus": 4, "gone": 1})
    wanted = settings({"driver": "redfish", "properties/cpus": 4, "extra/a~b/c": [1]})
    assert records.operations(there, wanted, {}) == [
        {"op": "remove", "path": "/properties/gone"},
        {"op": "add", "path": "/driver", "value": "redfish"},
        {"op": "add", "path": "/extra/a~0b~1c", "value": [1]},
    ]


def test_a_password_of_another_driver_is_taken_back() -> None:
    info = {"ipmi_password": "******", "snmp_community": "theirs"}
    there = {"driver": "ipmi", "driver_info": info}
    more = {"driver_info/redfish_password": "secret"}
    assert records.operations(there, (), more) == [
        {"op": "remove", "path": "/driver_info/ipmi_password"},
        {"op": "add", "path": "/driver_info/redfish_password", "value": "secret"},
    ]


def test_a_body_has_nested_fields_where_ironic_has_them() -> None:
    told = settings({"driver": "ipmi", "driver_info/ipmi_port": 6230})
    assert records.body(told, {"driver_info/ipmi_password": "p"}) == {
        "driver": "ipmi",
        "driver_info": {"ipmi_port": 6230, "ipmi_password": "p"},
    }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(JSON)
def test_no_tag_that_somebody_wrote_is_more_than_no_tag(value: Any) -> None:
    assert records.tag_of({"extra": {"nospoon": value}}) is None
    assert records.tag_of({"extra": None}) is None


@given(JSON)
def test_any_answer_has_words(value: Any) -> None:
    assert said(json.dumps(value))
    assert "\n" not in said(json.dumps(value))


def test_a_fault_in_a_string_in_json_is_read() -> None:
    inner = json.dumps({"faultcode": "Client", "faultstring": "Node is locked"})
    assert said(json.dumps({"error_message": inner})) == "Node is locked"
    assert said("<html>") == "<html>"
