"""Recipes of a request: what each asks for of its machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from nospoon.lab import grammar
from nospoon.lab.compare import TEXTUAL, Op, holds
from nospoon.lab.element import Element
from nospoon.lab.filter import (
    USUAL_ARCH,
    Answer,
    Offer,
    Reason,
    Verdict,
    judge,
    runs_on,
)
from nospoon.lab.grammar import Wrong

LOGIC = ("and", "or", "not")
DISTRO = "distroRequires"
SET, RECIPE, GUEST, REQUIRES = "recipeSet", "recipe", "guestrecipe", "hostRequires"
CHILDREN: dict[str, frozenset[str]] = {
    "job": frozenset({"notify", "whiteboard", SET}),
    SET: frozenset({RECIPE}),
    RECIPE: frozenset(
        {
            GUEST, REQUIRES, "autopick", "kickstart", "watchdog", "packages", "ks_appends", "repos",
            "distroRequires", "distro", "partitions", "task", "reservesys",
        }
    ),
}  # fmt: skip
"""What may stand in each, by Beaker's schema; elements of other namespaces may, in a job."""
ONCE = ("kickstart", "watchdog", "reservesys", DISTRO, "distro")
"""What is read of a recipe, as Beaker's schema has it once."""
COMPARED = ("distro_name", "distro_arch")
"""What a distribution is chosen by."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """`set_path`: of the recipe set that it is of, its own where it is of none."""

    at: Element
    requires: Element
    set_path: str


def recipes(root: Element) -> list[Recipe]:
    """Of a job, recipe set, recipe, or a bare `hostRequires`, in which `wrong` finds nothing."""
    if root.name == REQUIRES:
        return [Recipe(root, root, root.path)]
    sets = [each for each in root.walk() if each.name == SET and not each.namespace]
    within = [(each.path, recipe) for each in sets for recipe in each.children]
    return [
        Recipe(recipe, _required(recipe), path) for path, recipe in within or [(root.path, root)]
    ]


def _required(recipe: Element) -> Element:
    found = recipe.find(REQUIRES)
    assert found is not None, "each recipe has one: `wrong` finds those without"
    return found


def wrong(root: Element) -> Iterator[Wrong]:
    """All that cannot be understood in a request."""
    if root.name not in (*CHILDREN, REQUIRES) or root.namespace:
        expected = ", ".join((*CHILDREN, REQUIRES))
        of = f" of {root.namespace}" if root.namespace else ""
        yield Wrong(root, f"expected one of {expected}, got <{root.name}>{of}")
        return
    waiting = [root]
    while waiting:
        element = waiting.pop()
        if element.name == REQUIRES:
            yield from grammar.wrong(element)
            continue
        yield from _unknown(element)
        yield from _missing(element)
        if element.name == RECIPE:
            yield from _twice(element)
            yield from _of_distro(element)
        inner = (each for each in element.children if not each.namespace)
        waiting.extend(each for each in inner if each.name in (*CHILDREN, REQUIRES))


def _unknown(element: Element) -> Iterator[Wrong]:
    allowed = CHILDREN[element.name]
    for child in element.children:
        if child.namespace and element.name != "job":
            yield _foreign(child)
        elif not child.namespace and child.name not in allowed:
            known = ", ".join(sorted(allowed))
            yield Wrong(child, f"unknown element <{child.name}>", f"Known here: {known}.")


def _foreign(element: Element) -> Wrong:
    message = f"unknown element <{element.name}> of {element.namespace}"
    return Wrong(element, message, "Other namespaces may stand in <job> alone.")


def _missing(element: Element) -> Iterator[Wrong]:
    needed = {"job": SET, SET: RECIPE, RECIPE: REQUIRES}[element.name]
    given = sum(each.name == needed and not each.namespace for each in element.children)
    if not given:
        hint = "<hostRequires/> is any machine." if needed == REQUIRES else ""
        yield Wrong(element, f"expected <{needed}> in <{element.name}>, got none", hint)
    elif given > 1 and needed == REQUIRES:
        yield Wrong(element, f"expected one <{REQUIRES}>, got {given}", "Write <and> around all.")


def _twice(recipe: Element) -> Iterator[Wrong]:
    for name in ONCE:
        several = [each for each in recipe.children if each.name == name and not each.namespace]
        for each in several[1:]:
            yield Wrong(each, f"expected one <{name}>, got {len(several)}")


def _of_distro(recipe: Element) -> Iterator[Wrong]:
    """What the distribution must be, where that is compared."""
    required = recipe.find(DISTRO)
    for each in required.walk() if required is not None else ():
        if each.namespace:
            yield _foreign(each)
        elif each.name in COMPARED:
            op = each.attributes.get("op", "=")
            if op not in ("==", *TEXTUAL):
                yield Wrong(each, f"op: expected one of {' '.join(TEXTUAL)}, got {op[:40]!r}")
            if "value" not in each.attributes:
                yield Wrong(each, f"expected a value of <{each.name}>", 'Write value="…".')


def verdict(recipe: Recipe, offer: Offer) -> Verdict:
    """Whether a lab may make a machine for a recipe, and of which flavor."""
    precluded = tuple(_of_recipe(recipe.at, offer))
    found = judge(recipe.requires, _of_its_arch(recipe, offer))
    if not precluded:
        return found
    of_filter = found.reasons if found.answer is Answer.PRECLUDED else ()
    return Verdict(Answer.PRECLUDED, reasons=(*precluded, *of_filter))


def _of_its_arch(recipe: Recipe, offer: Offer) -> Offer:
    """Flavors that run what is installed. Who asks for no architecture means the usual one."""
    usual = [each for each in offer.flavors if each.arch == USUAL_ARCH]
    if usual and not names_arch(recipe):
        return replace(offer, flavors=tuple(usual))
    arches = {each.arch for each in offer.flavors}
    fit = {each for each in arches if not any(wrong_arch(recipe.at, each))}
    return replace(offer, flavors=tuple(each for each in offer.flavors if each.arch in fit))


def names_arch(recipe: Recipe) -> bool:
    """Whether it asks for architectures, or for none of some."""
    distro = recipe.at.find(DISTRO)
    of_distro = distro.walk() if distro is not None else ()
    return any(each.name == "arch" for each in recipe.requires.walk()) or any(
        each.name == "distro_arch" for each in of_distro
    )


def wrong_arch(recipe: Element, arch: str) -> Iterator[Reason]:
    """Why a machine of this architecture does not run what a recipe has installed."""
    distro = recipe.find(DISTRO)
    if distro is not None and not any(_runs(distro, each) for each in runs_on(arch)):
        yield Reason(distro, f"it runs {' and '.join(runs_on(arch))}, which this does not allow")


def _of_recipe(recipe: Element, offer: Offer) -> Iterator[Reason]:
    guest = recipe.find(GUEST)
    if guest is not None:
        yield Reason(guest, "guest recipes need a physical machine to run on")
    distro = recipe.find(DISTRO)
    if distro is not None and not any(_runs(distro, each) for each in offer.arches):
        why = f"dynamic machines run {' and '.join(offer.arches)}, which it does not allow"
        yield Reason(distro, why)


def _runs(distro: Element, arch: str) -> bool:
    """Whether a distribution may be for an architecture, whatever else it must be."""
    inner = [_runs(each, arch) for each in distro.children]
    match distro.name:
        case "distro_arch":
            return _is_of(distro, arch)
        case "or":
            return any(inner) or not inner
        case "not":
            of_arch = all(each.name in (*LOGIC, "distro_arch") for each in distro.walk())
            return not of_arch or not inner or not all(inner)
        case _:
            return all(inner)


def _is_of(element: Element, arch: str) -> bool:
    op = Op.read(element.attributes.get("op", "="))
    return holds(op, (arch,), element.attributes["value"])
