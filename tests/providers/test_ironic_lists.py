"""Lists of an Ironic that gives a few entries at a time, while others make and delete some."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from nospoon.errors import Gone, HostUnreachable, ProviderError
from nospoon.model.ironic import IronicPlace
from nospoon.providers.answers import Answered
from nospoon.providers.bounded_http import MAX_VALUES
from nospoon.providers.cloud_calls import Means
from nospoon.providers.ironic.api import MAX_LISTED_VALUES, Api, Read
from nospoon.providers.ironic.records import Record
from nospoon.runtime.tasks import Tasks
from nospoon.runtime.telling import listen

FIRST = {"nodes": [{"uuid": "a"}], "next": "more"}
LAST = {"nodes": [{"uuid": "b"}]}


def whole(record: Record) -> Record:
    return record


class Told(Api):
    """Answers, one after the other."""

    def __init__(self, *answers: Mapping[str, Any] | None) -> None:
        super().__init__(
            IronicPlace(endpoint="http://ironic.example"), Means(ThreadPoolExecutor(1))
        )
        self.answers = list(answers)

    async def _answer(
        self, method: str, path: str, body: Any, read: Read | None = None
    ) -> Answered:
        assert body is None
        assert read is not None
        answer = self.answers.pop(0)
        if answer is None:
            return Answered(404, f"{method} {path}: the marker is no more")
        return Answered(200, "an answer", value=read(answer))


async def test_a_list_whose_marker_went_is_begun_again() -> None:
    api = Told(FIRST, None, FIRST, None, LAST)
    assert await api.listed("nodes", read=whole) == [{"uuid": "b"}]
    with pytest.raises(Gone):
        await Told(*[FIRST, None] * 9).listed("nodes", read=whole)


async def test_a_list_of_too_many_values_is_refused() -> None:
    class Many(Told):
        async def _answer(
            self, method: str, path: str, body: Any, read: Read | None = None
        ) -> Answered:
            answer = await super()._answer(method, path, body, read)
            return replace(answer, values=MAX_VALUES)

    with pytest.raises(ProviderError, match=f"{MAX_LISTED_VALUES} values, "):
        await Many(*[FIRST] * 20).listed("nodes", read=whole)


async def test_what_is_no_list_is_somebody_elses_answer() -> None:
    with pytest.raises(HostUnreachable, match=r"http://ironic.example is not an Ironic: .*hello"):
        await Told({"message": "hello"}).listed("nodes", read=whole)
    with pytest.raises(HostUnreachable, match="is not an Ironic"):
        await Told({"nodes": [{"message": "hello"}]}).listed("nodes", read=whole)


@pytest.mark.filterwarnings("ignore:Support for InfluxDB")
@pytest.mark.filterwarnings("ignore:The 'service_type' parameter")
async def test_an_ironic_that_does_not_run_is_called_that() -> None:
    """The library that looks for its API does not say that nobody answered."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        api = Api(IronicPlace(endpoint=url), Means(ThreadPoolExecutor(1)))
        with pytest.raises(HostUnreachable) as away:
            await api.listed("nodes", read=whole)
    assert f"Ironic at {url} does not answer" in str(away.value)
    assert "unexpected error" not in str(away.value)


class Restarting(Api):
    """Does not answer the first times."""

    def __init__(self, away: int, *, patience: float) -> None:
        super().__init__(
            IronicPlace(endpoint="http://ironic.example"),
            Means(ThreadPoolExecutor(1)),
            patience=patience,
        )
        self.away = away

    async def _asked(self, method: str, path: str, body: Any, read: Read | None) -> Answered:
        self.away -= 1
        if self.away >= 0:
            raise HostUnreachable(f"nobody answers {method} {path} {body}")
        return Answered(200, "an answer", value=read(LAST) if read is not None else LAST)


async def test_an_operation_waits_for_an_ironic_that_restarts_and_says_so_once() -> None:
    said: list[str] = []

    async def operation() -> object:
        listen(said.append)
        return await Restarting(2, patience=60).listed("nodes", read=whole)

    async with Tasks("test") as tasks:
        assert await tasks.start(operation(), name="operation") == LAST["nodes"]
    assert said == ["Ironic at http://ironic.example does not answer: waiting up to 60 s"]


async def test_who_asks_for_a_plan_hears_at_once_that_ironic_is_away() -> None:
    api = Restarting(1, patience=60)
    with pytest.raises(HostUnreachable):
        await api.listed("nodes", read=whole)
    with pytest.raises(HostUnreachable):
        await Restarting(1, patience=60).post("/nodes", {})
