"""What leaves in a support bundle: no password, however it is written."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nospoon.clusterfile.load import load
from nospoon.control.maintenance.bundle import (
    MASK,
    PIECE,
    Secrets,
    cluster_as_json,
    lines_of_user_data,
    masked,
)

PASSWORDS = st.text(min_size=4, max_size=20).filter(lambda text: text.strip("*") == text)


def _masked(text: str, secrets: Sequence[str]) -> str:
    return masked(text, Secrets.of(secrets))


@given(PASSWORDS)
def test_a_known_secret_is_in_no_text_however_it_is_quoted(secret: str) -> None:
    quoted = "'" + secret.replace("'", "''") + "'"
    for text in (secret, json.dumps(secret), json.dumps(secret, ensure_ascii=False), quoted):
        assert _masked(f"the word {text} was used", [secret]).startswith("the word ")
        assert _masked(f"x {text} y", [secret]) in {
            f"x {MASK} y", f'x "{MASK}" y', f"x '{MASK}' y",
        }  # fmt: skip


@given(PASSWORDS.filter(lambda text: text not in "password, username, admin"), st.booleans())
def test_json_stays_json_and_tells_no_password_that_nobody_listed(secret: str, known: bool) -> None:  # noqa: FBT001
    text = json.dumps({"bmc": {"password": secret, "username": "admin"}})
    shown = json.loads(_masked(text, [secret] if known else []))
    assert shown == {"bmc": {"password": MASK, "username": "admin"}}


@pytest.mark.parametrize(
    "line",
    [
        'bmc: {password: "abc,defghij", address: 127.0.0.1}',
        "bmc: {password: 'abc}defghij', address: 127.0.0.1}",
        "bmc: {address: 127.0.0.1, password: abcdefghij}",
        "password: abcdefghij",
    ],
)
def test_values_of_passwords_are_masked_in_yaml(line: str) -> None:
    shown = _masked(line, [])
    assert "defghij" not in shown
    assert MASK in shown
    assert ("127.0.0.1" in line) is ("127.0.0.1" in shown)


def test_the_account_of_a_url_is_masked_and_its_place_is_not() -> None:
    shown = _masked("cannot fetch http://bob:hunter2@files.example/k: refused", [])
    assert shown == f"cannot fetch http://{MASK}@files.example/k: refused"


@pytest.mark.parametrize("account", ["u:pa@ssw0rd", "bob:o'brien99", "bob:o''brien99", "u@x:y@z"])
def test_an_account_with_odd_signs_is_masked_whole(account: str) -> None:
    assert _masked(f"{{image: 'http://{account}@h/x'}}", []) == f"{{image: 'http://{MASK}@h/x'}}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("abcdefgh", MASK),  # "efgh" is the end of a secret
        ("xabcdefghx", f"x{MASK}x"),
        ("abcdabcd", MASK + MASK),
        ("abc cdef", f"abc {MASK}"),
        ("ab", "ab"),
    ],
)
def test_of_secrets_that_overlap_nothing_is_left(text: str, shown: str) -> None:
    assert _masked(text, ["abcd", "cdef", "cdefgh", "defg"]) == shown


def test_long_texts_are_masked_whole() -> None:
    before = "a line without a secret\n" * (PIECE // 24 + 1)
    for key in ("password", "bmc_password", "k_g", "'token'"):
        text = f"{before}{key}:\n  abcdefgh\n{before}{key}: ijkl\n{before}"
        assert _masked(text, []) == (
            f'{before}{key}:\n  "{MASK}"\n{before}{key}: "{MASK}"\n{before}'
        )
    known = _masked(f"{before}two\nlines{before}", ["two\nlines"])
    assert known == f"{before}{MASK}{before}"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ('password: "se\\\\\\"cret", b', f'password: "{MASK}", b'),
        ("secret: 'it''s', b", f'secret: "{MASK}", b'),
        ("token:    plain, b", f'token:    "{MASK}", b'),
        ("http://bob:hunter2@h/", f"http://{MASK}@h/"),
    ],
)
def test_what_lies_across_two_pieces_is_masked_whole(said: str, shown: str) -> None:
    for before in range(PIECE - len(said) - 2, PIECE + 2):
        line = "x" * before
        assert _masked(f"{line} {said}", []) == f"{line} {shown}"
    long = "s" * 3 * PIECE
    assert _masked(f'password: "{long}", b: http://{long}@h/', []) == (
        f'password: "{MASK}", b: http://{MASK}@h/'
    )


def test_a_cluster_is_written_node_by_node_as_far_as_there_is_room() -> None:
    cluster = load("cluster: c\nhosts: {h: simulated}\nnodes: [{count: 50}]\n", file="f")
    head, *nodes = json.loads(cluster_as_json(cluster, 1 << 20))
    assert head["name"] == "c"
    assert [each["name"] for each in nodes] == [node.name for node in cluster.nodes]
    assert cluster_as_json(cluster, 5000) == "left out: it has more than 5000 characters\n"


def test_what_labs_install_machines_with_is_masked_line_by_line() -> None:
    text = """
cluster: a
flavors: {small: {}}
labs:
  dev:
    distros:
      d: {kernel: "http://m/k", initrd: "http://m/i", kickstart: "rootpw swordfish\\n%packages"}
      c: {image: c.raw, user_data: "#cloud-config\\npassword: tr0ub4dor\\n"}
nodes: [{kind: vm, image: c.raw, user_data: "#!/bin/sh\\nlogin --with hunter2"}]
services: {s: {nodes: node-0, health: 80, role: "#!/bin/sh\\nmysql -p sesame\\n"}}
"""
    assert lines_of_user_data(load(text, file="x")) == {
        "rootpw swordfish", "%packages", "password: tr0ub4dor", "login --with hunter2",
        "mysql -p sesame",
    }  # fmt: skip
