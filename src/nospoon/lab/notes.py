"""What a recipe has that nospoon passes over: its scheduler learns of it, and gets its machine.

Beaker makes most of that a part of the kickstart; here it is a scheduler's own business, as tasks
are.
"""

from __future__ import annotations

from collections.abc import Iterator

from nospoon.lab.element import Element
from nospoon.lab.filter import Reason
from nospoon.lab.recipe import COMPARED, DISTRO, LOGIC, RECIPE

UNREAD = ("ks_appends", "packages", "partitions", "repos")
"""Of these Beaker makes parts of the kickstart."""
READ = {
    RECIPE: ("kernel_options", "role", "whiteboard"),
    "watchdog": ("panic",),
    "reservesys": ("duration", "when"),
}
"""Elements -> the attributes that they may have. A whiteboard is a text for people; `when` is for
the scheduler, which releases what it does not reserve.
"""
MOST_NAMES, MOST_SHOWN = 8, 40


def notes(recipe: Element) -> Iterator[Reason]:
    """Each at its element. A recipe may be a bare filter, in which nothing is passed over."""
    if recipe.name != RECIPE:
        return
    for each in (recipe, *recipe.children):
        known = READ.get(each.name, each.attributes)
        # Beaker writes empty ones, which ask for nothing
        names = [name for name, value in each.attributes.items() if value and name not in known]
        if names:
            yield Reason(each, f"not read: {_listed(names)} of <{each.name}>")
        if each.name in UNREAD and each.children:
            yield Reason(each, f"not read: write what <{each.name}> asks for into the kickstart")
        if each.name == DISTRO:
            yield from _of_distro(each)


def _of_distro(required: Element) -> Iterator[Reason]:
    read = (DISTRO, *LOGIC, *COMPARED)
    names = list(dict.fromkeys(each.name for each in required.walk() if each.name not in read))
    if names:
        shown = _listed([f"<{name}>" for name in names])
        yield Reason(required, f"not compared with the lab's distributions: {shown}")


def _listed(names: list[str]) -> str:
    shown = [name.rpartition(" ")[2][:MOST_SHOWN] for name in names[:MOST_NAMES]]
    more = len(names) - len(shown)
    return ", ".join([*shown, *[f"{more} more"] * bool(more)])
