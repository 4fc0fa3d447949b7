"""Lists of an Ironic that gives a few entries at a time, while others make and delete some."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from nospoon.errors import Gone, HostUnreachable
from nospoon.model.ironic import IronicPlace
from nospoon.providers.answers import Answered
from nospoon.providers.ironic.api import Api

FIRST = {"nodes": [{"uuid": "a"}], "next": "more"}
LAST = {"nodes": [{"uuid": "b"}]}


class Told(Api):
    """Answers, one after the other."""

    def __init__(self, *answers: Mapping[str, Any] | None) -> None:
        super().__init__(IronicPlace(endpoint="http://ironic.example"))
        self.answers = list(answers)

    async def _answer(self, method: str, path: str, body: Any) -> Answered:
        assert body is None
        answer = self.answers.pop(0)
        if answer is None:
            return Answered(404, f"{method} {path}: the marker is no more")
        return Answered(200, "an answer", value=answer)


async def test_a_list_whose_marker_went_is_begun_again() -> None:
    api = Told(FIRST, None, FIRST, None, LAST)
    assert await api.listed("nodes") == [{"uuid": "b"}]
    with pytest.raises(Gone):
        await Told(*[FIRST, None] * 9).listed("nodes")


async def test_what_is_no_list_is_somebody_elses_answer() -> None:
    with pytest.raises(HostUnreachable, match=r"http://ironic.example is no Ironic: .*hello"):
        await Told({"message": "hello"}).listed("nodes")
    with pytest.raises(HostUnreachable, match="is no Ironic"):
        await Told({"nodes": [{"message": "hello"}]}).listed("nodes")
