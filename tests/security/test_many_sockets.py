"""A member may open thousands of sockets: what the daemon asks of the kernel about them is asked
beside the event loop.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import ExitStack
from pathlib import Path

from tests.bmcs.test_listeners import bmcs, changed, service
from tests.security.asked import OWNER, a_daemon

from nospoon.errors import ProviderError
from nospoon.runtime.tasks import Tasks
from nospoon.services.bmcs.listeners import MOST_LOOKED

TEXT = "cluster: c\nhosts: {s: simulated}\nnodes: [{name: n, bmc: [ipmi]}]\n"


async def test_of_many_ports_that_are_taken_few_are_looked_up(tmp_path: Path) -> None:
    """After its plan, a member took 2,000 ports of its BMCs: each was searched for among the files
    of all processes, 2 s at a time, in which no BMC answered.
    """
    wanted = [changed(each, redfish_port=0) for each in bmcs(MOST_LOOKED * 3)]
    with ExitStack() as stack:
        for each in wanted:
            taken = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            taken.bind((each.bmc.address, each.bmc.ipmi_port))
        async with service(tmp_path) as s:
            puts = (s.put(each) for each in wanted)
            refused = await asyncio.gather(*puts, return_exceptions=True)
            found = s.listeners.violations([each.bmc for each in wanted])
    assert all(isinstance(each, ProviderError) for each in refused)
    own = "(pid "  # of this process, or of another that has the port at another address
    assert sum(own in str(each) for each in refused) == MOST_LOOKED
    assert [own in each for each in found] == [n < MOST_LOOKED for n in range(len(wanted))]


async def test_sockets_of_the_machine_are_listed_beside_the_loop(tmp_path: Path) -> None:
    """With 10,000 of them each plan took the loop for 90 ms."""
    threads: list[threading.Thread] = []

    def listed() -> frozenset[tuple[str, int]]:
        threads.append(threading.current_thread())
        return frozenset()

    async with a_daemon(tmp_path) as asked:
        allocating = asked.daemon.control.controller.planner.allocating
        allocating._ports_in_use = allocating._listening = listed
        answer = await asked.ask(OWNER, "POST", "/v1/plan", {"file": "f", "text": TEXT})
        assert answer.status == 200
    assert len(threads) == 2
    assert threading.main_thread() not in threads


async def test_of_many_bmcs_at_once_one_is_opened_in_each_turn_of_the_loop(tmp_path: Path) -> None:
    """Those of an `up` were opened without a turn for others between them."""
    wanted = [changed(each, redfish_port=0) for each in bmcs(20)]
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with service(tmp_path) as s, Tasks("test") as tasks:
        tasks.start(count(), name="count")
        await asyncio.gather(*(s.listeners.open(each.bmc) for each in wanted))
        assert turns >= len(wanted)
        for each in wanted:
            await s.listeners.close(each.bmc)
