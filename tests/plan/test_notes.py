"""What tags note of a node's decisions is read again, and garbage is nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nospoon.plan.addresses import notes
from nospoon.plan.addresses.allocate import Endpoint
from nospoon.plan.addresses.notes import Noted
from nospoon.plan.addresses.pdus import Socket

ports, numbers = st.integers(0, 65535), st.integers(1, 65535)
addresses = st.ip_addresses().map(str)
names = st.from_regex(r"[a-z0-9-]{0,63}", fullmatch=True)
notes_of_nodes = st.builds(
    Noted,
    host=names,
    bmc=st.none() | st.builds(Endpoint, addresses, ports, ports),
    outlet=st.none() | st.builds(Socket, numbers, numbers, addresses, ports),
)


@given(notes_of_nodes)
def test_what_was_noted_is_read_again(noted: Noted) -> None:
    assert notes.read(notes.written(noted)) == noted


@given(st.text())
def test_garbage_is_read_as_something_or_nothing(text: str) -> None:
    assert isinstance(notes.read(text), Noted)


NONE = ["", "[]", "null", "{", '{"bmc":[1]}', '{"outlet":"x"}', '{"host":1}']
FORGED = [
    "[" * 990,
    "[" * 100_000,
    '{"host":' * 120 + "1" + "}" * 120,
    '{"host":"\\ud800","bmc":["\\ud800",623,0]}',
    '{"host":"a\\u0000","bmc":["10.0.0.1",65536,0],"outlet":[1,0,"10.0.0.1",161]}',
    '{"bmc":["10.0.0.1",-1,0],"outlet":[1,1,"here",161]}',
    f'{{"bmc":["10.0.0.1",{"9" * 400},0]}}',
]
"""What members may have their clouds show: it kept `recover` from all others."""


@pytest.mark.parametrize("text", [*NONE, *FORGED])
def test_what_is_no_note_is_nothing(text: str) -> None:
    assert notes.read(text) == Noted()


def test_a_note_is_one_line_that_stays_the_same() -> None:
    """Else each `up` by another version would write all tags again."""
    noted = Noted("here", Endpoint("127.0.0.1", 623, 8000), Socket(1, 2, "fd00::1", 1161))
    assert notes.written(noted) == (
        '{"host":"here","bmc":["127.0.0.1",623,8000],"outlet":[1,2,"fd00::1",1161]}'
    )
