"""Requests: text of a scheduler -> recipe sets with what each recipe may have in each lab."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from nospoon.clusterfile.fields import USER_DATA
from nospoon.clusterfile.requests import read_asked
from nospoon.control.labs.access import KnownLab
from nospoon.errors import NotFound, TooLarge
from nospoon.lab.asked import AskedSet, distro_of
from nospoon.lab.assign import Free
from nospoon.lab.compare import Op
from nospoon.lab.element import Element
from nospoon.lab.filter import (
    GIB,
    MOST_REASONS,
    USUAL_ARCH,
    Offer,
    Reason,
    Verdict,
    sizes_tried,
)
from nospoon.lab.held import fits_ever
from nospoon.lab.match import mismatches
from nospoon.lab.notes import notes
from nospoon.lab.recipe import DISTRO, Recipe, names_arch, verdict, wrong_arch
from nospoon.lab.work import Asked, Options, Run, Size
from nospoon.model.cluster import MOST_USER_DATA
from nospoon.model.host_facts import SizeOffered
from nospoon.model.lab import Disks, Distro, Lab
from nospoon.model.rest.labs import CheckedRecipe, CheckReason
from nospoon.model.sizes import size as in_words

MOST_COMPARED = 4_000_000
"""Elements of filters, times machines and flavors, each with all disks that are tried: some ten
seconds of a thread.
"""
MOST_ANSWERS = 20_000
"""Recipes times labs: each has an answer. So many reasons they have together, or one each."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one recipe may have in one lab. `distro`: what installs it there."""

    lab: KnownLab
    verdict: Verdict
    options: Options
    reasons: tuple[Reason, ...]
    distro: str = ""


@dataclass(frozen=True, slots=True)
class Judged:
    """A recipe set. `answers`: of each recipe, a lab each. `labs`: keys of those where the whole of
    it may have machines at once, and `runs` for them; `why` there is none.
    """

    asked: AskedSet
    answers: tuple[tuple[Answer, ...], ...]
    labs: tuple[str, ...]
    runs: tuple[Run, ...]
    why: str = ""


def narrowed(labs: Sequence[KnownLab], flavor: str) -> list[KnownLab]:
    """Those that make machines of a flavor, as if they had nothing else; all of them for "". Raises
    `NotFound`.
    """
    if not flavor:
        return list(labs)
    found = [
        replace(known, lab=replace(known.lab, flavors=(each,), machines=()))
        for known in labs
        for each in known.lab.flavors
        if each.name == flavor and known.lab.dynamic
    ]
    if not found:
        raise NotFound(f"no lab that is asked makes machines of a flavor {flavor!r}")
    return found


