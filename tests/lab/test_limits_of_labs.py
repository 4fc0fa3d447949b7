"""What a lab's limits never allow is refused, with the reason."""

from __future__ import annotations

import pytest

from nospoon.control.labs.access import KnownLab
from nospoon.control.labs.requests import checked, judge
from nospoon.model.lab import GIB, Lab, LabFlavor, Limits

FLAVORS = (LabFlavor("small", 1, 2 * GIB, 20 * GIB), LabFlavor("large", 4, 8 * GIB, 40 * GIB))


@pytest.mark.parametrize(
    ("limits", "flavors", "why"),
    [
        (Limits(), ["small", "large"], ""),
        (Limits(memory=4 * GIB), ["small"], ""),
        (Limits(cpus=3), ["small"], ""),
        (Limits(memory=GIB, cpus=1), [], "it may have 1 CPUs and 1 GiB at a time: small, large"),
        (Limits(memory=GIB), [], "it may have 1 GiB at a time: small, large"),
        (Limits(memory=100 << 20), [], "it may have 100 MiB at a time: small, large"),
    ],
)
def test_flavors_beyond_the_limits_of_a_lab_are_not_given(
    limits: Limits, flavors: list[str], why: str
) -> None:
    lab = KnownLab("a", 0, "c", Lab("a", flavors=FLAVORS, limits=limits))
    (judged,) = judge(b"<hostRequires/>", [lab], file="job.xml")
    ((answer,),) = judged.answers
    assert [size.flavor for size in answer.options.sizes] == flavors
    assert [each.why for each in answer.reasons] == [f"{why} take more"] * bool(why)
    assert bool(judged.labs) is bool(flavors)


def test_the_chosen_flavor_is_one_that_is_given() -> None:
    wide = LabFlavor("wide", 4, GIB, 20 * GIB)
    lab = Lab("a", flavors=(wide, *FLAVORS), limits=Limits(cpus=2))
    judged = judge(b"<hostRequires/>", [KnownLab("a", 0, "c", lab)], file="job.xml")
    (row,) = checked(judged)
    assert (row.chosen, row.flavors, row.starts) == ("small", ["small"], True)


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (Limits(machines=1), "it has too few machines for all of its recipes at once"),
        (Limits(per_owner=1), "it gives an owner 1 machines at a time, and has 2 recipes to serve"),
    ],
)
def test_a_check_says_why_a_set_never_starts_whose_recipes_could_each(
    limits: Limits, why: str
) -> None:
    lab = KnownLab("a", 0, "c", Lab("a", flavors=FLAVORS, limits=limits))
    two = (
        b"<recipeSet>\n<recipe><hostRequires/></recipe><recipe><hostRequires/></recipe></recipeSet>"
    )
    judged = judge(two, [lab], file="job.xml")
    first, second = checked(judged)
    assert [(each.line, each.path, each.why) for each in first.reasons] == [(1, "recipeSet", why)]
    assert not second.reasons, "it is said once"
    assert not first.starts
