"""What a request asks for besides its filters: distribution, kickstart, lease, what a panic does.

Beaker's job XML: https://beaker-project.org/docs/user-guide/job-xml.html.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from nospoon.lab.compare import Op, holds
from nospoon.lab.element import Element
from nospoon.lab.grammar import MOST_DIGITS, Wrong
from nospoon.lab.notes import notes
from nospoon.lab.recipe import DISTRO, LOGIC, RECIPE, REQUIRES, SET, Recipe, recipes
from nospoon.lab.work import Asked
from nospoon.model.lab import Distro

PRIORITIES: Mapping[str, int] = {"low": -1, "medium": 0, "normal": 1, "high": 2, "urgent": 3}
NORMAL = "normal"
PANIC = ("", "None", "ignore", "end")
"""What a panic does: Beaker's schema has `None` for what happens without it."""
NAME = "distro_name"
MOST_SECONDS = 99 * 86400
"""Of a lease: Beaker's longest reservation."""
MOST_RECIPES = 100
"""Of one set: all of them start at once."""
MOST_SETS = 1000
MOST_TOGETHER = 1000
"""Recipes of one request."""
MOST_KICKSTART = 256 << 10
MOST_CMDLINE, MOST_ROLE = 2048, 64


@dataclass(frozen=True, slots=True)
class AskedSet:
    """A recipe set. `priority`: larger goes first."""

    path: str
    line: int
    recipes: tuple[Recipe, ...]
    asked: tuple[Asked, ...]
    priority: int
    whiteboard: str


def asked_sets(root: Element) -> list[AskedSet]:
    """The sets of a request in which neither `wrong` nor `recipe.wrong` finds anything."""
    found: dict[str, list[Recipe]] = {}
    for each in recipes(root):
        found.setdefault(each.set_path, []).append(each)
    at = {each.path: each for each in root.walk()}
    whiteboard = root.find("whiteboard")
    text = root.attributes.get("whiteboard", "") or (whiteboard.text if whiteboard else "")
    return [
        AskedSet(
            path,
            at[path].line,
            tuple(members),
            tuple(_asked(each.at) for each in members),
            PRIORITIES[at[path].attributes.get("priority", NORMAL).lower()],
            text.strip()[:200],
        )
        for path, members in found.items()
    ]


def _asked(recipe: Element) -> Asked:
    watchdog, reserve, kickstart = map(recipe.find, ("watchdog", "reservesys", "kickstart"))
    panic = watchdog.attributes.get("panic", "") if watchdog is not None else ""
    duration = reserve.attributes.get("duration", "0") if reserve is not None else "0"
    return Asked(
        path=recipe.path,
        line=recipe.line,
        kickstart=kickstart.text if kickstart is not None else "",
        cmdline=recipe.attributes.get("kernel_options", ""),
        role=recipe.attributes.get("role", ""),
        seconds=float(duration),
        panic_ignored=panic == "ignore",
        ends_on_panic=panic == "end",
        notes=tuple(f"{each.at.path}: {each.why}" for each in notes(recipe)),
    )


def wrong(root: Element) -> Iterator[Wrong]:
    """What `recipe.wrong` does not look at."""
    sets = [each for each in root.walk() if each.name == SET and not each.namespace]
    if len(sets) > MOST_SETS:
        yield Wrong(root, f"expected at most {MOST_SETS} recipe sets, got {len(sets)}")
    together = sum(each.name == RECIPE and not each.namespace for each in root.walk())
    if together > MOST_TOGETHER:
        yield Wrong(root, f"expected at most {MOST_TOGETHER} recipes, got {together}")
    for each in sets:
        count = sum(child.name == RECIPE for child in each.children)
        if count > MOST_RECIPES:
            yield Wrong(each, f"expected at most {MOST_RECIPES} recipes in a set, got {count}")
    for each in root.walk():
        yield from _of_element(each)


def _of_element(element: Element) -> Iterator[Wrong]:
    given = element.attributes
    match element.name:
        case "recipeSet":
            priority = given.get("priority", NORMAL)
            if priority.lower() not in PRIORITIES:
                known = ", ".join(each.capitalize() for each in PRIORITIES)
                yield Wrong(element, f"priority: expected one of {known}, got {priority[:40]!r}")
        case "recipe":
            if len(given.get("role", "")) > MOST_ROLE:
                yield Wrong(element, f"role: expected at most {MOST_ROLE} characters")
            yield from _of_cmdline(element, given.get("kernel_options", ""))
        case "reservesys":
            yield from _of_duration(element, given.get("duration", "0"))
        case "watchdog":
            if given.get("panic", "") not in PANIC:
                yield Wrong(element, f"panic: expected ignore or end, got {given['panic'][:40]!r}")
        case "kickstart" if len(element.text) > MOST_KICKSTART:
            yield Wrong(element, f"expected at most {MOST_KICKSTART >> 10} KiB of kickstart")


def _of_cmdline(element: Element, text: str) -> Iterator[Wrong]:
    if len(text) > MOST_CMDLINE:
        yield Wrong(element, f"kernel_options: expected at most {MOST_CMDLINE} characters")
    elif not text.isprintable():
        yield Wrong(element, "kernel_options: expected one line of printable characters")
    elif any(word in ("||", "&&", ";", "#") for word in text.split()):
        yield Wrong(element, "kernel_options: expected no ||, &&, ; or #, which iPXE would take")


def _of_duration(element: Element, text: str) -> Iterator[Wrong]:
    whole = text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS
    if not (whole and int(text) <= MOST_SECONDS):
        message = f"duration: expected seconds, at most {MOST_SECONDS}, got {text[:40]!r}"
        yield Wrong(element, message)


def distro_of(recipe: Element, distros: Sequence[Distro]) -> tuple[str, str]:
    """(name, "") of the lab's distribution for a recipe, ("", "") for a lab that installs nothing,
    and ("", why) where none fits. The first that fits is taken.
    """
    if recipe.name == REQUIRES or not distros:
        return (distros[0].name if distros else ""), ""
    if recipe.find("distro") is not None:
        return "", "it brings a distribution of its own (<distro>): name one of this lab's instead"
    asked = recipe.find(DISTRO)
    if asked is None:
        return distros[0].name, ""
    for each in distros:
        if _is_asked(asked, each):
            return each.name, ""
    known = ", ".join(each.name for each in distros)
    return "", f"no distribution of this lab is such a one; it has {known}"


def _is_asked(element: Element, distro: Distro) -> bool:
    """What else trees are asked for (family, variant, tag) is not compared."""
    if element.name in LOGIC or element.name == DISTRO:
        inner = [_is_asked(each, distro) for each in element.children]
        if element.name == "or":
            return any(inner) or not inner
        if element.name == "not":
            compared = all(each.name in (*LOGIC, NAME) for each in element.walk())
            return not (compared and inner and all(inner))
        return all(inner)
    if element.name == NAME:
        op = Op.read(element.attributes.get("op", "="))
        return holds(op, (distro.name,), element.attributes["value"])
    return True