def judge(data: bytes, labs: Sequence[KnownLab], *, file: str) -> list[Judged]:
    """Every set of a request. Raises `SpecError`, and `TooLarge` for what would take minutes. Run
    it in a thread: a request may be long.
    """
    sets = read_asked(data, file=file)
    recipes = [recipe for asked in sets for recipe in asked.recipes]
    if len(recipes) * len(labs) > MOST_ANSWERS:
        raise TooLarge(
            f"{len(recipes)} recipes would be compared with {len(labs)} labs: {MOST_ANSWERS} "
            "comparisons may be made",
            hint="Submit fewer recipes at a time, or name one lab (`--lab`).",
        )
    offered = [_offered(known.lab) for known in labs]
    compared = sum(_comparisons(recipe, offered) for recipe in recipes)
    if compared > MOST_COMPARED:
        raise TooLarge(
            f"elements of filters would be compared {compared} times with machines, flavors and "
            f"distributions: {MOST_COMPARED} comparisons may be made",
            hint="Submit fewer recipe sets at a time, or name one lab (`--lab`).",
        )
    most = max(1, min(MOST_REASONS, MOST_ANSWERS // max(1, len(recipes) * len(labs))))
    return [_judged(asked, labs, most) for asked in sets]


@dataclass(frozen=True, slots=True)
class _Offered:
    """With how much of a lab each element of a filter is compared, with how many flavors of each
    size that is tried, and with how much each element of `distroRequires`.
    """

    machines: int
    sized: int
    distros: int


def _offered(lab: Lab) -> _Offered:
    arches = {each.arch for each in lab.flavors} | {each.arch for each in lab.machines}
    return _Offered(
        machines=len(lab.machines) + len(lab.flavors) + 1,
        sized=len(lab.flavors) if lab.disks is Disks.ASKED else 0,
        distros=len(lab.distros) + len(arches),
    )


def _comparisons(recipe: Recipe, offered: Sequence[_Offered]) -> int:
    elements = sum(_cost(element) for element in recipe.requires.walk())
    distro, sizes = recipe.at.find(DISTRO), len(sizes_tried(recipe.requires))
    of_distro = sum(_cost(element) for element in distro.walk()) if distro is not None else 0
    return sum(
        elements * (each.machines + sizes * each.sized) + of_distro * each.distros
        for each in offered
    )


def _cost(element: Element) -> int:
    """Comparisons that an element counts for: a pattern is looked for at each place of a text."""
    given = element.attributes
    pattern = given.get("value", "") if given.get("op") == Op.LIKE else ""
    return 1 + (len(pattern) if "_" in pattern else len(pattern) // 64)


def _judged(asked: AskedSet, labs: Sequence[KnownLab], most: int) -> Judged:
    """`most`: reasons of each answer."""
    answers = tuple(
        tuple(_answer(recipe, each, known, most) for known in labs)
        for recipe, each in zip(asked.recipes, asked.asked, strict=True)
    )
    fitting = [
        number
        for number, known in enumerate(labs)
        if all(not of_recipe[number].options.none for of_recipe in answers)
        and fits_ever(known.lab, [of_recipe[number].options for of_recipe in answers])
    ]
    runs = []
    for each, of_recipe in zip(asked.asked, answers, strict=True):
        options = {labs[n].key: of_recipe[n].options for n in fitting}
        distro = of_recipe[fitting[0]].distro if fitting else ""
        runs.append(Run(replace(each, distro=distro), options))
    keys = tuple(labs[number].key for number in fitting)
    return Judged(asked, answers, keys, tuple(runs), "" if keys else _why(labs, answers))


def _why(labs: Sequence[KnownLab], answers: Sequence[Sequence[Answer]]) -> str:
    if not labs:
        return "there is no lab that you may use"
    for number, known in enumerate(labs):
        if _each_fits(answers, number):
            return f"lab {known.shown} {_not_at_once(known.lab, len(answers))}"
    return "no lab has a machine for each of its recipes"


def _answer(recipe: Recipe, asked: Asked, known: KnownLab, most: int) -> Answer:
    lab = known.lab
    distro, no_distro = distro_of(recipe.at, lab.distros)
    installed = next((each for each in lab.distros if each.name == distro), None)
    is_image = installed is not None and bool(installed.image)
    if is_image:
        no_distro = _why_no_image(asked, distro)
    if not lab.dynamic:
        found = Verdict.none(recipe.requires, "this lab makes no dynamic machines")
    else:
        found = verdict(recipe, offer_of(lab, installed))
        found = replace(found, reasons=found.reasons[:most])
    machines, reasons = _registered(recipe, lab)
    if not names_arch(recipe):
        machines = _of_usual_arch(machines, found, lab)
    if is_image and lab.machines:
        why_none = f"registered machines are installed, and distribution {distro} is an image"
        machines, reasons = (), (Reason(recipe.at, why_none),)
    if no_distro:
        reason = Reason(recipe.at, no_distro)
        return Answer(known, found, Options(), (reason,))
    own = {each.name: each.disk for each in lab.flavors}
    sizes = tuple(
        Size(each.name, each.cpus, each.memory, 0 if each.disk == own[each.name] else each.disk)
        for each in found.flavors
    )
    within = tuple(filter(Free.of(lab.limits).holds, sizes))
    if installed is not None and not sizes:
        reasons = (*_without_nics(recipe, lab, installed), *reasons)
    if sizes and not within:
        reasons = (Reason(recipe.at, _why_beyond(lab, sizes)), *reasons)
    why = () if within or machines else (*found.reasons, *reasons)[:most]
    return Answer(known, found, Options(within, machines, distro), why, distro)


def _without_nics(recipe: Recipe, lab: Lab, installed: Distro) -> Iterator[Reason]:
    names = [each.name for each in lab.flavors if not installed.starts(each)]
    if names:
        shown = ", ".join(names[:MOST_REASONS])
        why = f"distribution {installed.name} comes over the network, and {shown} have no NIC"
        yield Reason(recipe.at, why)


def _why_beyond(lab: Lab, sizes: Sequence[Size]) -> str:
    """Why none of several sizes is within a lab's limits."""
    limits, names = lab.limits, ", ".join(each.flavor for each in sizes[:MOST_REASONS])
    parts = [f"{limits.cpus} CPUs"] * bool(limits.cpus)
    parts += [in_words(limits.memory)] * bool(limits.memory)
    return f"it may have {' and '.join(parts)} at a time: {names} take more"


def _why_no_image(asked: Asked, distro: str) -> str:
    """Why a recipe's machine cannot start from an image, "" where it can."""
    if asked.cmdline:
        return f"distribution {distro} is an image, which takes no kernel_options"
    if asked.kickstart and not USER_DATA.match(asked.kickstart):
        return (
            f"distribution {distro} is an image, and gets the kickstart as user data of "
            "cloud-init: begin it with a line `#cloud-config`, or `#!` and a program"
        )
    if len(asked.kickstart) > MOST_USER_DATA // 2:  # URLs are filled in
        return (
            f"distribution {distro} is an image, whose user data has at most "
            f"{MOST_USER_DATA >> 11} KiB"
        )
    return ""


def _registered(recipe: Recipe, lab: Lab) -> tuple[tuple[str, ...], tuple[Reason, ...]]:
    names, reasons = [], list[Reason]()
    of_arch = {arch: [*wrong_arch(recipe.at, arch)] for arch in {m.arch for m in lab.machines}}
    for each in lab.machines:
        wrong = [*of_arch[each.arch], *mismatches(recipe.requires, each, lab.name)]
        if not wrong:
            names.append(each.name)
        elif len(reasons) < MOST_REASONS:
            first = wrong[0]
            reasons.append(Reason(first.at, f"machine {each.name}: {first.why}"))
    return tuple(names), tuple(reasons)


def _of_usual_arch(machines: tuple[str, ...], found: Verdict, lab: Lab) -> tuple[str, ...]:
    """Those that are of it, where one of them, or a flavor of a verdict, is: as `verdict` does with
    flavors.
    """
    arches = {each.name: each.arch for each in lab.machines}
    usual = tuple(name for name in machines if arches[name] == USUAL_ARCH)
    return usual if usual or any(f.arch == USUAL_ARCH for f in found.flavors) else machines


def offer_of(lab: Lab, installed: Distro | None = None) -> Offer:
    """What a lab offers to filters. `installed`: of flavors, those that it starts on; None: all."""
    flavors = (
        SizeOffered(each.name, each.name, each.cpus, each.memory, each.disk, arch=each.arch)
        for each in lab.flavors
        if installed is None or installed.starts(each)
    )
    return Offer(
        lab.name,
        tuple(flavors),
        lab.disks,
        lab.minimum_disk,
        largest_disk=lab.largest_disk,
    )


def _each_fits(answers: Sequence[Sequence[Answer]], lab: int) -> bool:
    """Whether each recipe of a set may have a machine in the lab of this number."""
    return all(not of_recipe[lab].options.none for of_recipe in answers)


def _not_at_once(lab: Lab, recipes: int) -> str:
    """Why a lab never serves a whole set, each recipe of which it could."""
    most = lab.limits.per_owner
    if most and recipes > most:
        return f"gives an owner {most} machines at a time, and has {recipes} recipes to serve"
    return "has too few machines for all of its recipes at once"


def _reasons(judged: Judged, recipe: int, lab: int) -> list[CheckReason]:
    """Of the set as a whole, with its first recipe."""
    each = judged.answers[recipe][lab]
    if not recipe and each.lab.key not in judged.labs and _each_fits(judged.answers, lab):
        why = f"it {_not_at_once(each.lab.lab, len(judged.answers))}"
        return [CheckReason(judged.asked.line, 1, judged.asked.path, why)]
    return [_shown(why) for why in each.reasons]


def _shown(reason: Reason) -> CheckReason:
    return CheckReason(reason.at.line, reason.at.column, reason.at.path, reason.why)


def checked(found: Sequence[Judged]) -> Iterator[CheckedRecipe]:
    """A row for each recipe and lab."""
    for judged in found:
        for number, recipe in enumerate(judged.asked.recipes):
            for lab, each in enumerate(judged.answers[number]):
                given = [size.flavor for size in each.options.sizes]
                chosen = next((f for f in each.verdict.flavors if f.name in given), None)
                yield CheckedRecipe(
                    recipe=recipe.at.path,
                    line=recipe.at.line,
                    lab=each.lab.shown,
                    answer=str(each.verdict.answer),
                    chosen=chosen.name if chosen is not None else "",
                    disk_gib=chosen.disk // GIB if chosen is not None else 0,
                    flavors=given,
                    machines=list(each.options.machines),
                    distro=each.distro,
                    reasons=_reasons(judged, number, lab),
                    notes=[] if lab else [_shown(why) for why in notes(recipe.at)],
                    starts=each.lab.key in judged.labs,
                )
