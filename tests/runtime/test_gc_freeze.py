"""What has settled is not looked at again, but for garbage once there is much more of it."""

from __future__ import annotations

import gc
import mmap
import weakref
from collections.abc import Iterator

import pytest

from nospoon.runtime.gc_freeze import GROWTH, LEAST, Heap, resident, starting


class Node:
    """One that refers to itself, as garbage does that only a collection finds."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def test_what_settled_is_no_business_of_later_collections() -> None:
    heap = Heap()
    kept = [Node() for _ in range(1000)]
    heap.settle()
    assert gc.get_freeze_count() > len(kept)
    assert len(gc.get_objects()) < len(kept)


def garbage(heap: Heap) -> weakref.ref[Node]:
    """A cycle that is set aside before it is let go of."""
    node = Node()
    heap.settle()
    return weakref.ref(node)


def test_garbage_that_was_set_aside_goes_once_the_process_has_grown_by_half() -> None:
    has = [LEAST]
    heap = Heap(memory=lambda: has[0], looks=1)
    first = garbage(heap)
    heap.tidy()
    assert first() is not None, "the process is no larger than it may be"
    has[0] = 2 * LEAST
    heap.tidy()
    assert first() is None
    second = garbage(heap)
    has[0] = int(2 * LEAST * GROWTH)
    heap.tidy()
    assert second() is not None
    has[0] += 1
    heap.tidy()
    assert second() is None


def test_nothing_is_collected_while_starting_and_all_of_it_set_aside() -> None:
    with starting():
        assert not gc.isenabled()
        made = [Node() for _ in range(1000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() > len(made)


def test_the_oldest_generation_is_not_collected_unasked() -> None:
    with starting():
        pass
    old = Node()
    gc.collect(0)
    gc.collect(1)
    watched = weakref.ref(old)
    del old
    young, middle, _ = gc.get_threshold()
    for _ in range(20 * middle):
        kept = [Node() for _ in range(young + 1)]
    assert kept
    assert watched() is not None
    gc.collect()
    assert watched() is None


def test_a_process_knows_its_memory() -> None:
    """Pages of its own: an allocator may answer with memory that the process has already."""
    size = 64 << 20
    before = resident()
    with mmap.mmap(-1, size) as block:
        block.write(b"x" * size)
        assert resident() - before > size // 2


def test_what_a_large_plan_takes_for_a_while_is_not_looked_through() -> None:
    has = [2 * LEAST]
    heap = Heap(memory=lambda: has[0])
    left = garbage(heap)
    for size in (2 * LEAST, 2 * LEAST, LEAST, 2 * LEAST, 2 * LEAST):
        has[0] = size
        heap.tidy()
        assert left() is not None
    heap.tidy()
    assert left() is None
