"""Large answers in pieces are the same JSON, and the same ETag, as at once."""

from __future__ import annotations

import asyncio

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from nospoon.services.bmcs.redfish.messages.encoding import encoded, long_tag_of, pieces, tag_of
from nospoon.services.bmcs.redfish.messages.listings import BATCH

LINK = {"@odata.id": "/redfish/v1/x"}
RESOURCE = {**LINK, "Name": "x"}
_LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-9, 9), st.text(max_size=3),
    st.sampled_from([LINK, RESOURCE]), st.builds(list, st.just([LINK] * (BATCH + 1))),
)  # fmt: skip
_NAMES = st.sampled_from(["@odata.id", "Links", "Members", "a", "ä"])
VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(_NAMES, inner, max_size=4)
    ),
    max_leaves=8,
)


async def no_rest() -> None:
    pass


@given(VALUES)
def test_pieces_make_the_same_json(value: object) -> None:
    assert b"".join(pieces(value)) == msgspec.json.encode(value)


def test_a_piece_is_one_batch_or_one_resource() -> None:
    body = {"Members": [LINK] * (4 * BATCH), "Links": {"Chassis": [RESOURCE] * 3}}
    most = len(msgspec.json.encode([LINK] * BATCH))
    found = list(pieces(body))
    assert max(map(len, found)) <= most
    assert found.count(msgspec.json.encode(RESOURCE)) == 3


def test_a_nested_collection_is_many_pieces() -> None:
    inner = {**RESOURCE, "Members": [RESOURCE] * 10}
    found = list(pieces({"Members": [{**RESOURCE, "Processors": inner}]}))
    assert found.count(msgspec.json.encode(RESOURCE)) == 10


def test_an_etag_is_the_same_in_slices() -> None:
    data = b"x" * (1 << 20)
    assert asyncio.run(long_tag_of(data, no_rest)) == tag_of(data)
    assert asyncio.run(encoded(RESOURCE, no_rest)) == msgspec.json.encode(RESOURCE)
