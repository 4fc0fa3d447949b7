"""Schema and loader agree about any file, but for the rules that `BEYOND` lists.

Files are drawn from the schema itself, with something that does not fit put in here and there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, cast

import jsonschema
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, FormatChecker, ValidationError

from nospoon.clusterfile.document import Document
from nospoon.clusterfile.load import load
from nospoon.clusterfile.schema import BEYOND, json_schema
from nospoon.clusterfile.sections import read_sections
from nospoon.errors import SpecError

SCHEMA = json_schema()
MISFITS: list[Any] = [
    None, True, False, 0, -1, 1, 2.0, 1.5, 10**30, "", "yes", "true", "1", "a b", "a\nb", "é",
    "x" * 300, "${SECRET}", "10.0.0.1/24", "8GB", [], ["a"], [1], {}, {"x": 1}, {"": ""},
]  # fmt: skip
TEXTS = [
    "", "a", "A b", "x\ny", "http://h/p", "https://h", "ftp://h", "10.1.2.0/24", "10.0.0.1", "::1",
    "pool/volume", "qemu:///system", "root@h", "1s", "8GiB", "{n}", "node-{n}", "abcdefgh", "00ff",
    "${SECRET}", "sha256:" + "a" * 64, "é",
]  # fmt: skip


def _pattern(_: object, pattern: str, value: object, __: object) -> Iterator[ValidationError]:
    """As ECMA-262 §22.2 has it: `$` is the end alone, where Python's also is before a line's."""
    if isinstance(value, str) and not re.search(re.sub(r"\$$", r"\\Z", pattern), value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


_extended = cast("Any", jsonschema.validators.extend)(Draft202012Validator, {"pattern": _pattern})
VALIDATOR = _extended(SCHEMA, format_checker=cast("Any", FormatChecker)())


def resolved(node: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in node:
        return node
    found: Any = SCHEMA
    for part in node["$ref"].removeprefix("#/").split("/"):
        found = found[int(part)] if isinstance(found, list) else found[part]
    return resolved(found)


def fitting(node: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that this part of the schema takes, mostly."""
    node = resolved(node)
    choices = node.get("anyOf") or node.get("oneOf")
    if choices:
        return st.sampled_from(choices).flatmap(drawn)
    if "enum" in node or "const" in node:
        return st.sampled_from(node.get("enum") or [node["const"]])
    made = {
        "object": _object,
        "array": _list,
        "string": _text,
        "integer": lambda _: st.integers(node.get("minimum", 0), node.get("maximum", 1 << 20)),
        "number": lambda _: st.floats(node.get("minimum", 0), node.get("maximum", 1000)),
        "boolean": lambda _: st.booleans(),
        "null": lambda _: st.none(),
    }.get(node.get("type", ""))
    return made(node) if made is not None else st.sampled_from(MISFITS)  # type: ignore[no-untyped-call]


def _list(node: dict[str, Any]) -> st.SearchStrategy[list[Any]]:
    items = st.deferred(lambda: drawn(node.get("items", {})))
    return st.lists(items, min_size=node.get("minItems", 0), max_size=3)


def _text(node: dict[str, Any]) -> st.SearchStrategy[str]:
    if "pattern" in node:
        matching = st.from_regex(node["pattern"], alphabet=st.characters(codec="ascii"))
        return st.one_of(matching, matching.map(lambda each: each.rstrip("\n")), _TEXTS)
    if node.get("format") in {"ipv4", "ipv6"}:
        return st.ip_addresses(v=4 if node["format"] == "ipv4" else 6).map(str)
    return _TEXTS


_TEXTS = st.sampled_from(TEXTS)


def _object(node: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    known, required = node.get("properties", {}), set(node.get("required", ()))

    @st.composite
    def made(draw: st.DrawFn) -> dict[str, Any]:
        optional = st.sampled_from(sorted(known.keys() - required) or [None])
        some = [each for each in draw(st.lists(optional, unique=True, max_size=4)) if each]
        result = {name: draw(drawn(known[name])) for name in (*sorted(required), *some)}
        free = {**node.get("patternProperties", {})}
        if isinstance(node.get("additionalProperties"), dict):
            free[node.get("propertyNames", {}).get("pattern", "^[a-zA-Z_]{1,9}$")] = node[
                "additionalProperties"
            ]
        names = node.get("propertyNames", {}).get("enum")
        for pattern, value in free.items():
            name = draw(st.sampled_from(names) if names else _text({"pattern": pattern}))
            result[name.rstrip("\n")] = draw(drawn(value))
        return result

    return made()


def drawn(node: dict[str, Any]) -> st.SearchStrategy[Any]:
    """What fits, and one time in eight something that may not."""
    return st.integers(0, 7).flatmap(
        lambda chance: fitting(node) if chance else st.sampled_from(MISFITS)
    )


def files() -> st.SearchStrategy[dict[str, Any]]:
    """One section beside what every file has, so that most say something."""
    sections = SCHEMA["properties"]
    least = {"cluster": "a", "nodes": [{}]}
    return st.sampled_from(sorted(sections)).flatmap(
        lambda name: drawn(sections[name]).map(lambda value: {**least, name: value})
    )


def refusals(value: Any) -> list[str]:
    """What the loader has against each section."""
    return [each.message for each in read_sections(Document(json.dumps(value), "x")).problems]


def is_beyond(message: str) -> bool:
    return any(re.search(pattern, message) for pattern in BEYOND)


@given(files())
def test_what_the_loader_takes_the_schema_takes(value: dict[str, Any]) -> None:
    try:
        load(json.dumps(value), file="x")
    except SpecError:
        return
    VALIDATOR.validate(value)


@given(files())
def test_what_the_loader_refuses_the_schema_refuses_but_for_the_rules_beyond_it(
    value: dict[str, Any],
) -> None:
    if VALIDATOR.is_valid(value):
        assert [each for each in refusals(value) if not is_beyond(each)] == []


def test_a_value_of_another_kind_is_refused_where_a_mapping_belongs() -> None:
    ironic = {"endpoint": "http://i", "instance_info": -1, "extra": "x"}
    found = refusals({"cluster": "a", "nodes": [{}], "ironic": ironic})
    assert sorted(found) == ["expected a mapping, got 'x'", "expected a mapping, got -1"]
