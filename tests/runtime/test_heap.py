"""What has settled is not looked at again, but for garbage once there is much more of it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from nospoon.runtime.heap import Heap, starting


class Node:
    """One that refers to itself, as garbage does that only a collection finds."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_what_settled_is_no_business_of_later_collections() -> None:
    heap = Heap()
    kept = [Node() for _ in range(1000)]
    heap.settle()
    assert gc.get_freeze_count() > len(kept)
    assert len(gc.get_objects()) < len(kept)


def test_garbage_that_was_set_aside_goes_when_there_is_much_more() -> None:
    heap = Heap()
    heap.settle()
    node = Node()
    watched = weakref.ref(node)
    heap.settle()
    del node
    gc.collect()
    assert watched() is not None, "it is set aside"
    more = [[number] for number in range(gc.get_freeze_count())]
    heap.settle()
    assert watched() is None
    assert more


def test_nothing_is_collected_while_starting_and_all_of_it_set_aside() -> None:
    with starting():
        assert not gc.isenabled()
        made = [Node() for _ in range(1000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() > len(made)


def test_full_collections_wait_while_work_goes_on_that_makes_much() -> None:
    heap, before = Heap(), gc.get_threshold()
    with heap.postponed():
        with heap.postponed():
            pass
        assert gc.get_threshold()[:2] == before[:2]
        assert gc.get_threshold()[2] > 1_000_000
    assert gc.get_threshold() == before
