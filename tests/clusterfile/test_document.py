"""YAML 1.2 as we read it: scalars, duplicate keys, aliases, places."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nospoon.clusterfile.document import Document, dotted, resolve
from nospoon.clusterfile.load import load
from nospoon.errors import SpecError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("52:54:00:00:12:34", "52:54:00:00:12:34"),
        ("11:22:33:44:55:06", "11:22:33:44:55:06"),
        ("on", "on"),
        ("yes", "yes"),
        ("No", "No"),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("", None),
        ("null", None),
        ("0o17", 15),
        ("017", 17),
        ("0x1F", 31),
        ("-3", -3),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("8GiB", "8GiB"),
        ("2026-11-21", "2026-11-21"),
        ("1_000", "1_000"),
    ],
)
def test_plain_scalars_mean_what_yaml_1_2_says(text: str, value: object) -> None:
    assert resolve(text) == value
    assert type(resolve(text)) is type(value)


def test_quoted_scalars_are_text() -> None:
    assert Document("a: '1'\nb: \"true\"\n", "x").value == {"a": "1", "b": "true"}


def test_a_duplicate_key_is_a_problem_that_names_both_lines() -> None:
    document = Document("a: 1\nb: 2\na: 3\n", "x.yaml")
    assert [str(problem) for problem in document.problems] == [
        "x.yaml:3:1: a: duplicate key 'a'. First used on line 1."
    ]


def test_places_are_those_of_values_and_keys() -> None:
    document = Document("nodes:\n  - cpus: 2\n    memory: 1GiB\n", "x")
    assert document.locate(("nodes", 0, "memory")) == (3, 13)
    assert document.locate(("nodes", 0, "memory"), at_key=True) == (3, 5)
    assert document.locate(("nodes", 0, "absent")) == (2, 5)


def test_a_syntax_error_has_a_place() -> None:
    with pytest.raises(SpecError, match=r"^x:2:2: not YAML"):
        Document("a: [1, 2\nb: 3\n", "x")


def test_an_alias_bomb_is_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    with pytest.raises(SpecError, match="more than 2000000 values"):
        Document("\n".join(lines), "x")


def test_an_alias_may_not_contain_itself() -> None:
    with pytest.raises(SpecError, match="contains itself"):
        Document("a: &a [*a]\n", "x")


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("!vault x", "!vault"),
        ("!vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  6162", "!vault"),
        ("!vault 'x'", "!vault"),
        ("!vault [x]", "!vault"),
        ("!vault {x: 1}", "!vault"),
        ("!!python/name:os.system x", "!!python/name:os.system"),
        ("!!int '2'", "!!int"),
        ("!!str 2", "!!str"),
        ("! 2", "!"),
        ("!<tag:example.com,2000:x> 2", "tag:example.com,2000:x"),
    ],
)
def test_tags_are_refused_by_name(text: str, tag: str) -> None:
    document = Document(f"a: 1\nb: {text}\n", "x")
    (problem,) = document.problems
    assert str(problem).startswith(f"x:2:4: b: unknown tag {tag!r}. Tags have no meaning here")


def test_tags_of_keys_are_refused() -> None:
    (problem,) = Document("!secret a: 1\n", "x").problems
    assert "unknown tag '!secret'" in str(problem)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(SpecError):
        Document(text, "x")


def test_paths_are_dotted() -> None:
    assert dotted(("nodes", 0, "disks", 1, "size")) == "nodes[0].disks[1].size"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: {b: &b {}, c: {<<: *b}}", "x:1:19: a.c: YAML 1.2 has no merge keys (`<<`). Write"),
        ("a: 1\nb:\n\t- c: 1\n", "x:3:1: not YAML: a tab as indentation. Indent with spaces"),
        ("a: {{ n }}", "x:1:5: a: expected a plain key, got a list or mapping. This looks like"),
        ("a:\n{% for b in c %}", "x:2:2: not YAML: text that begins with '%'. This looks like"),
        ("a: [1\nb: 2", "x:2:2: not YAML: expected ',' or ']' in the list that begins in line 1"),
        ("a: {b: 1\nc: 2", "x:2:2: not YAML: expected ',' or '}' in the mapping that begins in"),
        ("a: 'b\n", "x:2:1: not YAML: the text that begins in line 1, column 4"),
        ('a: "\\q"', "x:1:5: not YAML: a backslash before a character that it cannot escape"),
        ("a: b: c", "x:1:5: not YAML: a second ': ' in one line"),
        ("a: 'it's'", "x:1:8: not YAML: expected a key in the column of the mapping that begins"),
        ("a: b\nc\n", "x:3:1: not YAML: expected ': ' after the key in line 2, column 1"),
        ("a:\n  - b: 1\n   c: 2", "x:3:4: not YAML: expected '- ' in the column of the list"),
        ("a: - b", "x:1:4: not YAML: '- ' where no list can begin"),
        ("{a: 1}}", "x:1:7: not YAML: text after the end of the file's mapping"),
        ("a\n---\nb", "x:2:1: not YAML: expected one document, got another one after '---'"),
        ("a: ]", "x:1:4: not YAML: expected a value. Put text"),
        ("a: b\n\tc: d", "x:2:1: not YAML: a tab as indentation. Indent with spaces"),
        ("a: @b", "x:1:4: not YAML: text that begins with '@'. Put it in quotes"),
        ("a: é\nb: é\0c", "x:2:5: not YAML: expected no control character, got U+0000"),
    ],
)  # fmt: skip
def test_what_people_take_for_yaml_is_refused_at_its_place_with_what_to_write(
    text: str, expected: str
) -> None:
    with pytest.raises(SpecError) as raised:
        load(text, file="x")
    assert any(str(problem).startswith(expected) for problem in raised.value.problems)


def test_of_a_template_nothing_else_is_checked() -> None:
    with pytest.raises(SpecError) as raised:
        load("cluster: a\nnodes: [{count: {{ n }}, cpus: {{ m }}}]", file="x")
    assert len(raised.value.problems) == 2
