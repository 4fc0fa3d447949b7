"""The reference of cluster files names what each field takes, and its default."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nospoon.clusterfile.changes import RULES
from nospoon.clusterfile.cloud import CloudAuthSection, CloudSection
from nospoon.clusterfile.hardware import HardwareSection
from nospoon.clusterfile.schema import json_schema

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "scripts/make-docs"))
PATTERNS = sorted(SCRIPT["PATTERNS"])


def rows() -> Iterator[list[str]]:
    """Key, type, default, meaning, change."""
    for line in (ROOT / "docs/reference/file.md").read_text().splitlines():
        if line.startswith("| `"):
            yield [each.strip() for each in line.replace("\\|", "/").strip("| ").split(" | ")]


def patterns(schema: Any) -> Iterator[str]:
    """All that are in a schema."""
    if isinstance(schema, dict):
        yield from (each for key, each in schema.items() if key == "pattern")
    inner = schema.values() if isinstance(schema, dict) else schema
    for each in inner if isinstance(schema, dict | list) else ():
        yield from patterns(each)


@pytest.mark.parametrize("end", PATTERNS)
def test_every_kind_of_text_is_still_one_of_a_field(end: str) -> None:
    """A pattern that changes in the code would make its fields "text" without a word."""
    assert any(isinstance(each, str) and each.endswith(end) for each in patterns(json_schema()))


def test_numbers_and_addresses_are_not_called_text() -> None:
    found = [(row[0], row[1]) for row in rows()]
    assert ("`mac`", "MAC address") in found
    assert ("`ports`", "range (`6230-6330`)") in found
    numbers = {"`mac`", "`ports`", "`pool`", "`address`", "`cidr`", "`redfish_port`", "`endpoint`"}
    assert not [row for row in found if row[0] in numbers and row[1] == "text"]


def test_defaults_stand_in_their_column() -> None:
    assert not [row for row in rows() if "(default)" in row[3] and not row[2]]
    assert [row[2] for row in rows() if row[0] == "`state`"] == ["`available`"]


def test_every_section_has_a_table() -> None:
    """`parts` in the column of changes promises one."""
    shown = {model for _, model in SCRIPT["SECTIONS"]}
    inherited, by_the_command = {HardwareSection}, {CloudSection, CloudAuthSection}
    assert set(RULES) - shown == inherited | by_the_command


def test_no_text_is_a_code_block_by_its_indentation() -> None:
    """CommonMark §4.4: four blanks after an empty line."""
    lines = (ROOT / "docs/reference/file.md").read_text().splitlines()
    assert not [line for line in lines if line.startswith("    ")]


@pytest.mark.parametrize("page", ["errors_page", "settings_page", "file_page", "rest_page"])
def test_rows_of_tables_are_lines(page: str) -> None:
    """The text of an error that has two lines ended its table."""
    rows = [part for part in SCRIPT[page]() if part.startswith("|")]
    assert rows
    assert not [row for row in rows if "\n" in row]
