"""What only another target of make runs is on the list of skips: a whole run would fail."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]


def reasons() -> Iterator[tuple[str, str]]:
    """Where a test is skipped for the sake of another target of make, and the reason given."""
    for path in TESTS.glob("**/*.py"):
        if path == Path(__file__):
            continue
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                for value in (*node.args, *(keyword.value for keyword in node.keywords)):
                    if node.func.attr in {"skip", "skipif"} and "make test-" in ast.unparse(value):
                        yield f"{path.relative_to(TESTS)}:{value.lineno}", ast.literal_eval(value)


def test_skips_for_another_target_are_on_the_list() -> None:
    listed = [one["reason"] for one in tomllib.loads((TESTS / "skips.toml").read_text())["skip"]]
    given = dict(reasons())
    assert len(given) >= 6
    assert [each for each in given.items() if not any(one in each[1] for one in listed)] == []
