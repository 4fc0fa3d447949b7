"""What is done for each of tens of thousands of nodes, also those of others, gives others turns: a
plan took 40 ms of the event loop for 20,000 nodes of other users, and more for their networks.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sized
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import UUID

import pytest
from tests.security.asked import OTHER, OWNER, a_daemon
from tests.security.test_starting import finished

from nospoon.control import controller
from nospoon.control.fleet import host_boots
from nospoon.control.maintenance import recover
from nospoon.control.operations import starting
from nospoon.control.planning import allocating
from nospoon.providers.simulated import drivers, machines
from nospoon.runtime.paced import paced
from nospoon.services.bmcs.redfish.resources import update
from nospoon.services.bmcs.service import BmcService
from nospoon.testing.bench import bench
from nospoon.testing.redfish import client

NODES = 30
TEXT = """
cluster: many
hosts: {sim: simulated}
nodes: [{count: %d, bmc: [redfish]}]
"""


class Paced:
    """Counts, by module, the most items whose loops give others turns."""

    def __init__(self, patched: pytest.MonkeyPatch, *modules: ModuleType) -> None:
        self.most = Counter[str]()
        for each in modules:
            patched.setattr(each, "paced", self._of(each.__name__.rpartition(".")[2]))

    def _of(self, name: str) -> Any:
        def noted(items: Iterable[Any]) -> AsyncIterator[Any]:
            assert isinstance(items, Sized)
            self.most[name] = max(self.most[name], len(items))
            return paced(items)

        return noted


async def test_plans_recovery_and_looks_for_boots_give_others_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, held_by = list[int](), allocating._held_by

    def noted(*given: Any) -> Any:
        threads.append(threading.get_ident())
        return held_by(*given)

    monkeypatch.setattr(allocating, "_held_by", noted)
    counted = Paced(monkeypatch, drivers, recover, host_boots, controller)
    async with a_daemon(tmp_path) as asked:
        body = {"file": "x.yaml", "text": TEXT % NODES}
        await finished(asked, OWNER, await asked.ask(OWNER, "POST", "/v1/clusters", body))
        answer = await asked.ask(OTHER, "POST", "/v1/plan", {**body, "text": TEXT % 1})
        assert answer.status == 200, answer.body
        assert (await asked.ask(0, "POST", "/v1/recover", {})).status == 200
        names = {"nodes": [f"node-{n}" for n in range(NODES)]}
        assert (await asked.ask(OWNER, "POST", "/v1/clusters/many/verify", names)).status == 202
    async with a_daemon(tmp_path):
        pass
    modules = ("drivers", "host_boots", "controller")
    assert {name: counted.most[name] >= NODES for name in modules} == dict.fromkeys(modules, True)
    assert threads
    assert threading.get_ident() not in threads


async def test_the_list_of_clusters_and_looks_for_machines_give_others_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 20,000 nodes each took 140 ms, of which any `up` of one node on the same host had one."""
    async with a_daemon(tmp_path) as asked:
        body = {"file": "x.yaml", "text": TEXT % NODES}
        await finished(asked, OWNER, await asked.ask(OWNER, "POST", "/v1/clusters", body))
        counted = Paced(monkeypatch, controller, machines)
        (listed,) = (await asked.ask(OWNER, "GET", "/v1/clusters")).json
        assert (listed["nodes"], listed["on"]) == (NODES, 0)
        assert counted.most["controller"] >= NODES
        assert (await asked.ask(OTHER, "GET", "/v1/clusters")).json == []
        small = TEXT.replace("many", "small") % 1
        await finished(
            asked, OTHER,
            await asked.ask(OTHER, "POST", "/v1/clusters", {"file": "y.yaml", "text": small}),
        )  # fmt: skip
    assert counted.most["machines"] >= NODES


async def test_what_many_machines_boot_is_written_down_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each node of a profile that changed, the files of all of them were written: a member's
    `up` of 2,000 had four million written, and others with loaders of that kind waited for it.
    """
    text = TEXT.replace("bmc: [redfish]", "bmc: [redfish], boot: b") % 3
    text += "boot: {b: {script: 'http://127.0.0.1/a', cmdline: %s}}\n"
    written: list[int] = []

    async def publish(*machines: UUID) -> None:
        written.append(len(machines))

    async with a_daemon(tmp_path) as asked:
        monkeypatch.setattr(asked.daemon.parts.netboot, "publish", publish)
        for cmdline in ("one", "one", "two"):
            body = {"file": "x.yaml", "text": text % cmdline}
            answer = await asked.ask(OWNER, "POST", "/v1/clusters", body)
            assert answer.status in {200, 202}, answer.body
            if answer.json["operation"]:
                await finished(asked, OWNER, answer)
    assert written == [3]


async def test_few_vms_are_started_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`up` started all that it had made in one turn of the loop, 20,000 for a second."""
    begun, most = 0, 0

    async def start(service: BmcService, uuid: UUID) -> str:
        nonlocal begun, most
        del service, uuid
        begun, most = begun + 1, max(most, begun + 1)
        for _ in range(20):
            await asyncio.sleep(0)
        begun -= 1
        return ""

    monkeypatch.setattr(BmcService, "start", start)
    image = bytes(1 << 20)
    sha256 = hashlib.sha256(image).hexdigest()
    vms = f"cluster: vms\nhosts: {{sim: simulated}}\nnodes: [{{kind: vm, count: {NODES + 20}, "
    text = vms + "bmc: [redfish], disks: [{image: i, size: 1MiB}]}]"
    async with a_daemon(tmp_path) as asked:
        assert (await asked.ask(OWNER, "PUT", f"/v1/files/{sha256}", image)).status == 204
        body = {"file": "x.yaml", "text": text, "uploads": {"i": sha256}}
        await finished(asked, OWNER, await asked.ask(OWNER, "POST", "/v1/clusters", body))
    assert most == starting.AT_ONCE < NODES + 20


async def test_an_update_of_many_bmcs_gives_others_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Paced(monkeypatch, update)
    path = "/redfish/v1/UpdateService/Actions/UpdateService.SimpleUpdate"
    async with bench(1) as b:
        answer = await client(b.first).ask("POST", path, {"ImageURI": "http://192.0.2.1/bmc-2.0"})
        assert answer.status == 202
        async with asyncio.timeout(20):
            while not counted.most:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert counted.most["update"] == 1
