"""The same grammar of requests as RELAX NG, for editors and for those who write requests.

https://relaxng.org/spec-20011203.html. The reader of requests stays the judge: it says what to
write in place of what is wrong, and a schema has no words for how many elements there are and how
long values may be, for characters that iPXE would take from kernel options, and for spaces around
a duration.
"""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree import ElementTree as ET

from nospoon.lab import recipe
from nospoon.lab.asked import MOST_CMDLINE, MOST_ROLE, MOST_SECONDS, PANIC, PRIORITIES
from nospoon.lab.compare import TEXTUAL, Op
from nospoon.lab.grammar import BARE, MOST_DIGITS, ROWS, Row, attributes, ops

NAMESPACE = "http://relaxng.org/ns/structure/1.0"
DATATYPES = "http://www.w3.org/2001/XMLSchema-datatypes"
NUMBER = f"[0-9]{{1,{MOST_DIGITS}}}"
ANYTHING, DISTRO = "anything", "distro"


def relax_ng() -> str:
    """The schema of a job, recipe set, recipe or bare `hostRequires` in XML."""
    grammar = _pattern(
        "grammar",
        _pattern("start", _pattern("choice", *map(_reference, (*recipe.CHILDREN, "hostRequires")))),
        _define("job", _job()),
        _define("recipeSet", _recipe_set()),
        _define("recipe", _recipe()),
        _define("hostRequires", _host_requires()),
        *(_define(group, _choice_of_rows(group)) for group in ROWS),
        _define(DISTRO, _distro()),
        _define(ANYTHING, _anything()),
        xmlns=NAMESPACE,
        datatypeLibrary=DATATYPES,
    )
    ET.indent(grammar)
    return ET.tostring(grammar, encoding="unicode")


def _job() -> ET.Element:
    foreign = ET.Element("element")
    foreign.append(_any_name_but(ET.Element("nsName", ns="")))
    foreign.append(_reference(ANYTHING))
    others = [_element(each, _reference(ANYTHING)) for each in ("notify", "whiteboard")]
    inner = _pattern("oneOrMore", _reference("recipeSet"))
    around = _pattern("zeroOrMore", _pattern("choice", foreign, *others))
    return _element("job", _attributes(), _pattern("interleave", around, inner))


def _recipe_set() -> ET.Element:
    word = "|".join("".join(f"[{c.upper()}{c}]" for c in each) for each in PRIORITIES)
    priority = _optional("priority", _data("string", pattern=word))
    members = _pattern("oneOrMore", _reference("recipe"))
    return _element("recipeSet", priority, _attributes("priority"), members)


def _recipe() -> ET.Element:
    length = {"kernel_options": MOST_CMDLINE, "role": MOST_ROLE}
    bounded = [_optional(n, _data("string", maxLength=str(most))) for n, most in length.items()]
    seconds = _data("nonNegativeInteger", maxInclusive=str(MOST_SECONDS), pattern=NUMBER)
    special = {
        "watchdog": _optional("panic", _pattern("choice", *map(_value, PANIC))),
        "reservesys": _optional("duration", seconds),
    }
    attribute = {"watchdog": "panic", "reservesys": "duration"}
    once = {
        each: _element(each, checked, _attributes(attribute[each]), _inner())
        for each, checked in special.items()
    }
    once[recipe.DISTRO] = _element(recipe.DISTRO, _attributes(), _any_of(_distro_inner()))
    others = sorted(recipe.CHILDREN["recipe"] - {recipe.REQUIRES})
    named = {each: once.get(each) or _element(each, _reference(ANYTHING)) for each in others}
    inner = _pattern(
        "interleave",
        _reference("hostRequires"),
        *(_pattern("optional", named[each]) for each in recipe.ONCE),
        _any_of(named[each] for each in others if each not in recipe.ONCE),
    )
    return _element("recipe", *bounded, _attributes(*length), inner)


def _distro_inner() -> list[ET.Element]:
    return [ET.Element("text"), _reference(DISTRO)]


