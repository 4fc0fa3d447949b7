"""The look at nodes, where Ironic tells no history of those that failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from uuid import UUID, uuid4

from nospoon.errors import ProviderError
from nospoon.model.ironic import IronicPlace, IronicStanding
from nospoon.model.resources.bmcs import Secrets
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.cloud_calls import Means
from nospoon.providers.ironic import records
from nospoon.providers.ironic.api import Api
from nospoon.providers.ironic.drivers import Around
from nospoon.providers.ironic.standing import StandingDriver
from nospoon.runtime.tasks import Tasks

R = TypeVar("R")
TAG = OwnerTag("d", uuid4())


def node(name: str) -> Mapping[str, Any]:
    noted = records.tag_body(TAG, key=name, state="available")
    return {"uuid": str(uuid4()), "provision_state": "clean failed", "extra": {records.TAG: noted}}


class Silent(Api):
    """Knows one node's history, and refuses the others'."""

    def __init__(self) -> None:
        super().__init__(
            IronicPlace(endpoint="http://ironic.example"), Means(ThreadPoolExecutor(1))
        )
        self.nodes = [node("a"), node("b")]

    async def listed(
        self,
        what: str,
        *,
        read: Callable[[records.Record], R | None],
        query: str = "",
        parts: Callable[[R], int] = lambda _: 0,
    ) -> list[R]:
        del what, query, parts
        return [found for each in self.nodes if (found := read(each)) is not None]

    async def get(
        self, path: str, *, read: Callable[[records.Record], records.Record] | None = None
    ) -> Mapping[str, Any]:
        if self.nodes[0]["uuid"] in path:
            raise ProviderError("Ironic is out of order")
        failed = {"severity": "ERROR", "event_type": "cleaning", "event": "the disk broke"}
        assert read is not None
        return read({"history": [failed]})


async def unused(uuid: UUID) -> Secrets:
    raise AssertionError(uuid)


async def test_a_node_whose_history_is_refused_hides_no_other() -> None:
    async with Tasks("test") as tasks:
        driver = StandingDriver(Around(Silent(), "d", unused), tasks)
        one, other = await driver.observe(None)
    states = [each.shape.state for each in (one, other) if isinstance(each.shape, IronicStanding)]
    assert states == ["clean failed", "clean failed"]
    assert "the disk broke" in other.fault
    assert "the disk broke" not in one.fault
