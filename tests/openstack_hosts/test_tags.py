"""Tags of things in a cloud: read as they were written, and short enough for each service."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.openstack.tags import (
    LONGEST_VALUE,
    Tagged,
    described,
    in_pieces,
    of_description,
    of_properties,
    properties,
    whole,
)

LONGEST = "n" * 63
TAG = OwnerTag(str(uuid4()), uuid4(), 2_000_000_000, uuid4().hex, LONGEST, 4_294_967_294, "")


def test_the_longest_tag_fits_into_a_description_of_neutron() -> None:
    text = described(Tagged(TAG, f"{LONGEST}-15", "9000"))
    assert len(text) <= LONGEST_VALUE
    told = of_description(text)
    assert told is not None
    assert (told.name, told.more) == (f"{LONGEST}-15", "9000")
    assert (told.tag.cluster, told.tag.deployment) == (TAG.cluster, TAG.deployment)
    assert (told.tag.generation, told.tag.name, told.tag.uid) == (TAG.generation, LONGEST, TAG.uid)


def test_properties_keep_all_of_a_tag() -> None:
    tag = OwnerTag("d", UUID(int=7), 3, "token", "dev", None, "note " * 200)
    told = properties(Tagged(tag, "node-0"))
    assert all(len(value) <= LONGEST_VALUE for value in told.values())
    assert of_properties(told) == Tagged(tag, "node-0")


@pytest.mark.parametrize(
    "text", ["", None, "nospoon", "nospoon:1:a:b", "nospoon:2:d:AAAA:1:0:n:k:", 7]
)
def test_what_others_wrote_is_nobodys(text: object) -> None:
    assert of_description(text) is None


@pytest.mark.parametrize("missing", ["deployment", "cluster", "name"])
def test_metadata_that_somebody_changed_is_nobodys(missing: str) -> None:
    told = properties(Tagged(OwnerTag("d", uuid4()), "node-0"))
    del told[f"nospoon_{missing}"]
    assert of_properties(told) is None


def test_a_long_text_is_put_together_in_its_order() -> None:
    text = "".join(chr(97 + number % 26) for number in range(12 * LONGEST_VALUE + 3))
    pieces = in_pieces("shape", text)
    assert len(pieces) == 13
    assert whole("shape", dict(reversed(pieces.items()))) == text
