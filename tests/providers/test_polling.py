"""How often one looks."""

from __future__ import annotations

import pytest

from nospoon.providers.polling import rest_after


@pytest.mark.parametrize(
    ("look", "rest"), [(0.0, 1.0), (0.02, 1.0), (0.5, 5.0), (1.4, 14.0), (20.0, 15.0)]
)
def test_a_slow_look_is_followed_by_a_long_rest_but_not_by_minutes(
    look: float, rest: float
) -> None:
    assert rest_after(look) == rest
