"""Values of fields, as plans show them."""

from __future__ import annotations

import pytest

from nospoon.model.resources import Tunnel
from nospoon.plan.words import field_text


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
