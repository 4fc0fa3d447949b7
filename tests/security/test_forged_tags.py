"""Tags that someone else wrote: one that is none is no tag at all.

One that no store takes, or no answer of the API, would keep `orphans` and `recover` from all
others: members choose what the clouds and Ironics of their files answer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import uuid4
from xml.etree import ElementTree as ET

import pytest

from nospoon.errors import PlanRefused, ProviderError
from nospoon.model.resources.storage import Pool
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.containers.records import parse, record
from nospoon.providers.ironic.records import TAG, tag_body, tag_of
from nospoon.providers.libvirt.owner import NAMESPACE, owner_in
from nospoon.providers.openstack.tags import (
    PREFIX,
    Tagged,
    described,
    of_description,
    of_properties,
    properties,
)


def tagged(**forged: str) -> ET.Element:
    root = ET.fromstring("<domain><metadata/></domain>")
    given = {"deployment": "d", "cluster": str(uuid4()), "name": "n", **forged}
    ET.SubElement(root[0], f"{{{NAMESPACE}}}owner", given)
    return root


@pytest.mark.parametrize(
    "forged",
    [
        {"generation": str(10**30)},
        {"generation": str(1 << 31)},
        {"generation": "-1"},
        {"generation": "9" * 5000},
        {"uid": str(1 << 64)},
        {"uid": "-2"},
        {"name": "1" * 5000},
        {"cluster-name": "1" * 5000},
    ],
)
def test_what_no_store_takes_is_no_tag(forged: dict[str, str]) -> None:
    assert owner_in(tagged()) is not None
    assert owner_in(tagged(**forged)) is None


GOOD = OwnerTag("d", uuid4(), 1, "t", "rack", 1000)
FORGED = [
    ({"generation": 1 << 31}, "n"),
    ({"generation": -1}, "n"),
    ({"uid": 1 << 32}, "n"),
    ({"deployment": "\ud800"}, "n"),
    ({"name": "\ud800"}, "n"),
    ({"name": "a\0"}, "n"),
    ({}, "\ud800"),
    ({}, "a\nb"),
]
"""Fields of a tag, and the name of its thing."""


@pytest.mark.parametrize(("forged", "name"), FORGED)
def test_a_cloud_tags_nothing_with_what_no_store_takes(forged: dict[str, Any], name: str) -> None:
    good, bad = Tagged(GOOD, "n"), Tagged(replace(GOOD, **forged), name)
    assert of_description(described(good)) is not None
    assert of_description(described(bad)) is None
    assert of_properties(properties(good)) == good
    assert of_properties({**properties(bad), f"{PREFIX}note_0": "x"}) is None


@pytest.mark.parametrize(("forged", "name"), FORGED)
def test_an_ironic_tags_nothing_with_what_no_store_takes(forged: dict[str, Any], name: str) -> None:
    assert tag_of({"extra": {TAG: tag_body(GOOD, key="n")}}) == GOOD
    assert tag_of({"extra": {TAG: tag_body(replace(GOOD, **forged), key=name)}}) is None


def test_records_of_containers_that_no_store_takes_are_none() -> None:
    good, bad = (
        record("n", replace(GOOD, generation=g), Pool("/p")).decode() for g in (1, 1 << 31)
    )
    deep = '{"x":' + "[" * 100_000
    assert [
        *parse(
            f"record a/pool.json {good}\nrecord b/pool.json {bad}\nrecord c/pool.json {deep}\n"
        ).records
    ] == ["a/pool.json"]


@pytest.mark.parametrize("words", ["\0", "\ud800"])
def test_words_of_others_in_errors_are_ones_that_can_be_written(words: str) -> None:
    for error in (ProviderError(f"Nova: {words}", hint=words), PlanRefused([f"Nova: {words}"])):
        assert str(error).encode().find(b"\0") < 0
    assert PlanRefused([words]).reasons == (f"\\u{ord(words):04x}",)
