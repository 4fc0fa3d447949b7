"""The table of kinds: every kind has its row, and what names say agrees with what is resolved."""

from dataclasses import is_dataclass
from typing import get_args

import pytest

from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.resource import Shape
from nospoon.plan.order.kinds import KINDS, Named, whose


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_has_a_row_with_a_shape_of_its_own(kind: Kind) -> None:
    assert is_dataclass(KINDS[kind].shape)
    assert [row.shape for row in KINDS.values()].count(KINDS[kind].shape) == 1


def test_every_shape_is_of_a_kind() -> None:
    assert {row.shape for row in KINDS.values()} == set(get_args(Shape))


@pytest.mark.parametrize("kind", list(Kind))
def test_whose_a_resource_is_follows_from_its_name(kind: Kind) -> None:
    names = {
        Named.AS_ITS_NODE: ("node-3", "node-3"),
        Named.NUMBERED: ("node-3-0", "node-3"),
        Named.BEFORE_DOT: ("node-3.first", "node-3"),
        Named.BY_ITSELF: ("node-3", ""),
    }
    name, node = names[KINDS[kind].named]
    assert whose(Key(kind, "host", name)) == node


@pytest.mark.parametrize("kind", list(Kind))
def test_what_waits_for_a_node_or_moves_with_it_is_a_nodes(kind: Kind) -> None:
    row = KINDS[kind]
    if row.moves or row.of_node or row.after_ironic or row.after_release:
        assert row.named is not Named.BY_ITSELF
