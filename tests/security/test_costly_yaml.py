"""What YAML's parser does while no other thread runs. %TAG directives of a file of a megabyte took
all memory, or all threads for minutes.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.security.asked import OWNER, a_daemon

from nospoon.clusterfile import compose as composing
from nospoon.clusterfile.compose import PIECE, compose
from nospoon.clusterfile.document import Document
from nospoon.errors import SpecError

LONG = "%TAG !e! tag:" + "x" * 200_000 + "\n---\ncluster: c\nnodes: [" + "!e!a b," * 100_000 + "]\n"
MANY = "".join(f"%TAG !a{number}! t\n" for number in range(500_000)) + "---\ncluster: c\n"
WHY = "a %TAG directive: tags have no meaning here"


@pytest.mark.parametrize("text", [LONG, MANY], ids=["long", "many"])
async def test_a_plan_of_a_file_with_directives_is_refused(tmp_path: Path, text: str) -> None:
    async with a_daemon(tmp_path) as asked:
        answer = await asked.ask(OWNER, "POST", "/v1/plan", {"text": text, "file": "f"})
        assert answer.status == 422, answer.body
        assert WHY in answer.body.decode()


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\x85", "\u2028", "\u2029"])
def test_directives_are_seen_where_the_parser_sees_lines(end: str) -> None:
    with pytest.raises(SpecError, match=f"f:2:1: {WHY}"):
        Document(f"# a{end}%TAG ! t\n---\na: b\n", "f")


def test_directives_are_seen_behind_a_mark_of_byte_order() -> None:
    with pytest.raises(SpecError, match=f"f:1:1: {WHY}"):
        Document("\ufeff%TAG ! t\n---\na: b\n", "f")


def test_the_same_within_a_line_is_text() -> None:
    assert compose("a: '%TAG ! t'\nb: |\n  %TAG ! t\n") is not None


@pytest.mark.parametrize("begin", ["a: ", "a: '", "#", "a: |\n ", ""])
def test_others_have_turns_while_a_long_value_is_read(
    monkeypatch: pytest.MonkeyPatch, begin: str
) -> None:
    """16 MiB of one value stopped all threads for 0.2 s."""
    given: list[int] = []

    class Pieces(composing._Pieces):
        def read(self, size: int = PIECE, /) -> str:
            piece = super().read(size)
            given.append(len(piece))
            return piece

    monkeypatch.setattr(composing, "_Pieces", Pieces)
    length = 1 << 20
    compose(begin + ("x" if begin else " ") * length + ("'" if "'" in begin else ""))
    assert sum(given) >= length
    assert max(given) <= PIECE
