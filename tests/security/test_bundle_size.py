"""A support bundle has so much and no more, and is made for one user once at a time."""

from __future__ import annotations

import asyncio
import io
import re
import tarfile
from pathlib import Path
from uuid import uuid4

import pytest
from tests.security.asked import OTHER, OWNER, a_daemon

from nospoon.clusterfile.load import load
from nospoon.control.maintenance import bundle
from nospoon.control.maintenance.bundle import (
    LONGEST_PART,
    MASK,
    MAX_LEFT_OUT,
    MAX_TEXTS,
    PIECE,
    Bundle,
    Texts,
)
from nospoon.errors import SpecError
from nospoon.services.consoles.records import Records


def test_what_does_not_fit_into_a_bundle_is_left_out_and_says_so() -> None:
    texts = Texts()
    texts.add("a", "x" * MAX_TEXTS)
    texts.add("b", "y")
    texts.add("c", "")
    assert texts.by_name["b"].startswith("left out")
    assert (len(texts.by_name["a"]), texts.by_name["c"]) == (MAX_TEXTS, "")
    for n in range(MAX_LEFT_OUT + 5):
        texts.add(f"more{n}", "z")
    assert len(texts.by_name) == MAX_LEFT_OUT + 2


class Secret(str):
    """Counts how often it is spelled out."""

    __slots__ = ()
    spelled = 0

    def replace(self, *words: object) -> str:
        Secret.spelled += 1
        return super().replace(*words)  # type: ignore[arg-type]  # as it was called


def test_each_secret_is_spelled_out_once_however_many_texts_there_are() -> None:
    """Ten thousand nodes have as many passwords and consoles: a bundle took a thread for hours."""
    secret = Secret("hunter2")
    packed = Bundle({f"{n}.log": "it is hunter2\n" for n in range(50)}, [secret]).pack()
    assert Secret.spelled == 1
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        texts = [archive.extractfile(each) for each in archive]
        assert {each.read() for each in texts if each is not None} == {f"it is {MASK}\n".encode()}


class Timed:
    """A pattern that knows how much it was ever given to search."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.pattern, self.most = pattern, 0

    def _look(self, how: str, text: str, start: int, end: int) -> re.Match[str] | None:
        self.most = max(self.most, end - start)
        found: re.Match[str] | None = getattr(self.pattern, how)(text, start, end)
        return found

    def search(self, text: str, start: int = 0, end: int = 1 << 40) -> re.Match[str] | None:
        return self._look("search", text, start, end)

    def match(self, text: str, start: int = 0, end: int = 1 << 40) -> re.Match[str] | None:
        return self._look("match", text, start, end)


def test_a_long_line_is_searched_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster file of one line of 16 MiB stopped all threads for ten seconds."""
    timed = [Timed(bundle._KEY), Timed(bundle._ACCOUNT)]
    values = {quote: Timed(pattern) for quote, pattern in bundle._VALUES.items()}
    for name, now in (("_KEY", timed[0]), ("_ACCOUNT", timed[1]), ("_VALUES", values)):
        monkeypatch.setattr(bundle, name, now)
    long = "x" * (PIECE * 3)
    text = f"password: \"{long}\", secret: '{long}', token: {long}, a: http://{long}@h"
    shown = bundle.masked(text, bundle.Secrets.of([]))
    assert shown == f'password: "{MASK}", secret: "{MASK}", token: "{MASK}", a: http://{MASK}@h'
    assert {each.most for each in (*timed, *values.values())} == {PIECE}


async def test_one_bundle_of_a_user_is_made_at_a_time(tmp_path: Path) -> None:
    async with a_daemon(tmp_path) as asked:
        async with asked.daemon.control.controller.turns.of("bundle", str(OWNER)):
            waiting = asyncio.ensure_future(asked.ask(OWNER, "GET", "/v1/support-bundle"))  # noqa: TID251
            assert (await asked.ask(OTHER, "GET", "/v1/support-bundle")).status == 200
            assert not waiting.done()
        assert (await waiting).status == 200


def test_of_a_console_the_end_is_read_also_where_it_is_in_two_segments(tmp_path: Path) -> None:
    machine = uuid4()
    (tmp_path / f"{machine}.log.0").write_text("older")
    (tmp_path / f"{machine}.log").write_text("newer")
    records = Records(tmp_path)
    records.keep(machine, group="c", node="n")
    assert records.tail(machine, 7) == b"ernewer"
    assert records.tail(machine, 100) == b"oldernewer"
    assert records.tail(uuid4(), 10) == b""


def test_a_node_has_at_most_so_many_labels() -> None:
    def labels(count: int) -> str:
        named = ", ".join(f"l{n}: x" for n in range(count))
        return f"cluster: c\nhosts: {{s: simulated}}\nnodes: [{{labels: {{{named}}}}}]\n"

    load(labels(64), file="f")
    with pytest.raises(SpecError, match="at most 64 entries"):
        load(labels(65), file="f")


class Cut(str):
    """A text that counts what is cut out of it."""

    __slots__ = ()
    cuts = characters = 0

    def __getitem__(self, place: object) -> str:
        found = super().__getitem__(place)  # type: ignore[index]  # as it was asked
        Cut.cuts, Cut.characters = Cut.cuts + 1, Cut.characters + len(found)
        return found


def test_long_secrets_are_looked_for_in_parts() -> None:
    """A member with 23,000 of them, each longer than the one before, had a thread compare all of
    them at each character of 64 Mi, for good.
    """
    text = Cut("aaaaaac" * 700)
    secrets = bundle.Secrets.of(["zzzzzz", *("aaaaaa" + "b" * n for n in range(1, 300))])
    assert bundle.masked(text, secrets) == text
    assert Cut.cuts <= len(text) * (LONGEST_PART + 1)
    assert Cut.characters <= Cut.cuts * LONGEST_PART


@pytest.mark.parametrize("length", [6, 15, 16, 17, 31, 32, 33, 48, 70])
def test_of_a_long_secret_all_is_masked_once(length: int) -> None:
    secret = "".join(map(chr, range(0x100, 0x100 + length)))
    text = f"it is {secret}, {secret}{secret}, and {secret}"
    shown = bundle.masked(text, bundle.Secrets.of([secret]))
    assert shown == f"it is {MASK}, {MASK}{MASK}, and {MASK}"
