"""Queues of sets: their order, and what the next one costs."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nospoon.lab.queues import MOST_ASKED, Queue, Queues
from nospoon.lab.work import RecipeSet

OWNERS = st.sampled_from("abc")
LABS = st.sampled_from([("east",), ("west",), ("east", "west")])


def recipe_set(number: int, owner: str, labs: tuple[str, ...], priority: int = 0) -> RecipeSet:
    return RecipeSet(f"{number}.1", number, 0, owner, (), priority, labs=labs)


@given(st.lists(st.tuples(OWNERS, LABS, st.integers(0, 1)), max_size=30), st.data())
def test_the_order_is_that_of_all_sets_whatever_is_removed_meanwhile(
    wanted: list[tuple[str, tuple[str, ...], int]], data: st.DataObject
) -> None:
    used = {owner: data.draw(st.integers(0, 3)) for owner in "abc"}
    queues, sets = Queues(), dict[str, RecipeSet]()
    before: dict[tuple[str, tuple[str, ...], int], int] = {}
    keys: dict[str, tuple[int, int, int]] = {}
    for number, (owner, labs, priority) in enumerate(wanted):
        found = recipe_set(number, owner, labs, priority)
        queues.add(found)
        sets[found.id] = found
    for each in sorted(sets.values(), key=lambda found: found.order):
        place = before.setdefault((each.owner, each.labs, 0), 0)
        before[each.owner, each.labs, 0] += 1
        keys[each.id] = (-each.priority, used[each.owner] + place, each.number)
    first = data.draw(st.sets(st.sampled_from([*sets.values()]), max_size=3)) if sets else set()
    for each in first:
        keys[each.id] = (-each.priority, -1, each.number)
    order = sorted(keys, key=lambda each: keys[each])
    for each in sets.values():
        *pauses, place = queues.place(each, lambda queue: used[queue[0]], first)
        behind = order[: order.index(each.id)]
        ahead = (sum(key in sets[other].labs for other in behind) for key in each.labs)
        assert (place, any(pauses)) == (1 + min(ahead), False)
    found_order = []
    entries = [(*each.order, each.id) for each in first]
    for set_id in queues.in_order(lambda queue: used[queue[0]], entries):
        found_order.append(set_id)
        if sets[set_id] not in first and data.draw(st.booleans()):
            queues.remove(sets.pop(set_id))
    assert found_order == order
    amounts = {key: sum(key in each.labs for each in sets.values()) for key in ("east", "west")}
    assert queues.amounts == {key: amount for key, amount in amounts.items() if amount}


@pytest.mark.parametrize("amount", [100, 10_000])
def test_the_first_of_many_costs_as_much_as_the_first_of_few(amount: int) -> None:
    queues = Queues()
    for number in range(amount):
        queues.add(recipe_set(number, f"owner {number % 5}", ("east",)))
    tracemalloc.start()
    try:
        assert next(queues.in_order(lambda _: 0)) == "0.1"
        assert tracemalloc.get_traced_memory()[1] < 4096, "nothing is copied of what waits"
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("amount", [100, 10_000])
def test_the_place_of_a_set_costs_as_much_among_many_as_among_few(amount: int) -> None:
    queues, looked = Queues(), list[Queue]()
    for number in range(amount):
        queues.add(recipe_set(number, f"owner {number % 5}", ("east",)))
    last = recipe_set(amount, "owner 0", ("east",))
    queues.add(last)

    def used(queue: Queue) -> int:
        looked.append(queue)
        return 0

    tracemalloc.start()
    try:
        assert [*queues.place(last, used)] == [amount + 1]
        assert tracemalloc.get_traced_memory()[1] < 4096, "nothing is copied of what waits"
    finally:
        tracemalloc.stop()
    assert len(looked) < 10


def test_many_queues_are_gone_through_with_pauses_in_which_sets_may_be_removed() -> None:
    """A member may submit for any owner in a lab of his own."""
    queues, asked = Queues(), list[Queue]()
    labs = tuple(f"lab {number}" for number in range(10))
    sets = [recipe_set(number, f"owner {number}", labs) for number in range(1000)]
    for each in sets:
        queues.add(each)

    def used(queue: Queue) -> int:
        asked.append(queue)
        return 0

    order, found, most = queues.in_order(used), list[str](), 0
    while (set_id := next(order, None)) is not None:
        most = max(most, sum(len(labs) for _, labs in asked))
        asked.clear()
        if set_id:
            found.append(set_id)
        elif sets:
            queues.remove(sets.pop())
    assert most <= MOST_ASKED
    assert found[: len(sets)] == [each.id for each in sets]
