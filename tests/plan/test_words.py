"""Values of fields, as plans show them."""

from __future__ import annotations

import pytest

from nospoon.model.resources.networks import Tunnel
from nospoon.plan.words import counted, field_text, unreachable, with_verb


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (
            Tunnel(7, "192.0.2.1", ("192.0.2.2", "192.0.2.3")),
            "VNI 7 from 192.0.2.1 to 192.0.2.2, 192.0.2.3",
        ),
        (Tunnel(7, "192.0.2.1", ()), "VNI 7 from 192.0.2.1 to nobody"),
        (None, "none"),
    ],
)
def test_a_tunnel_is_told_in_words(value: object, told: str) -> None:
    assert field_text("tunnel", value) == told


def test_numbers_and_hosts_are_shown_in_grammar() -> None:
    assert counted(1, "node") == "1 node"
    assert counted(2, "address") == "2 addresses"
    assert with_verb(1, "orphan") == "1 orphan is"
    assert with_verb(0, "orphan") == "0 orphans are"
    assert unreachable("a", "host a: no answer.") == "host a is unreachable: no answer"
    assert unreachable("a", "no answer") == "host a is unreachable: no answer"
