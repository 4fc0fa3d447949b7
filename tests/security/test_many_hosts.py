"""A member's file names a thousand hosts, each of which has ten drivers: few of them begin in one
turn of the loop. A plan stopped all BMCs for 0.1 s, several times; `host list` of twelve such
clusters for 0.13 s, and a member may have a hundred.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest
from tests.security.asked import OWNER, a_daemon
from tests.security.test_lab_machines import Turns
from tests.security.test_many_nodes import Paced

from nospoon.clusterfile.load import load
from nospoon.control.fleet import hosts
from nospoon.control.maintenance import cloud_check, host_check
from nospoon.control.planning import host_list
from nospoon.control.planning.reach import survey
from nospoon.engine.looks import Looks
from nospoon.engine.observe import observe_reachable
from nospoon.errors import MOST_REASONS, HostUnreachable
from nospoon.model.capabilities import Capabilities
from nospoon.model.cluster import Host, Node
from nospoon.model.connections import Simulated
from nospoon.model.host_facts import HostFacts
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.resource import Observed
from nospoon.plan.trunks import Trunks
from nospoon.providers.base import Driver
from nospoon.runtime.few import BEGUN, all_begun
from nospoon.runtime.tasks import Tasks
from nospoon.testing.cloud_connection import AT

COUNT = 200
HOSTS = [Host(f"h{n}", Simulated()) for n in range(COUNT)]


class Begun:
    """Notes in which turn each call begins, of which none goes on before all have begun."""

    def __init__(self) -> None:
        self.turns, self.noted, self.all = Turns(), list[int](), asyncio.Event()

    async def note(self) -> None:
        self.noted.append(self.turns.number)
        if len(self.noted) == COUNT:
            self.all.set()
        await self.all.wait()

    def end(self) -> int:
        """The most calls of one turn."""
        self.turns.end()
        return max(self.noted.count(turn) for turn in set(self.noted))


class NotingDriver:
    kind = Kind.POOL

    def __init__(self, begun: Begun) -> None:
        self._begun = begun

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        del cluster
        await self._begun.note()
        return []


async def _all(begun: Begun) -> None:
    async def ask(item: int) -> int:
        await begun.note()
        if item % 2:
            raise HostUnreachable(str(item))
        return -item

    answers = await all_begun(range(COUNT), ask)
    assert answers[0::2] == [-n for n in range(0, COUNT, 2)]
    assert [str(each) for each in answers[1::2]] == [str(n) for n in range(1, COUNT, 2)]


async def _look(begun: Begun) -> None:
    drivers = {(each.name, Kind.POOL): cast("Driver", NotingDriver(begun)) for each in HOSTS}
    async with Tasks("test") as tasks:
        assert await observe_reachable(drivers, None, Looks(tasks)) == ([], {})


async def _survey(begun: Begun) -> None:
    async def ask(host: Host) -> tuple[Capabilities, HostFacts]:
        await begun.note()
        raise HostUnreachable(host.name)

    assert len((await survey(HOSTS, ask)).away) == COUNT


@pytest.mark.parametrize("work", [_all, _look, _survey])
async def test_few_of_many_hosts_are_begun_in_one_turn(
    work: Callable[[Begun], Awaitable[None]],
) -> None:
    begun = Begun()
    async with asyncio.timeout(20):
        await work(begun)
    assert begun.end() <= BEGUN


async def test_hosts_that_are_checked_give_others_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand simulated ones took 0.11 s."""
    counted = Paced(monkeypatch, host_check)
    text = "cluster: c\nhosts: {a: simulated, b: simulated}\nnodes: [{count: 1}]\n"
    async with a_daemon(tmp_path) as daemon:
        body = {"file": "c.yaml", "text": text}
        assert (await daemon.ask(OWNER, "POST", "/v1/hosts/check", body)).status == 200
    assert counted.most["host_check"] == 2


async def test_nodes_are_looked_at_once_for_all_networks_and_hosts_and_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand networks and 2,000 nodes took 4.4 s of the event loop, for each host."""
    looked, plugged = list[int](), Trunks.plugged

    def noted(trunks: Trunks, node: Node, host: Host) -> set[str]:
        looked.append(threading.get_ident())
        return plugged(trunks, node, host)

    monkeypatch.setattr(Trunks, "plugged", noted)
    text = (
        "cluster: c\nhosts: {a: simulated, b: simulated}\n"
        "networks: {n: {bridge: x}, m: {}, o: {}}\n"
        "flavors: {f: {nics: [n]}}\nnodes: [{count: 5, flavor: f}]\n"
    )
    body = {"file": "c.yaml", "text": text}
    async with a_daemon(tmp_path) as daemon:
        answer = await daemon.ask(OWNER, "POST", "/v1/hosts/check", body)
        monkeypatch.setattr(host_check, "MOST", 1)
        fewer = await daemon.ask(OWNER, "POST", "/v1/hosts/check", body)
    assert len(looked) == 10
    assert threading.get_ident() not in looked
    assert [(e["host"], e["verdict"]) for e in answer.json if e["what"] == "network n"] == [
        ("a", "ok"), ("b", "ok")
    ]  # fmt: skip
    assert [each["what"] for each in fewer.json if each["host"] == "b"] == ["connection"]


async def test_nodes_without_a_flavor_are_named_up_to_a_number() -> None:
    facts = HostFacts(frozenset(), frozenset(), tpm=False)
    text = f"cluster: c\nhosts: {{h: simulated}}\nnodes: [{{count: {MOST_REASONS + 2}}}]\n"
    found = [*cloud_check._flavors(load(text, file="f"), AT, facts)]
    assert len(found) == MOST_REASONS + 1
    assert found[-1][0] == "nodes"


async def test_each_host_of_a_list_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, away = list[str](), host_list._away

    async def noted(hosts: Any, host: Host, **more: Any) -> str:
        asked.append(host.name)
        return await away(hosts, host, **more)

    monkeypatch.setattr(host_list, "_away", noted)
    async with a_daemon(tmp_path) as daemon:
        for name in ("one", "two"):
            text = (
                f"cluster: {name}\nhosts: {{a: simulated, b: simulated}}\nnodes: [{{count: 1}}]\n"
            )
            assert (await daemon.up(OWNER, text)).status == 202
        answer = await daemon.ask(OWNER, "GET", "/v1/hosts")
    rows = [(row["cluster"], row["host"], row["away"]) for row in answer.json]
    assert rows == [("one", "a", ""), ("one", "b", ""), ("two", "a", ""), ("two", "b", "")]
    assert sorted(asked) == ["a", "b"]


async def test_idle_connections_are_closed_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand of each of several users, all of them five minutes after their plans."""
    counted = Paced(monkeypatch, hosts)
    async with a_daemon(tmp_path) as asked:
        for host in HOSTS:
            asked.daemon.parts.hosts.use(host)
        await asked.daemon.parts.hosts.close_idle(-1)
        assert not asked.daemon.parts.hosts._in_use
    assert counted.most["hosts"] == COUNT
