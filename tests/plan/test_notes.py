"""What tags note of a node's decisions is read again, and garbage is nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nospoon.plan.addresses import notes
from nospoon.plan.addresses.allocate import Endpoint
from nospoon.plan.addresses.notes import Noted
from nospoon.plan.addresses.pdus import Socket

ports = st.integers(0, 65535)
notes_of_nodes = st.builds(
    Noted,
    host=st.text(),
    bmc=st.none() | st.builds(Endpoint, st.text(), ports, ports),
    outlet=st.none() | st.builds(Socket, ports, ports, st.text(), ports),
)


@given(notes_of_nodes)
def test_what_was_noted_is_read_again(noted: Noted) -> None:
    assert notes.read(notes.written(noted)) == noted


@given(st.text())
def test_garbage_is_read_as_something_or_nothing(text: str) -> None:
    assert isinstance(notes.read(text), Noted)


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "{", '{"bmc":[1]}', '{"outlet":"x"}', '{"host":1}']
)
def test_what_is_no_note_is_nothing(text: str) -> None:
    assert notes.read(text) == Noted()
