"""YAML that programs other than Python read: what is text for us is text for them."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from nospoon.control.planning.exports import WRITERS
from nospoon.exports.formats import Syntax
from nospoon.runtime import written_yaml
from nospoon.runtime.written_yaml import Dumper, parts

NUMBERS_OF_YAML_1_2 = ["1e3", "12e03", "0o7", "1E5", "4e+2", "1.e5", "0b1", "007", "0x1f", "12"]
BOOLEANS_IN_GO = ["y", "n", "yes", "on", "null", "~"]


@pytest.mark.parametrize("text", [*NUMBERS_OF_YAML_1_2, *BOOLEANS_IN_GO])
@pytest.mark.parametrize("syntax", [Syntax.YAML, Syntax.YAML_STREAM])
def test_names_and_passwords_that_look_like_something_else_are_quoted(
    text: str, syntax: Syntax
) -> None:
    """`kubectl` refused a BareMetalHost with the name 1e3."""
    given = {"name": text, text: "key"}
    written = WRITERS[syntax]([given] if syntax is Syntax.YAML_STREAM else given)
    assert written.removeprefix("---\n") == f"name: '{text}'\n'{text}': key\n"


@given(st.text(max_size=20) | st.from_regex(r"[-+.0-9_eExobyn]{1,8}", fullmatch=True))
def test_text_stays_what_it_is(text: str) -> None:
    plain = text.encode("utf-8", "replace").decode()
    assert yaml.safe_load(yaml.dump({"name": plain}, Dumper=Dumper)) == {"name": plain}


@pytest.mark.parametrize("text", ["node-1", "1-2", "1e", "e3", "12345678-1234-1234-1234-12345678"])
def test_other_text_is_plain(text: str) -> None:
    assert yaml.dump({"name": text}, Dumper=Dumper) == f"name: {text}\n"


TEXT = st.text(max_size=20) | st.text("a b\n\t'#:", max_size=200)
VALUES = st.recursive(
    TEXT | st.integers() | st.none() | st.booleans(),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(TEXT, inside, max_size=6),
    max_leaves=30,
)


@given(VALUES)
def test_pieces_are_what_the_whole_is(value: object) -> None:
    """Of whatever text, folded lines and odd keys."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(written_yaml, "PIECE", 2)
        written = list(parts(value))
    whole = yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True)
    assert yaml.safe_load("".join(written)) == yaml.safe_load(whole)


SIMPLE = st.text("ab1:.-/_=e +", max_size=90)
KEYS = SIMPLE | TEXT | st.integers() | st.none()


@given(
    st.dictionaries(
        KEYS,
        st.recursive(
            SIMPLE | TEXT | st.integers() | st.floats() | st.none() | st.booleans(),
            lambda inside: (
                st.lists(inside, max_size=4)
                | st.dictionaries(KEYS, inside, max_size=4)
                | st.tuples(inside)
            ),
            max_leaves=20,
        ),
        min_size=1,
    )
)
def test_it_is_written_as_pyyaml_does(value: dict[object, object]) -> None:
    whole = yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True)
    assert "".join(parts(value)) == whole


@pytest.mark.parametrize("same", [{}, [], (), ["a"], {"a": 1}])
def test_what_is_there_twice_is_named_as_by_pyyaml(same: object) -> None:
    value = {"a": same, "b": [same, {"c": same}]}
    assert "".join(parts(value)) == yaml.dump(value, Dumper=Dumper, sort_keys=False)


def test_short_text_is_written_without_pyyaml(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyYAML takes 0.4 ms for each node of ten thousand."""
    monkeypatch.setattr(yaml, "dump", None)
    value = {"name": "node-1", "mac": "02:00:5e:00:00:01", "hosts": [{"a": ["x"]}, "192.0.2.1"]}
    written = "name: node-1\nmac: 02:00:5e:00:00:01\nhosts:\n- a:\n  - x\n- 192.0.2.1\n"
    assert "".join(parts(value)) == written


def test_a_long_inventory_is_written_in_pieces_as_it_is_in_one() -> None:
    variables = {
        "ansible_host": "192.0.2.7",
        "nospoon_macs": ["52:54:00:00:00:07"],
        "note": "a " * 60,
    }
    hosts = {f"node-{i}": {**variables, "nospoon_macs": [f"m{i}"]} for i in range(1000)}
    value = {"all": {"hosts": hosts, "children": {"big": {"hosts": {each: {} for each in hosts}}}}}
    written = list(parts(value))
    assert "".join(written) == yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True)
    assert max(map(len, written)) < sum(map(len, written)) / 10
