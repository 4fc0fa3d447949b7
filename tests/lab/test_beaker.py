"""Real filters, with the answers that Beaker's own code gives."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from nospoon.clusterfile.requests import read_request
from nospoon.errors import SpecError
from nospoon.lab.filter import GIB, MIB, Answer, Offer
from nospoon.lab.recipe import verdict
from nospoon.model.host_facts import SizeOffered
from nospoon.model.lab import Disks

ROOT = Path(__file__).parents[2]
Answered = tuple[bool, Sequence[str], str | None]
"""Whether dynamic machines may be asked for that, the flavors that match, and the one taken."""


def blanks_as_one(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    given = os.environ.get("NOSPOON_BEAKER_FILTERS", "")
    file = Path(given) if given else ROOT.parent / "shared" / "beaker" / "host-filters.jsonl"
    if not file.exists():
        pytest.skip("Beaker's answers (host-filters.jsonl) are not here")
    return [json.loads(line) for line in file.read_text().splitlines()]


def answered(text: str, offer: Offer) -> Answered | None:
    """None for a filter that is refused."""
    try:
        (recipe,) = read_request(text.encode(), file="f")
    except SpecError:
        return None
    found = verdict(recipe, offer)
    chosen = found.chosen.id if found.chosen is not None else None
    return found.answer is not Answer.PRECLUDED, sorted(f.id for f in found.flavors), chosen


def of_beaker(answer: Mapping[str, Any]) -> Answered:
    """It asks for flavors only where a filter lets it."""
    may = answer["virtualisable"]
    return (may, answer["flavors"], answer["pick"]) if may is True else (may, [], None)


def test_filters_are_answered_as_beaker_answers_them(rows: list[dict[str, Any]]) -> None:
    first, *rest = rows
    flavors = tuple(
        SizeOffered(f["id"], f["id"], f["vcpus"], f["ram"] * MIB, f["disk"] * GIB)
        for f in first["flavors"]
    )
    offer = Offer(first["lab"], flavors, Disks.FLAVOR)
    listed = tomllib.loads((Path(__file__).parent / "deviations.toml").read_text())["deviation"]
    allowed = {each["filter"] for each in listed}
    differing = {
        blanks_as_one(row["filter"])
        for row in rest
        if answered(row["filter"], offer) != of_beaker(row["beaker"])
    }
    assert len(rest) == 280
    assert sorted(differing - allowed) == [], "answered otherwise"
    assert sorted(allowed - differing) == [], "answered alike, though listed as deviations"
