"""XML of requests: each thing that is wrong has its place, and nothing is without bounds."""

from __future__ import annotations

import gc
import json
import weakref

import pytest

from nospoon.clusterfile import requests
from nospoon.clusterfile.requests import read_element, read_request
from nospoon.errors import SpecError
from nospoon.lab.grammar import BARE, ROWS, UNITS

KNOWN = sorted(ROWS["host"])
MISSING = "expected <hostRequires> in <recipe>, got none. <hostRequires/> is any machine."
IN = "job/recipeSet/recipe[1]/hostRequires"
WRONG = """<job>
  <recipeSet>
    <recipe>
      <hostRequires>
        <memory value="500MB"/>
        <madeup/>
        <disk><size op="&gt;=" value="1" units="gigaquads"/></disk>
      </hostRequires>
    </recipe>
    <recipe/>
  </recipeSet>
</job>"""


@pytest.mark.parametrize("name", BARE)
def test_json_has_every_attribute_of_an_element(name: str) -> None:
    """Some of their names are those of elements elsewhere (`arch`)."""
    words = dict.fromkeys(BARE[name], "x")
    written = " ".join(f'{key}="{value}"' for key, value in words.items())
    group = next(key for key, rows in ROWS.items() if name in rows)
    group = "and" if group == "host" else group
    xml = f"<hostRequires><{group}><{name} {written}/></{group}></hostRequires>"
    json_ = json.dumps({"hostRequires": {group: {name: words}}})
    ((first,), (second,)) = (read_request(each.encode(), file="f") for each in (xml, json_))
    (one,), (other,) = ([each for each in r.requires.walk() if each.name == name]
                        for r in (first, second))  # fmt: skip
    assert one.attributes == other.attributes == words


@pytest.mark.parametrize("text", ["<hostRequires/>", "<job><recipeSet>"])
def test_what_was_read_goes_with_its_reader(text: str) -> None:
    """Parser and reader had each other, with up to 10 MiB, until the next whole collection."""
    reader = requests._Reader("job.xml")
    gone = weakref.ref(reader)
    gc.disable()
    try:
        reader.read(text.encode())
    except SpecError:
        assert "recipeSet" in text
    finally:
        del reader
        left = gone()
        gc.enable()
    assert left is None


def problems(text: str | bytes) -> list[str]:
    data = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(SpecError) as caught:
        read_request(data, file="job.xml")
    return [str(each) for each in caught.value.problems]


def test_all_that_is_wrong_is_said_at_once_with_its_place() -> None:
    assert problems(WRONG) == [
        f"job.xml:5:9: {IN}/memory: value: expected a whole number of MiB, got '500MB'",
        f"job.xml:6:9: {IN}/madeup: unknown element <madeup>. Known here: {', '.join(KNOWN)}.",
        f"job.xml:7:15: {IN}/disk/size: units: expected one of {', '.join(UNITS)}, got 'gigaquads'",
        f"job.xml:10:5: job/recipeSet/recipe[2]: {MISSING}",
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<hostRequires><memory/></hostRequires>", "expected a value of <memory>"),
        ("<hostRequires><memory op='~' value='1'/></hostRequires>", "op: expected one of = !="),
        ("<hostRequires><memory op='like' value='1'/></hostRequires>", "got 'like'"),
        ("<hostRequires><memory value='-1'/></hostRequires>", "expected a whole number of MiB"),
        ("<hostRequires><memory value='1e9'/></hostRequires>", "expected a whole number of MiB"),
        (f"<hostRequires><memory value='{'9' * 19}'/></hostRequires>", "expected a whole number"),
        ("<hostRequires><memory value='1' units='B'/></hostRequires>", "unknown attribute 'units'"),
        ("<hostRequires><diskspace value='1' units='quads'/></hostRequires>", "got 'quads'"),
        ("<hostRequires><diskcount value='two'/></hostRequires>", "a whole number, got 'two'"),
        ("<hostRequires><cpu><flag/></cpu></hostRequires>", "expected a value of <flag>"),
        ("<hostRequires><arch op='&gt;' value='x'/></hostRequires>", "expected one of = != like"),
        ("<hostRequires><arch value='x'><or/></arch></hostRequires>", "expected nothing in <arch>"),
        ("<hostRequires><cpu><memory value='1'/></cpu></hostRequires>", "unknown element <memory>"),
        ("<hostRequires xmlns:x='u'><x:memory value='1'/></hostRequires>", "unknown element"),
        ("<hostRequires>text</hostRequires>", "got text 'text'"),
        ("<hostRequires><and>text</and></hostRequires>", "expected elements in <and>"),
        ("<job/>", "expected <recipeSet> in <job>, got none"),
        ("<recipeSet/>", "expected <recipe> in <recipeSet>, got none"),
        ("<recipe><hostRequires/><hostRequires/></recipe>", "expected one <hostRequires>, got 2"),
        ("<recipe><hostRequires/><colour/></recipe>", "unknown element <colour>"),
        ("<html/>", "expected one of job, recipeSet, recipe, hostRequires, got <html>"),
        ("<job>", "not XML: no element found"),
        ("", "not XML: no element found"),
        (
            '{"hostRequires": {"memory": {"op": ">", "value": 9}, "memory": 1}}',
            "got 'memory' twice",
        ),
        (b"<job>\xff</job>", "not XML: not well-formed"),
        ("<!DOCTYPE job [<!ENTITY a 'b'>]><job>&a;</job>", "expected no document type"),
        ("<!DOCTYPE job SYSTEM 'file:///etc/passwd'><job/>", "expected no document type"),
        ("<?xml version='1.0' encoding='foo'?><job/>", "expected an encoding of iso-8859-1,"),
        ("<?xml version='1.0' encoding='idna'?><job/>", "got 'idna'. Write it in UTF-8."),
        ("<job>&amp;nbsp;</job>", "expected elements in <job>"),
    ],
)
def test_bad_input_says_what_was_expected(text: str | bytes, why: str) -> None:
    assert any(why in each for each in problems(text))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"<and>" * 65, "at most 64 levels"),
        (b"<job>" + b"<a/>" * 100_000 + b"</job>", "at most 100000 elements"),
        (b"<job " + b" ".join(b"a%d='x'" % n for n in range(33)) + b"/>", "at most 32 attributes"),
        (b"<job>" + b" " * (10 << 20) + b"</job>", "at most 10 MiB"),
    ],
)
def test_a_request_is_bounded(data: bytes, why: str) -> None:
    with pytest.raises(SpecError, match=why):
        read_element(data, file="f")


def test_of_many_problems_the_first_are_said() -> None:
    inner = "<madeup/>" * (requests.MOST_PROBLEMS + 5)
    assert len(problems(f"<hostRequires>{inner}</hostRequires>")) == requests.MOST_PROBLEMS


def test_siblings_of_one_name_are_numbered() -> None:
    root = read_element(b"<a><b/><c/><b><d/></b></a>", file="f")
    assert [each.path for each in root.walk()] == ["a", "a/b[1]", "a/c", "a/b[2]", "a/b[2]/d"]
