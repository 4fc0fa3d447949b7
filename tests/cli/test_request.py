"""`nospoon request check`: what a recipe would get, without a daemon."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nospoon.cli.commands.request import command
from nospoon.errors import NospoonError

FLAVORS = [
    {"Name": name, "ID": name, "RAM": ram, "Disk": disk, "Ephemeral": 0, "VCPUs": cpus}
    for name, ram, disk, cpus in (("small", 2048, 20, 1), ("large", 8192, 80, 4))
]


@pytest.fixture
def flavors(tmp_path: Path) -> str:
    file = tmp_path / "flavors.json"
    file.write_text(json.dumps(FLAVORS))
    return str(file)


def check(flavors: str, text: str, *options: str) -> Result:
    argv = ["check", "-", "--flavors", flavors, *options]
    return CliRunner().invoke(command, argv, input=text, catch_exceptions=False)


def test_each_recipe_has_its_answer_and_reasons_have_places(flavors: str) -> None:
    requires = "<hostRequires><memory op='&gt;=' value='{}'/></hostRequires>"
    recipes = "".join(f"<recipe>{requires.format(size)}</recipe>\n" for size in (4096, 16384))
    done = check(flavors, f"<recipeSet>{recipes}</recipeSet>")
    why = "no flavor has >= 16384 MiB of memory: they have 2048, 8192"
    assert done.output.splitlines() == [
        "RECIPE               LINE  ANSWER     CHOSEN  FLAVORS",
        "recipeSet/recipe[1]  1     possible   large   large",
        "recipeSet/recipe[2]  2     no-flavor",
        f"<stdin>:2:23: recipeSet/recipe[2]/hostRequires/memory: {why}",
    ]
    assert done.exit_code == 1
    assert check(flavors, "<hostRequires/>").exit_code == 0


def test_answers_can_be_read_by_programs(flavors: str) -> None:
    done = check(flavors, "<hostRequires><pool value='p'/></hostRequires>", "-f", "json")
    (row,) = json.loads(done.stdout)
    assert (row["answer"], row["flavors"], row["chosen"]) == ("precluded", [], "")
    why = "dynamic machines cannot be chosen by <pool>"
    assert row["reasons"] == [f"hostRequires/pool: {why}"]


@pytest.mark.parametrize(
    ("options", "text", "chosen"),
    [
        (["--lab", "here"], "<labcontroller value='here'/>", "small"),
        (["--disks", "flavor"], "<disk><size op='&gt;' value='20' units='GiB'/></disk>", "large"),
        (["--minimum-disk", "50"], "", "large"),
    ],
)
def test_options_say_what_the_lab_does(
    flavors: str, options: list[str], text: str, chosen: str
) -> None:
    done = check(flavors, f"<hostRequires>{text}</hostRequires>", "-f", "json", *options)
    assert json.loads(done.stdout)[0]["chosen"] == chosen


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("{", "f.json: not JSON"),
        ("[" * 100_000, "f.json: not JSON"),
        ("{}", "expected a list of flavors"),
        ("[1]", "flavor 0: expected ID, a text, got null"),
        (
            '[{"ID": "a", "Name": "a", "VCPUs": "1"}]',
            'flavor 0: expected VCPUs, a whole number, got "1"',
        ),
    ],
)
def test_flavors_that_are_none_are_refused(tmp_path: Path, written: str, why: str) -> None:
    file = tmp_path / "f.json"
    file.write_text(written)
    with pytest.raises(NospoonError, match=why):
        check(str(file), "<hostRequires/>")