def _distro() -> ET.Element:
    """What stands in `distroRequires`: others than these two are not read."""
    op = _pattern("choice", *map(_value, ("==", *TEXTUAL)))
    compared = [
        _element(
            each,
            _optional("op", op),
            _attribute("value", ET.Element("text")),
            _attributes("op", "value"),
            _any_of(_distro_inner()),
        )
        for each in recipe.COMPARED
    ]
    names = ET.Element("nsName", ns="")
    names.append(_pattern("except", *map(_named, recipe.COMPARED)))
    other = _pattern("element", names, _attributes(), _any_of(_distro_inner()))
    return _pattern("choice", *compared, other)


def _host_requires() -> ET.Element:
    """One machine, by its name, or a filter."""
    named = _attribute("force", _data("string", minLength="1"))
    any_of_them = _pattern("group", _optional("force", _value("")), _members("host"))
    return _element("hostRequires", _pattern("choice", named, any_of_them))


def _choice_of_rows(group: str) -> ET.Element:
    return _pattern("choice", *(_of_row(name, row) for name, row in ROWS[group].items()))


def _of_row(name: str, row: Row) -> ET.Element:
    if row.within:
        return _element(name, _members(row.within))
    compared = ops(row)
    written = [_value(each) for each in ("==", *compared) if each != Op.LIKE]
    text = ET.Element("text")
    if name in BARE:
        written += [_value(Op.LIKE)] * (Op.LIKE in compared)
        others = (each for each in attributes(name, row) if each != "op")
        op = _optional("op", _pattern("choice", *written))
        return _element(name, op, *(_optional(each, text) for each in others))
    units = [_optional("units", _pattern("choice", *map(_value, row.units)))] if row.units else []
    like = _pattern("group", _attribute("op", _value(Op.LIKE)), _attribute("value", text), *units)
    value = _attribute("value", _data("string", pattern=NUMBER) if row.number else text)
    exact = _pattern("group", _optional("op", _pattern("choice", *written)), value, *units)
    alternatives = (exact, like) if Op.LIKE in compared else (exact,)
    return _element(name, _pattern("choice", *alternatives))


def _members(group: str) -> ET.Element:
    return _pattern("zeroOrMore", _reference(group))


def _anything() -> ET.Element:
    return _pattern("group", _attributes(), _inner())


def _inner() -> ET.Element:
    """Whatever stands in an element that nospoon does not read."""
    element = _pattern("element", ET.Element("anyName"), _reference(ANYTHING))
    return _any_of([ET.Element("text"), element])


def _any_of(patterns: Iterable[ET.Element]) -> ET.Element:
    return _pattern("zeroOrMore", _pattern("choice", *patterns))


def _attributes(*but: str) -> ET.Element:
    """Any attributes besides these: nospoon does not read others."""
    names = _any_name_but(*(_named(each) for each in but)) if but else ET.Element("anyName")
    return _pattern("zeroOrMore", _pattern("attribute", names))


def _any_name_but(*names: ET.Element) -> ET.Element:
    return _pattern("anyName", _pattern("except", *names))


def _named(name: str) -> ET.Element:
    return _text("name", name)


def _element(name: str, *content: ET.Element) -> ET.Element:
    return _pattern("element", *content, name=name)


def _attribute(name: str, content: ET.Element) -> ET.Element:
    return _pattern("attribute", content, name=name)


def _optional(name: str, content: ET.Element) -> ET.Element:
    return _pattern("optional", _attribute(name, content))


def _data(kind: str, **parameters: str) -> ET.Element:
    data = ET.Element("data", type=kind)
    for name, text in parameters.items():
        data.append(_text("param", text, name=name))
    return data


def _value(text: str) -> ET.Element:
    """Exactly this text: the default type, `token`, would take spaces around it."""
    return _text("value", text, type="string")


def _text(tag: str, text: str, **attributes: str) -> ET.Element:
    element = ET.Element(tag, attributes)
    element.text = text
    return element


def _define(name: str, content: ET.Element) -> ET.Element:
    return _pattern("define", content, name=name)


def _reference(name: str) -> ET.Element:
    return ET.Element("ref", name=name)


def _pattern(tag: str, *content: ET.Element, **attributes: str) -> ET.Element:
    element = ET.Element(tag, attributes)
    element.extend(content)
    return element
