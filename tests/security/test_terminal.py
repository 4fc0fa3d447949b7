"""Control characters from servers, guests and files do nothing to a terminal."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

import nospoon.cli
from nospoon.cli.follow import Lines, finish
from nospoon.cli.output import print_record, print_rows, report
from nospoon.clusterfile.load import load
from nospoon.errors import NospoonError, Problem, SpecError
from nospoon.model.rest.operations import (
    FailedStep,
    OperationEnd,
    OperationEvent,
    OperationResult,
)
from nospoon.model.visible import CONTROLS, visible, visible_colours, visible_line
from nospoon.runtime.logs import escaped

EVIL = "a\x1b]0;owned\x07\x1b[2J\r\x9b31m\x7f\u202egpj.exe\u2066\ud800b"
HARMLESS = {chr(code) for code in CONTROLS} - {"\n", "\t"}


def test_control_and_bidi_characters_are_escaped_and_text_is_not() -> None:
    assert not HARMLESS & set(visible("".join(map(chr, CONTROLS))))
    assert [
        code for code in CONTROLS if chr(code) not in "\n\t" and visible(chr(code)) == chr(code)
    ] == []
    assert visible("\x1b\x9b\x7f\u202e") == "\\u001b\\u009b\\u007f\\u202e"
    assert visible("Grüße, 世界 ✓\n\tx") == "Grüße, 世界 ✓\n\tx"
    assert visible_line("a\n\tb") == "a\\u000a\\u0009b"
    assert json.loads(visible(json.dumps(EVIL, ensure_ascii=True))) == EVIL


def test_colours_of_programs_that_nospoon_runs_stay() -> None:
    assert visible_colours("\x1b[0;32mok\x1b[0m\x1b[2J") == "\x1b[0;32mok\x1b[0m\\u001b[2J"


@pytest.mark.parametrize("format_", ["table", "json", "yaml", "value", "csv"])
def test_rows_of_every_format_have_no_control_characters(
    format_: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"node": EVIL, "why": [EVIL, {"x": EVIL}]}]
    print_rows(rows, format_=format_, names=["node", "why"])
    print_record(rows[0], format_=format_)
    assert not HARMLESS & set(capsys.readouterr().out)


def test_errors_and_events_have_none_either(capsys: pytest.CaptureFixture[str]) -> None:
    report(NospoonError(EVIL, hint=EVIL))
    report(SpecError([Problem("f", 1, 1, "p", EVIL)]))
    Lines().show(OperationEvent(1, "failed", EVIL, EVIL, done=1, total=2))
    failure = FailedStep(EVIL, f"its console ends with:\n{EVIL}")
    finish(OperationEnd("done", EVIL, OperationResult([failure])))
    said = capsys.readouterr().err
    assert "its console ends with:\n" in said
    assert not HARMLESS & set(said)


def test_lines_of_the_log_have_none_and_no_newlines() -> None:
    event = {"event": f"{EVIL}\nforged", "why": EVIL, "count": 3, "exception": f"Trace\n{EVIL}"}
    shown = escaped(None, "info", dict(event))
    assert shown["count"] == 3
    assert shown["exception"].startswith("Trace\n")
    assert "\n" not in shown["event"]
    assert not HARMLESS & set("".join(map(str, shown.values())))


RAW = {"echo.py", "console.py"}
"""Where click's own function for output may be called."""
PRINTS = {"echo", "secho", "echo_via_pager"}


def printing(path: Path) -> list[str]:
    calls = [each for each in ast.walk(ast.parse(path.read_text())) if isinstance(each, ast.Call)]
    return [
        f"{path.name}:{each.lineno}"
        for each in calls
        if (isinstance(each.func, ast.Name) and each.func.id == "print")
        or (isinstance(each.func, ast.Attribute) and each.func.attr in PRINTS)
    ]


def test_the_command_line_prints_by_one_function() -> None:
    paths = sorted(Path(nospoon.cli.__file__).parent.rglob("*.py"))
    assert [each for path in paths if path.name not in RAW for each in printing(path)] == []


def test_a_key_with_a_line_end_stays_in_its_line() -> None:
    with pytest.raises(SpecError) as refused:
        load('cluster: c\n"a\\nx.yaml:1:1: all is well": 1\nnodes: [{}]\n', file="x.yaml")
    assert len(str(refused.value).splitlines()) == len(refused.value.problems) == 1
    assert "a\\u000ax.yaml" in str(refused.value)
